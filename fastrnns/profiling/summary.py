"""From a profiler's events to where the time of each phase went. Pure: events in, numbers out.

Wall, host and work are those of the median iteration, tables the mean of all. Definitions:

    wall     from the start of the call (GPU: or from when the stream came free) until host and GPU are done
    work     CPU: the operators' own time; GPU: the time in which at least one kernel or copy ran
    overhead wall less work: Python, the interpreter, autograd's bookkeeping, launches that the GPU waited for
"""

from __future__ import annotations

import re
import statistics
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from fastrnns.profiling import cudnn
from fastrnns.profiling.events import DEVICE_KINDS, Event

PHASES = ("forward", "backward")
ROWS = 15  # kernels and operators kept in the record; the CSV beside it has all
_WRAPPER = re.compile(r"^(autograd::|torch::|prim::)|Backward\d*$")
_FUSED = ("fused_", "cpp_fused", "triton_")


@dataclass(frozen=True)
class Window:
    """One phase of one iteration, with what ran in it."""

    phase: str
    start_us: float
    end_us: float  # of the host's call
    operators: tuple[Event, ...]
    launches: tuple[Event, ...]
    device: tuple[Event, ...]  # kernels and copies that this phase launched
    free_us: float  # when the stream was free of what was launched before

    @property
    def wall_us(self) -> float:
        """How long the phase took, as events around it on the stream would say."""
        if not self.device:
            return self.end_us - self.start_us
        start = max(self.start_us, self.free_us)
        return max(self.end_us, *(event.end_us for event in self.device)) - start


def is_work(name: str) -> bool:
    """Whether a profiled name is an operator; interpreters and autograd's nodes only call operators."""
    if name.startswith(_FUSED):
        return True
    return "::" in name and not _WRAPPER.search(name)


def own_times(operators: Iterable[Event]) -> list[tuple[Event, float]]:
    """Each event with its own time: its duration less that of those directly inside it on its lane."""
    lanes: dict[str, list[Event]] = defaultdict(list)
    for event in operators:
        lanes[event.lane].append(event)
    found: list[tuple[Event, float]] = []
    for lane in lanes.values():
        stack: list[tuple[Event, float]] = []  # with the time of its children so far
        for event in sorted(lane, key=lambda event: (event.start_us, -event.duration_us)):
            while stack and stack[-1][0].end_us <= event.start_us:
                done, inside = stack.pop()
                found.append((done, max(0.0, done.duration_us - inside)))
            if stack:
                parent, inside = stack[-1]
                stack[-1] = (parent, inside + event.duration_us)
            stack.append((event, 0.0))
        found += [(done, max(0.0, done.duration_us - inside)) for done, inside in stack]
    return found


