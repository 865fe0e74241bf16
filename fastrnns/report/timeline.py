"""The samples and what the watch saw, on one axis of time, so that a spike and its cause stand above each other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrnns.archive.listing import plain
from fastrnns.phases import STREAM as PHASES
from fastrnns.report import vector
from fastrnns.report.page import Picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NS = 1e9
GAP = 0.12  # width of the time between two models, which is squeezed; a model's own is 1
LEVELS = frozenset({"mhz"})  # columns of which nothing recorded is not zero
LEAST_AMOUNT = 1.0  # top of an axis on which nothing happened
LEAST_PAD_S = 0.15  # one look of the watch on either side
LABELS = {
    "involuntary": "involuntary\nswitches",
    "migrations": "migrations",
    "wait_ms": "waiting\nms",
    "steal_ms": "steal\nms",
    "foreign_ms": "others\nms",
    "mhz": "slowest\nMHz",
}


@dataclass(frozen=True)
class Window:
    """When one model was timed in one process; seconds since the first timed iteration."""

    model: str
    begin_s: float
    end_s: float


@dataclass(frozen=True)
class Timeline:
    """One process. `points` are (seconds, milliseconds) of each phase, `columns` the amounts since the last look."""

    process: int
    windows: tuple[Window, ...]
    points: Mapping[str, tuple[tuple[float, float], ...]]
    looks_s: tuple[float, ...]
    columns: Mapping[str, tuple[float, ...]]
    disturbances: tuple[tuple[float, float, str], ...]


def timelines(record: Mapping[str, Any]) -> list[Timeline]:
    """One timeline for each process of which iterations have a time of day."""
    count = max((len(result.get("started_ns") or ()) for result in record["results"]), default=0)
    found = (_timeline(record, index) for index in range(count))
    return [one for one in found if one.windows]


def _timeline(record: Mapping[str, Any], process: int) -> Timeline:
    raw: dict[str, list[tuple[int, float]]] = {phase: [] for phase in PHASES}
    spans: list[tuple[str, int, int]] = []
    for result in record["results"]:
        starts = result.get("started_ns") or ()
        here = _points(result, process, starts[process] if process < len(starts) else ())
        for phase in PHASES:
            raw[phase] += here[phase]
        ends = [at + int(ms * 1e6) for points in here.values() for at, ms in points]
        if ends:
            spans.append(
                (result["model"], min(at for points in here.values() for at, _ in points), max(ends))
            )
    spans.sort(key=lambda span: span[1])
    zero = spans[0][1] if spans else 0
    last = max((end for _, _, end in spans), default=0)
    looks, columns = _watched(record["environment"], zero, last)
    disturbed = (record["environment"].get("disturbances") or []) if spans else []
    return Timeline(
        process=process,
        windows=tuple(Window(model, (begin - zero) / NS, (end - zero) / NS) for model, begin, end in spans),
        points={phase: tuple(((at - zero) / NS, ms) for at, ms in raw[phase]) for phase in PHASES},
        looks_s=looks,
        columns=columns,
        disturbances=tuple(
            ((item["from_ns"] - zero) / NS, (item["to_ns"] - zero) / NS, str(item["cause"]))
            for item in disturbed
            if item["to_ns"] >= zero - NS and item["from_ns"] <= last + NS
        ),
    )


def _watched(
    environment: Mapping[str, Any], zero: int, last: int
) -> tuple[tuple[float, ...], dict[str, tuple[float, ...]]]:
    """What all watches saw that looked between two times: ends of their intervals, and an amount for each.

    A bench has one watch a process, a profile one a model: by their times they find their samples. The first
    interval of a watch begins where it does; what no watch saw is nan.
    """
    watches = sorted(_over(environment, zero, last), key=lambda watch: int(watch["started_ns"]))
    names = dict.fromkeys(name for watch in watches for name in watch["timeline"] if name != "t_ms")
    looks: list[float] = []
    columns: dict[str, list[float]] = {name: [] for name in names}
    for watch in watches:
        table = watch["timeline"]
        begin = (watch["started_ns"] - zero) / NS
        looks += [begin, *(begin + float(value) / 1e3 for value in table["t_ms"])]
        for name, row in columns.items():
            nothing = [math.nan if name in LEVELS else 0.0] * len(table["t_ms"])  # it never left zero
            row += [
                math.nan,
                *(math.nan if value is None else float(value) for value in table.get(name, nothing)),
            ]
    return tuple(looks), {name: tuple(row) for name, row in columns.items() if len(row) == len(looks)}


def _over(environment: Mapping[str, Any], zero: int, last: int) -> Iterator[Mapping[str, Any]]:
    for watch in (environment["watch"] or {}).get("processes") or []:
        times = (watch.get("timeline") or {}).get("t_ms")
        if times and watch["started_ns"] <= last and watch["started_ns"] + times[-1] * 1e6 >= zero:
            yield watch


def _points(
    result: Mapping[str, Any], process: int, starts: Sequence[Any]
) -> dict[str, list[tuple[int, float]]]:
    """Where each time begins: the backward of an iteration where its forward ends."""
    found: dict[str, list[tuple[int, float]]] = {phase: [] for phase in PHASES}
    series = {}
    for phase in PHASES:
        samples = (result.get(phase) or {}).get("samples") or ()
        series[phase] = samples[process] if process < len(samples) else ()
    for index, start in enumerate(starts):
        at = start
        for phase in PHASES:
            value = series[phase][index] if index < len(series[phase]) else None
            if at is not None and value is not None:
                found[phase].append((at, float(value)))
                at += int(value * 1e6)
    return found


def picture(timeline: Timeline) -> Picture:
    """The picture of one process's timeline, with its words."""
    seen = [_label_of(name).replace("\n", " ") for name in timeline.columns]
    causes = list(dict.fromkeys(cause for _, _, cause in timeline.disturbances))
    text = (
        f"Process {timeline.process + 1}: every timed iteration at its time, model after model; the time between "
        "models is squeezed into the narrow grey strips. "
    )
    text += f"Below, what the watch counted from look to look: {', '.join(seen)}. " if seen else ""
    text += (
        f"Shaded: disturbances, {len(timeline.disturbances)} in all ({', '.join(causes)})."
        if causes
        else "The watch saw no disturbance."
    )
    return Picture(
        name=f"timeline-{timeline.process + 1}",
        title=f"Process {timeline.process + 1}",
        description=text,
        draw=partial(draw, timeline),
        wide=True,
    )


