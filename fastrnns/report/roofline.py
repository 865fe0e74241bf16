"""The roofline of a record that knows its operations and the machine's ceilings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from fastrnns.archive.listing import plain
from fastrnns.report import vector
from fastrnns.report.page import Cell, Line, Picture, Section, Table, cells, milliseconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEETING = 1.12  # rates nearer than this ratio would be named in one place
MARKS = {"forward": "o", "backward": "s"}


@dataclass(frozen=True)
class Point:
    """One phase of one model against the hardware's limit."""

    model: str
    phase: str
    dtype: str
    flops_per_byte: float
    flops_per_s: float
    measured_ms: float | None
    limit_ms: float | None
    bound: str | None
    share: float | None


def point(result: Mapping[str, Any], phase: str, found: Mapping[str, Any]) -> Point | None:
    """The point of a phase, or None where the record has no operations, bytes or rate of it."""
    work, limit = found.get("work") or {}, found.get("limit") or {}
    flops, moved, rate = work.get("flops_without_input_gradient"), work.get("bytes"), limit.get("flops_per_s")
    if not (flops and moved and rate):
        return None
    return Point(
        model=result["model"],
        phase=phase,
        dtype=str(result["dtype"] or "fp32"),
        flops_per_byte=flops / moved,
        flops_per_s=rate,
        measured_ms=(result.get(phase) or {}).get("median"),
        limit_ms=limit.get("limit_ms"),
        bound=limit.get("bound"),
        share=limit.get("share"),
    )


def section(points: Sequence[Point], ceilings: Mapping[str, Any], options: Mapping[str, Any]) -> Section:
    """The table of shares, and the picture where the machine's ceilings are known."""
    lines = tuple(
        Line(
            (
                *cells(each.model, each.phase),
                Cell(f"{each.flops_per_byte:.3g}", each.flops_per_byte),
                Cell(f"{each.flops_per_s / 1e12:.3g}", each.flops_per_s),
                milliseconds(each.measured_ms),
                milliseconds(each.limit_ms),
                Cell("-" if each.share is None else f"{each.share:.1%}", each.share),
                Cell(each.bound or "-"),
            ),
            each.model,
            each.phase,
        )
        for each in points
    )
    table = Table(
        "roofline",
        "How near each phase comes to what this machine was seen to do at best.",
        ("model", "phase", "FLOP a byte", "TFLOP/s", "measured ms", "limit ms", "share", "bound by"),
        lines,
        frozenset(range(2, 7)),
    )
    rates = ceilings.get("matrix_flops_per_s") or {}
    dtype = "tf32" if options.get("tf32") and points[0].dtype == "fp32" else points[0].dtype
    peak, bandwidth = rates.get(dtype), ceilings.get("copy_bytes_per_s")
    pictures: tuple[Picture, ...] = ()
    if peak and bandwidth:
        words = f"Ceilings measured here: {peak / 1e12:.3g} TFLOP/s in {dtype}, {bandwidth / 1e12:.3g} TB/s."
        draw = partial(_draw, tuple(points), float(peak), float(bandwidth), dtype)
        pictures = (Picture("roofline", f"Roofline, {dtype}", words, draw, wide=True),)
    return Section("roofline", "Roofline", tables=(table,), pictures=pictures)


def _draw(points: Sequence[Point], peak: float, bandwidth: float, dtype: str) -> Figure:
    import numpy as np

    with vector.styled():
        drawn = vector.figure(10, 4.2, fitted=True)
        axes = drawn.subplots()
        ridge = peak / bandwidth
        places = [each.flops_per_byte for each in points]
        low, high = min([ridge, *places]) / 4, max([ridge, *places]) * 6
        intensity = np.geomspace(low, high, 200)
        axes.plot(intensity, np.minimum(intensity * bandwidth, peak) / 1e12, color=vector.INK, linewidth=1.4)
        axes.annotate(f"{peak / 1e12:.3g} TFLOP/s {dtype}", (high, peak / 1e12), ha="right", va="bottom")
        axes.annotate(
            f"{bandwidth / 1e12:.3g} TB/s", (low, low * bandwidth / 1e12), ha="left", va="bottom", xytext=(6, 4),
            textcoords="offset points",
        )  # fmt: skip
        for phase, mark in MARKS.items():
            here = [each for each in points if each.phase == phase]
            if here:
                axes.plot(
                    [each.flops_per_byte for each in here], [each.flops_per_s / 1e12 for each in here], mark,
                    color=vector.PHASE_COLOURS[phase], label=phase, markersize=6,
                )  # fmt: skip
        for phase in MARKS:
            _name(axes, [each for each in points if each.phase == phase])
        vector.scale_log(axes.xaxis)
        vector.scale_log(axes.yaxis)
        axes.set_xlabel("FLOP a byte")
        axes.set_ylabel("TFLOP/s")
        axes.legend(frameon=False, loc="lower right")
    return drawn


def _name(axes: Any, points: Sequence[Point]) -> None:
    """The models beside their marks, the forward's on the left; names that would meet move down a line."""
    above, down = math.inf, 0
    for each in sorted(points, key=lambda each: -each.flops_per_s):
        down = down + 1 if above / each.flops_per_s < MEETING * 1.06**down else 0
        if not down:
            above = each.flops_per_s
        left = each.phase == "forward"
        axes.annotate(
            plain(each.model)[:24],
            (each.flops_per_byte, each.flops_per_s / 1e12),
            xytext=(-7 if left else 7, -3 - 9 * down),
            textcoords="offset points",
            ha="right" if left else "left",
            fontsize=8,
        )
