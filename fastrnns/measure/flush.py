"""Cold caches: what a timed region finds in them is written over before it starts, outside of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from env.hardware import caches
from env.sysfs import Files

TIMES = 2  # the caches' size: replacement is not strictly least recently used, one size would leave something
UNKNOWN_BYTES = 64 * 2**20  # where nothing tells the size of the caches
MOST_BYTES = 2**30  # of the buffer; above any cache of today, and it must fit beside the model


def last_level_bytes(files: Files) -> int | None:
    """The largest data cache that a CPU of this machine sees, in bytes; None where the kernel does not say."""
    sizes = [facts["size_kib"] for name, facts in caches(files).items() if not name.endswith("i")]
    return max((size * 1024 for size in sizes if size), default=None)


def buffer_bytes(cache_bytes: int | None) -> int:
    """How much to write so that nothing of a model is left in caches of that size."""
    return min(MOST_BYTES, TIMES * (cache_bytes or UNKNOWN_BYTES))


def cache_bytes(device: Any) -> int | None:
    """The cache that stands before a device's memory: the last level of a CPU, the L2 of a GPU."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.get_device_properties(device).L2_cache_size) or None
    return last_level_bytes(Files("/"))


def flusher(device: Any) -> tuple[Callable[[], None], int]:
    """What writes over the caches of a device and waits until that is done, and how many bytes it writes.

    On a CPU all threads of torch read and write their part of one buffer, so that the caches of each core go too.
    On a GPU it runs on the current stream, where the model runs. Waiting costs the overlap of backward with the end
    of forward: a cold region begins on an idle device.
    """
    import torch

    size = buffer_bytes(cache_bytes(device))
    buffer = torch.zeros(size // 4, dtype=torch.float32, device=device)

    def flush() -> None:
        buffer.add_(1.0)
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return flush, size