def knots(windows: Sequence[Window]) -> tuple[list[float], list[float]]:
    """Times and their places: each model gets a width of 1, the time between two models one of GAP.

    The mapping rises everywhere, so that nothing leaves its order and nothing is left out.
    """
    times: list[float] = []
    places: list[float] = []
    for index, window in enumerate(windows):
        pad = max(LEAST_PAD_S, 0.04 * (window.end_s - window.begin_s))
        begin, end = window.begin_s - pad, window.end_s + pad
        if times:  # neighbours share the time between them
            middle = (windows[index - 1].end_s + window.begin_s) / 2
            times[-1] = min(times[-1], middle)
            begin = max(begin, middle)
        if times and begin <= times[-1]:
            begin = times[-1] + 1e-6
        times += [begin, max(end, begin + 1e-6)]
        places += [index * (1 + GAP), index * (1 + GAP) + 1]
    return times, places


def draw(timeline: Timeline) -> Figure:
    """The samples above, one row below for each thing that the watch counted, all on one axis."""
    import numpy as np

    times, places = knots(timeline.windows)
    rows = len(timeline.columns)
    with vector.styled():
        drawn = vector.figure(10, 3.1 + 0.62 * rows, fitted=True)
        axes = drawn.subplots(1 + rows, 1, sharex=True, squeeze=False, height_ratios=[4, *[1] * rows])[:, 0]
        top = axes[0]
        for phase in PHASES:
            if timeline.points[phase]:
                at, ms = np.array(timeline.points[phase]).T
                vector.dots(top, np.interp(at, times, places), ms, colour=vector.PHASE_COLOURS[phase], size=3)
                top.plot([], [], ".", color=vector.PHASE_COLOURS[phase], label=phase)
        vector.scale_ms(top.yaxis, [ms for phase in PHASES for _, ms in timeline.points[phase]])
        looks = np.array(timeline.looks_s)
        seen = np.zeros(max(0, len(looks) - 1), dtype=bool)
        for begin, end in zip(times[::2], times[1::2], strict=True):
            seen |= (looks[:-1] < end) & (looks[1:] > begin)
        for row, (name, column) in zip(axes[1:], timeline.columns.items(), strict=True):
            edges = np.interp(looks, times, places)
            values = np.array(column)[1:]  # an amount is of the time since the look before
            row.stairs(
                values, edges, fill=True, color=vector.PURPLE, alpha=0.9, baseline=np.nanmin([0, *values])
            )
            shown = values[seen]  # what was seen while no model was timed sets no scale
            row.set_ylim(np.nanmin([0, *shown]), max(np.nanmax([0, *shown]) * 1.1, LEAST_AMOUNT))
            row.set_ylabel(_label_of(name), rotation=0, ha="right", va="center")
            row.yaxis.get_major_locator().set_params(nbins=2)
        for each in axes:
            for begin, end, _ in timeline.disturbances:
                left, right = map(float, np.interp([begin, end], times, places))
                each.axvspan(left, max(right, left + 0.01), color=vector.PURPLE, alpha=0.28, linewidth=0)
            for left, right in zip(places[1::2], places[2::2], strict=False):  # one less
                each.axvspan(left, right, color=vector.GRID, alpha=0.7, linewidth=0)
            each.grid(visible=False, axis="x")
        axes[-1].set_xticks(
            [(a + b) / 2 for a, b in zip(places[::2], places[1::2], strict=True)],
            [_label(window) for window in timeline.windows],
            rotation=0 if len(timeline.windows) < 7 else 30,
            ha="center" if len(timeline.windows) < 7 else "right",
        )
        axes[-1].set_xlim(places[0], places[-1])
        drawn.legend(*top.get_legend_handles_labels(), loc="outside upper right", ncols=2, frameon=False)
    return drawn


def _label_of(column: str) -> str:
    return LABELS.get(column, plain(column).replace("_", " "))


def _label(window: Window) -> str:
    seconds = window.end_s - window.begin_s
    length = f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.0f} ms"
    return f"{plain(window.model)[:24]}, {length}"
