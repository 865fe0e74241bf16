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
    """The table and the sentences of a sweep's results; the sentences alone where nothing was timed."""
    found = winners.cells(results)
    said = winners.summary(found, results)
    if not found:
        return "\n".join(said)
    lines: list[tuple[str, ...]] = [("point", "phase", "fastest", "ms", "next", "slower by", "95 %", "")]
    lines += [line(cell) for cell in named(found)]
    return "\n".join((aligned(lines, left={0, 1, 2, 4, 7}), "", *said))


def named(found: Sequence[Cell]) -> list[tuple[str, Cell]]:
    """Each cell with the name of its row: the point, and the family where there are several."""
    several = len({cell.family for cell in found}) > 1
    return [(f"{cell.point} {cell.family or ''}".rstrip() if several else cell.point, cell) for cell in found]


def line(row: tuple[str, Cell]) -> tuple[str, ...]:
    """One point and phase as cells of the table."""
    name, cell = row
    by = "" if cell.ratio is None else f"{cell.ratio - 1:.1%}"
    bounds = "" if cell.ci95 is None else f"{cell.ci95[0] - 1:+.1%} {cell.ci95[1] - 1:+.1%}"
    phase = SHORT.get(cell.phase, cell.phase)
    return (
        name, phase, cell.model, number(cell.median_ms), cell.next_model or "", by, bounds, HOW[cell.verdict]
    )  # fmt: skip
