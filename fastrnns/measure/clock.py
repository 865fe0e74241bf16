"""Clocks that answer in milliseconds on every device."""

from __future__ import annotations

import itertools
import time
from typing import Any, Protocol

NANOSECONDS_PER_MILLISECOND = 1e6


class Clock(Protocol):
    """Marks moments in the stream of work; how far apart two are is known once the work has settled."""

    def mark(self) -> Any:
        """Mark this moment, at no cost that the work would feel."""

    def settle(self) -> None:
        """Wait for all work that was started."""

    def milliseconds(self, start: Any, end: Any) -> float:
        """Return the time between two marks, after `settle`."""


class CpuClock:
    """The monotonic clock of the host: the work is done when its call returns."""

    def __init__(self) -> None:
        self.mark = time.perf_counter_ns

    def settle(self) -> None:
        """Nothing runs on."""

    def milliseconds(self, start: int, end: int) -> float:
        """Return the time between two readings of nanoseconds."""
        return (end - start) / NANOSECONDS_PER_MILLISECOND


class CudaClock:
    """Events on one GPU's current stream; as upstream, the forward is not waited for before the backward.

    So a backward that is launched while the forward still runs costs what the GPU takes, as in training.
    """

    EVENTS = 8  # more than the marks of one iteration

    def __init__(self, device: Any) -> None:
        import torch

        self._device = torch.device(device)  # cuda:1 is a GPU like cuda:0
        self._synchronize = torch.cuda.synchronize
        self._stream = torch.cuda.current_stream
        self._events = itertools.cycle([self._event(torch) for _ in range(self.EVENTS)])

    @staticmethod
    def _event(torch: Any) -> Any:
        return torch.cuda.Event(enable_timing=True)

    def mark(self) -> Any:
        """Record an event behind the work that was launched so far."""
        event = next(self._events)
        event.record(self._stream(self._device))
        return event

    def settle(self) -> None:
        """Wait for everything launched on this GPU."""
        self._synchronize(self._device)

    def milliseconds(self, start: Any, end: Any) -> float:
        """Return the time between two events; CUDA gives milliseconds."""
        elapsed: float = start.elapsed_time(end)
        return elapsed


def clock_for(device: Any) -> Clock:
    """The clock of a torch device."""
    return CudaClock(device) if device.type == "cuda" else CpuClock()
