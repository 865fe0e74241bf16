"""Number formats by name, and TF32 pinned for cuDNN and matrix products alike."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,  # the tensors are fp32; how they are multiplied is `tf32` below
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp64": torch.float64,  # references only
}


def torch_dtype(name: str) -> torch.dtype:
    """The tensor type of a dtype's name."""
    return _DTYPES[name]


def facts() -> dict[str, bool]:
    """Which products may use TF32 now."""
    return {
        "matmul_tf32": torch.backends.cuda.matmul.allow_tf32,
        "cudnn_tf32": torch.backends.cudnn.allow_tf32,
    }


@contextmanager
def tf32(on: bool) -> Iterator[dict[str, bool]]:
    """Let both cuDNN and matrix products use TF32, or neither; torch's default lets only cuDNN."""
    before = facts()
    try:
        torch.backends.cuda.matmul.allow_tf32 = on
        torch.backends.cudnn.allow_tf32 = on
        yield facts()
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before["matmul_tf32"]
        torch.backends.cudnn.allow_tf32 = before["cudnn_tf32"]
