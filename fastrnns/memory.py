"""Whether the problems of a grid fit the device, foreseen before anything is touched. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastrnns import sizes
from fastrnns.device import Device
from fastrnns.errors import UsageError
from fastrnns.sweep import Point

SMALL = 2**28  # bytes; no device is asked about a grid that needs less


def foresee(
    points: Sequence[Point], dtype: str, device: Device, free: Callable[[Device], int | None] | None = None
) -> None:
    """Refuse a grid of which a problem needs more than its device has; raises UsageError that names the point.

    The need is the least of a training step: weights, their gradients, gates and states of every step. What needs
    more than that may still run out of memory, which is a failed result of that point alone.
    """
    largest = max(points, key=lambda point: sizes.elements(point.problem))
    need = sizes.BYTES[dtype] * sizes.elements(largest.problem)
    if need < SMALL:
        return
    there = (free or available)(device)
    if there is not None and need > there:
        raise UsageError(
            f"--sweep reaches {largest.label}, which needs {need / 2**30:.1f} GiB at least in {dtype}; {device} has"
            f" {there / 2**30:.1f} GiB: leave such points out, or choose smaller sizes"
        )


def available(device: Device) -> int | None:
    """Bytes that a device has for a problem: a GPU's memory, or what the kernel says is available; None if unknown."""
    if device.type == "cpu":
        from env.hardware import meminfo_kib
        from env.sysfs import Files

        kib = meminfo_kib(Files()).get("MemAvailable")
        return None if kib is None else kib * 1024
    from env.gpu import gpus

    index = device.nvml_index()
    memory = [gpu.memory_mib for gpu in gpus().value or () if gpu.index == index]
    return memory[0] * 2**20 if memory and memory[0] else None
