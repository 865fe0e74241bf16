"""Where each model of a sweep is fastest: a table for a person, and a sentence a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastrnns.archive import winners
from fastrnns.archive.winners import Cell
from fastrnns.present.table import SHORT, aligned, number

HOW = {
    winners.FASTEST: "",
    winners.TIE: "tie",
    winners.ALONE: "no other ran",
    winners.UNTOLD: "one process: not judged",
}


def text(results: Sequence[Mapping[str, Any]]) -> str:
    """The table and the sentences of a sweep's results; empty where nothing was timed."""
    found = winners.cells(results)
    if not found:
        return ""
    lines: list[tuple[str, ...]] = [("point", "phase", "fastest", "ms", "next", "slower by", "95 %", "")]
    lines += [line(cell) for cell in found]
    return "\n".join((aligned(lines, left={0, 1, 2, 4, 7}), "", *winners.summary(found)))


def line(cell: Cell) -> tuple[str, ...]:
    """One point and phase as cells of the table."""
    by = "" if cell.ratio is None else f"{cell.ratio - 1:.1%}"
    bounds = "" if cell.ci95 is None else f"{cell.ci95[0] - 1:+.1%} {cell.ci95[1] - 1:+.1%}"
    phase = SHORT.get(cell.phase, cell.phase)
    return (
        cell.point, phase, cell.model, number(cell.median_ms), cell.next_model or "", by, bounds, HOW[cell.verdict]
    )  # fmt: skip