def merged(intervals: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals without overlap, in order."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def windows(events: Sequence[Event]) -> list[Window]:
    """The named phases in order of time; a kernel belongs to the phase that launched it."""
    ranges = [event for event in events if event.kind == "range" and event.name in PHASES]
    host = {kind: [event for event in events if event.kind == kind] for kind in ("operator", "launch")}
    starts = {kind: [event.start_us for event in found] for kind, found in host.items()}
    device = [event for event in events if event.kind in DEVICE_KINDS]
    launched_at: dict[int | None, float] = {
        event.correlation: event.start_us for event in host["launch"] if event.correlation is not None
    }
    order = [(launched_at.get(event.correlation, event.start_us), event) for event in device]
    order.sort(key=lambda pair: pair[0])
    launch_times = [time for time, _ in order]
    free: list[float] = []  # when the device was done with everything launched so far
    for _, event in order:
        free.append(max(event.end_us, free[-1]) if free else event.end_us)
    found = []
    for number, phase in enumerate(ranges):
        inside = {}
        for kind, rows in host.items():
            first = bisect_left(starts[kind], phase.start_us)
            inside[kind] = tuple(row for row in rows[first : bisect_left(starts[kind], phase.end_us)])
        # Without launches in the report a kernel is placed by its own start: up to the next phase.
        last = phase.end_us
        if not host["launch"]:
            last = ranges[number + 1].start_us if number + 1 < len(ranges) else float("inf")
        first, end = bisect_left(launch_times, phase.start_us), bisect_left(launch_times, last)
        found.append(
            Window(
                phase.name,
                phase.start_us,
                phase.end_us,
                inside["operator"],
                inside["launch"],
                tuple(event for _, event in order[first:end]),
                free[first - 1] if first else phase.start_us,
            )
        )
    return found


def table(pairs: Iterable[tuple[str, float]], iterations: int, whole_us: float) -> list[dict[str, Any]]:
    """Names with calls, own time and share of the whole, the largest first; calls and times per iteration."""
    times: dict[str, float] = defaultdict(float)
    calls: Counter[str] = Counter()
    for name, own_us in pairs:
        times[name] += own_us
        calls[name] += 1
    return [
        {
            "name": name,
            "calls": calls[name] / iterations,
            "own_ms": times[name] / iterations / 1e3,
            "share": times[name] / whole_us if whole_us > 0 else 0.0,
        }
        for name in sorted(times, key=lambda name: (-times[name], name))
    ]


def summarise(
    events: Sequence[Event], *, steps: int | None = None, memory: Sequence[Event] = ()
) -> dict[str, dict[str, Any]]:
    """What each phase did, by name of phase; `steps` are the time steps of one iteration."""
    by_phase: dict[str, list[Window]] = defaultdict(list)
    for window in windows(events):
        by_phase[window.phase].append(window)
    peaks = memory_peaks(memory)
    return {
        phase: _phase(by_phase[phase], steps) | {"memory_peak_bytes": peaks.get(phase)}
        for phase in PHASES
        if by_phase[phase]
    }


def _phase(found: Sequence[Window], steps: int | None) -> dict[str, Any]:
    count = len(found)
    wall_us = statistics.median(window.wall_us for window in found)
    host_us = statistics.median(window.end_us - window.start_us for window in found)
    by_window = [[(event.name, time) for event, time in own_times(window.operators)] for window in found]
    own = [pair for pairs in by_window for pair in pairs]
    operators_us = statistics.median(
        sum(time for name, time in pairs if is_work(name)) for pairs in by_window
    )
    kernels = [event for window in found for event in window.device]
    busy = [_busy(window) for window in found] if kernels else []
    work_us = statistics.median(one["busy_us"] for one in busy) if busy else operators_us
    overhead_us = max(0.0, wall_us - work_us)
    # Other calls of the runtime (events, synchronising) launch nothing.
    launches = sum("Launch" in event.name for window in found for event in window.launches) / count
    return {
        "iterations": count,
        "steps": steps,
        "wall_ms": wall_us / 1e3,
        "host_ms": host_us / 1e3,
        "work_ms": work_us / 1e3,
        "busy_share": work_us / wall_us if wall_us > 0 else None,
        "overhead_us_per_step": overhead_us / steps if steps else None,
        "operators": {
            "total_ms": operators_us / 1e3,
            "calls": sum(is_work(name) for name, _ in own) / count,
            "rows": table(own, count, sum(window.wall_us for window in found)),
        },
        "kernels": _kernels(kernels, count, steps) if kernels else None,
        "gaps": _gaps(busy) if busy else None,
        "launches": launches or None,
        "cudnn_algorithm": cudnn.algorithm([event.name for event in kernels], [name for name, _ in own]),
    }


def _busy(window: Window) -> dict[str, Any]:
    spans = merged((event.start_us, event.end_us) for event in window.device)
    start = max(window.start_us, window.free_us)
    gaps = [spans[index + 1][0] - spans[index][1] for index in range(len(spans) - 1)]
    return {
        "busy_us": sum(end - start for start, end in spans),
        "gaps_us": gaps,
        "leading_us": max(0.0, spans[0][0] - start) if spans else 0.0,
    }


def _kernels(kernels: Sequence[Event], count: int, steps: int | None) -> dict[str, Any]:
    total_us = sum(event.duration_us for event in kernels)
    number = sum(event.kind == "kernel" for event in kernels) / count
    return {
        "total_ms": total_us / count / 1e3,
        "count": number,
        "per_step": number / steps if steps else None,
        "rows": table(((event.name, event.duration_us) for event in kernels), count, total_us),
    }


def _gaps(busy: Sequence[dict[str, Any]]) -> dict[str, Any]:
    gaps = [gap for one in busy for gap in one["gaps_us"]]
    return {
        "count": len(gaps) / len(busy),
        "total_ms": sum(gaps) / len(busy) / 1e3,
        "median_us": statistics.median(gaps) if gaps else None,
        "largest_us": max(gaps, default=None),
        "before_first_us": statistics.fmean(one["leading_us"] for one in busy),
    }


def memory_peaks(events: Sequence[Event]) -> dict[str, int]:
    """The most bytes in use in each phase, above what was in use when it began."""
    ranges = [event for event in events if event.kind == "range" and event.name in PHASES]
    peaks: dict[str, int] = {}
    for device in ("cpu", "cuda"):
        rows = [event for event in events if event.kind == "memory" and event.device == device]
        for phase in ranges:
            before = [row.bytes_in_use or 0 for row in rows if row.start_us < phase.start_us]
            inside = [row.bytes_in_use or 0 for row in rows if phase.start_us <= row.start_us < phase.end_us]
            if inside:
                peak = max(inside) - (before[-1] if before else 0)
                peaks[phase.name] = max(peaks.get(phase.name, 0), peak)
    return peaks
