"""Pictures of what was timed: every iteration in run order beside its distribution, and all models at a glance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrnns.archive.export.series import Series, series_of
from fastrnns.archive.listing import plain
from fastrnns.present.table import interval, number
from fastrnns.report import vector
from fastrnns.report.page import Picture, sentence

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BINS = 60
FEW = 60  # iterations, drawn larger


@dataclass(frozen=True)
class Panel:
    """One phase of one model. Times in milliseconds, one tuple a process in run order; nan where there is none."""

    model: str
    phase: str
    samples: tuple[tuple[float, ...], ...]
    warmup: tuple[tuple[float, ...], ...]
    excluded: tuple[frozenset[int], ...]  # of each process: the iterations that the watch saw disturbed
    median: float | None
    ci95: tuple[float, float] | None

    @property
    def timed(self) -> list[float]:
        """All timed iterations of all processes."""
        return [value for series in self.samples for value in series if not math.isnan(value)]


def panels(record: Mapping[str, Any]) -> list[Panel]:
    """The phases of a record of which there are samples."""
    return [_panel(series) for series in series_of(record)]


def _panel(series: Series) -> Panel:
    facts = series.summary
    left_out = facts.get("excluded") or ()
    low, high = facts["ci95"] or (None, None)
    return Panel(
        model=series.model,
        phase=series.phase,
        samples=_times(facts["samples"]),
        warmup=_times(facts["warmup"]),
        excluded=tuple(
            frozenset(left_out[index] if index < len(left_out) else ())
            for index in range(len(facts["samples"]))
        ),
        median=facts["median"],
        ci95=None if low is None or high is None else (low, high),
    )


def _times(found: Sequence[Sequence[float | None]]) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(math.nan if value is None else float(value) for value in one) for one in found)


def picture(panel: Panel, name: str) -> Picture:
    """The picture of one phase, with its words."""
    return Picture(
        name=name,
        title=f"{panel.model} {panel.phase}",
        description=describe(panel),
        draw=partial(draw, panel),
        model=panel.model,
        phase=panel.phase,
    )


def describe(panel: Panel, *, warmup: bool = True) -> str:
    """What the picture shows, in a sentence or two; `warmup`: whether it is in it."""
    timed = panel.timed
    counts = [len(one) for one in panel.samples]
    count, word = len(counts), "process" if len(counts) == 1 else "processes"
    each = str(counts[0]) if len(set(counts)) == 1 else sentence([str(length) for length in counts])
    text = f"{count} {word} of {each} timed iterations: median {number(panel.median)} ms"
    if panel.ci95:
        text += f" (95 %: {interval(panel.ci95)})"
    text += f", from {number(min(timed))} to {number(max(timed))} ms."
    warm = [value for one in panel.warmup for value in one if not math.isnan(value)]
    if warm and warmup:
        low, high = limits(timed)
        beyond = sum(not low <= value <= high for value in warm)
        text += f" {len(warm)} warm-up iterations (rings), from {number(min(warm))} to {number(max(warm))} ms"
        text += f", {beyond} of them beyond the axis (triangles)." if beyond else "."
    disturbed = sum(len(one) for one in panel.excluded)
    return text + (f" {disturbed} disturbed iterations{' (crosses)' if warmup else ''}." if disturbed else "")


def limits(timed: Sequence[float]) -> tuple[float, float]:
    """An axis that holds every timed iteration."""
    low, high = min(timed), max(timed)
    room = (high - low) * 0.08 or abs(high) * 0.02 or 1.0
    return low - room, high + room


def draw(panel: Panel) -> Figure:
    """Run order on the left, the distribution on the right, one scale of milliseconds for both."""
    import numpy as np

    timed = np.array(panel.timed)
    colour = vector.PHASE_COLOURS[panel.phase]
    with vector.styled():
        drawn = vector.figure(5.6, 2.5)
        run, spread = drawn.subplots(1, 2, sharey=True, width_ratios=(3.4, 1))
        drawn.subplots_adjust(left=0.115, right=0.99, top=0.92, bottom=0.17, wspace=0.06)
        low, high = limits(panel.timed)
        run.set_ylim(low, high)
        begin = 0
        total = sum(map(len, (*panel.samples, *panel.warmup)))
        size = 8 if total <= FEW else 4
        for index, series in enumerate(panel.samples):
            warm = np.array(panel.warmup[index] if index < len(panel.warmup) else ())
            here = np.array(series)
            if index:
                run.axvline(begin - 0.5, color=vector.SOFT, linewidth=0.6)
            _warmup(run, begin, warm, (low, high))
            first = begin + len(warm)
            out = np.isin(np.arange(len(here)), list(panel.excluded[index]))
            places = first + np.arange(len(here))
            vector.dots(run, places[~out], here[~out], colour=colour, size=size)
            if out.any():
                vector.marks(run, places[out], here[out], colour=vector.INK, marker="x")
            end = first + len(here)
            run.text(
                (begin + end) / 2, 1.0, f"process {index + 1}" if end - begin > 0.15 * total else str(index + 1),
                transform=run.get_xaxis_transform(), ha="center", va="bottom", fontsize=8, color=vector.SOFT,
            )  # fmt: skip
            begin = end
        run.set_xlim(-0.5, max(begin - 0.5, 0.5))
        run.set_xlabel("iteration, in run order")
        run.set_ylabel("ms")
        run.xaxis.get_major_locator().set_params(integer=True)
        spread.hist(
            timed, bins=min(MOST_BINS, max(10, int(math.sqrt(len(timed))))), range=(timed.min(), timed.max()),
            orientation="horizontal", color=colour, alpha=0.75,
        )  # fmt: skip
        spread.set_xlabel("count")
        spread.tick_params(labelleft=False)
        for axes in (run, spread):
            if panel.ci95:
                axes.axhspan(*panel.ci95, color=vector.GREEN, alpha=0.14, linewidth=0, zorder=0)
            if panel.median is not None:
                axes.axhline(panel.median, color=vector.GREEN, linewidth=1.1)
    return drawn


def _warmup(axes: Any, begin: int, warm: Any, limits: tuple[float, float]) -> None:
    """Warm-up as rings; what is beyond the axis as triangles on its edge, so that none is out of sight."""
    import numpy as np

    low, high = limits
    places = begin + np.arange(len(warm))
    for chosen, marker, size in (
        ((warm >= low) & (warm <= high), "o", 3.0),
        (warm > high, "^", 4.0),
        (warm < low, "v", 4.0),
    ):
        if chosen.any():
            inside = np.clip(warm[chosen], low, high)
            vector.marks(
                axes, places[chosen], inside, colour=vector.SOFT, marker=marker, size=size, name="warmup"
            )


def overview(every: Sequence[Panel], title: str) -> Picture | None:
    """All models at a glance: the median of each phase with its interval; None where no median is known."""
    found = [panel for panel in every if panel.median is not None]
    if not found:
        return None
    models = list(dict.fromkeys(panel.model for panel in found))
    return Picture(
        name="overview",
        title=title,
        description="The median of each model and phase with its 95 % interval, in "
        "milliseconds. The same figures stand in the table.",
        draw=partial(_draw_overview, tuple(found), tuple(models)),
        wide=True,
    )


def _draw_overview(found: Sequence[Panel], models: Sequence[str]) -> Figure:
    with vector.styled():
        drawn = vector.figure(10, 0.9 + 0.32 * len(models), fitted=True)
        axes = drawn.subplots()
        for phase, offset, marker in (("forward", -0.14, "o"), ("backward", 0.14, "s")):
            here = [panel for panel in found if panel.phase == phase]
            if not here:
                continue
            places = [models.index(panel.model) + offset for panel in here]
            middle = [panel.median or 0.0 for panel in here]
            bounds = [panel.ci95 or (panel.median, panel.median) for panel in here]
            errors = [
                [max(0.0, mid - (low or 0.0)) for mid, (low, _) in zip(middle, bounds, strict=True)],
                [max(0.0, (high or 0.0) - mid) for mid, (_, high) in zip(middle, bounds, strict=True)],
            ]
            axes.errorbar(
                middle, places, xerr=errors, fmt=marker, markersize=5, capsize=3, linewidth=1.2,
                color=vector.PHASE_COLOURS[phase], label=phase,
            )  # fmt: skip
        vector.scale_ms(axes.xaxis, [end for panel in found for end in panel.ci95 or (panel.median or 0.0,)])
        axes.set_yticks(range(len(models)), [plain(model)[:40] for model in models])
        axes.tick_params(axis="y", labelcolor=vector.INK, length=0)
        axes.set_ylim(len(models) - 0.5, -0.5)
        drawn.legend(loc="outside upper right", ncols=2, frameon=False)
    return drawn
