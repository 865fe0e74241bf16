"""The libraries under PyTorch: switched off for a while, and which of them really runs a model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


def cudnn_name() -> str:
    """The name and version of cuDNN."""
    version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]  # torch's
    if not version:
        return "cuDNN"
    major, rest = divmod(version, 10_000) if version >= 90_000 else divmod(version, 1_000)
    return f"cuDNN {major}.{rest // 100}.{rest % 100}"


def onednn_name() -> str:
    """The name and version of oneDNN."""
    found = re.search(r"(?:MKL-DNN|oneDNN) v([\d.]+)", torch.__config__.show())
    return f"oneDNN {found[1]}" if found else "oneDNN"


def _named(text: str) -> str:
    """The library that a word of PyTorch's points to; ATen, PyTorch's own, when it points to none."""
    word = text.lower()
    return cudnn_name() if "cudnn" in word else onednn_name() if "mkldnn" in word else "ATen"


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def library_of(outputs: Any) -> str:
    """The library that computed some outputs, read from the graph that autograd recorded."""
    waiting = [tensor.grad_fn for tensor in _tensors(outputs)]
    seen: set[Any] = set()
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (library := _named(node.name())) != "ATen":
            return library
        waiting += [earlier for earlier, _ in node.next_functions]
    return "ATen"


def convolution_library(device: torch.device, dtype: torch.dtype) -> str:
    """The library that PyTorch chooses for a network's first convolution."""
    images = torch.zeros(2, 3, 32, 32, device=device, dtype=dtype)
    weight = torch.zeros(64, 3, 7, 7, device=device, dtype=dtype)
    chosen = torch._C._select_conv_backend(  # noqa: SLF001 - has no public name
        images, weight, None, [2, 2], [3, 3], [1, 1], False, [0, 0], 1
    )
    return _named(str(chosen))


@contextmanager
def libraries_off() -> Iterator[None]:
    """Switch cuDNN and oneDNN off, and afterwards back to what they were; no other flag is touched."""
    before = torch.backends.cudnn.enabled, torch._C._get_mkldnn_enabled()  # noqa: SLF001 - its only getter
    torch.backends.cudnn.enabled = False
    torch._C._set_mkldnn_enabled(False)  # noqa: SLF001
    try:
        yield
    finally:
        torch.backends.cudnn.enabled = before[0]
        torch._C._set_mkldnn_enabled(before[1])  # noqa: SLF001
