"""Where each model of a sweep is fastest: a table, and for each phase a map over the swept sizes. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fastrnns import sweep
from fastrnns.archive import winners
from fastrnns.archive.compare import MARGIN as LEAST
from fastrnns.archive.winners import Cell as Winner
from fastrnns.present import winners as present
from fastrnns.report.page import Line, Picture, Section, Table, cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ("sizes", "phase", "fastest", "ms", "next", "slower by", "95 % interval", "")
INCHES, MARGIN = 1.1, 1.6  # of a cell, and around the map


def section(record: Mapping[str, Any]) -> Section | None:
    """The sweep's answer, or None for a record of one problem."""
    if not (record["options"] or {}).get("sweep"):
        return None
    found = winners.cells(record["results"])
    if not found:
        return None
    said = " ".join(f"{sentence}." for sentence in winners.summary(found, record["results"]))
    lines = tuple(
        Line(cells(*present.line(row)), row[1].model, phase=row[1].phase) for row in present.named(found)
    )
    caption = (
        f"A model is the fastest where it is more than {LEAST:.0%} ahead of every other beyond doubt; else it"
        f" is a tie. {said}"
    )
    table = Table("winners", caption, COLUMNS, lines)
    maps = dict.fromkeys((cell.phase, cell.family) for cell in found)
    pictures = tuple(picture for phase, family in maps if (picture := _map(found, phase, family)))
    return Section("winners", "Where each model wins", tables=(table,), pictures=pictures)


def _map(found: Sequence[Winner], phase: str, family: str | None) -> Picture | None:
    """A map over the first two sizes that take several values each on their own."""
    here = [
        (sweep.sizes_of(cell.point), cell) for cell in found if (cell.phase, cell.family) == (phase, family)
    ]
    several = family is not None and len({cell.family for cell in found}) > 1
    names = [name for name in here[0][0] if len({sizes[name] for sizes, _ in here}) > 1]
    across = names[:1]
    down = [name for name in names[1:] if _free(name, across[0], here)][:1] if across else []
    values = [sorted({sizes[name] for sizes, _ in here}) for name in (across + down)]
    if not across or len(here) != len(values[0]) * (len(values[1]) if down else 1):
        return None  # more sizes than a map has sides: the table has them all
    words = "; ".join(
        f"{cell.point}: {cell.model}{' (tie)' if cell.verdict == winners.TIE else ''}" for _, cell in here
    )
    title = f"Fastest model, {phase.replace('_', ' ')}" + (f", {family}" if several else "")
    name = f"winners-{phase}" + (f"-{family}" if several else "")
    return Picture(name, title, f"{title}. {words}", lambda: _draw(here, across, down, values), phase=phase)


def _free(name: str, other: str, here: Sequence[tuple[Mapping[str, int], Winner]]) -> bool:
    """Whether a size takes several values while another stands still."""
    first = here[0][0][other]
    return len({sizes[name] for sizes, _ in here if sizes[other] == first}) > 1


def _draw(
    here: Sequence[tuple[Mapping[str, int], Winner]],
    across: Sequence[str],
    down: Sequence[str],
    values: Sequence[Sequence[int]],
) -> Figure:
    from matplotlib import colormaps
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    models = list(dict.fromkeys(cell.model for _, cell in here))
    columns, rows = values[0], values[1] if down else [0]
    made = Figure(figsize=(MARGIN + INCHES * len(columns), MARGIN + INCHES * len(rows)))
    axes = made.subplots()
    shades = colormaps["Set3"]
    for sizes, cell in here:
        x, y = columns.index(sizes[across[0]]), rows.index(sizes[down[0]]) if down else 0
        tie = cell.verdict != winners.FASTEST
        colour = shades(models.index(cell.model) % shades.N)
        axes.add_patch(
            Rectangle(
                (x - 0.5, y - 0.5), 1, 1, facecolor=colour, hatch="///" if tie else None, edgecolor="white"
            )
        )
        by = "" if cell.ratio is None else f"\nx{cell.ratio:.2f}"
        axes.text(
            x,
            y,
            f"{cell.model}{by}{' tie' if tie else ''}",
            ha="center",
            va="center",
            fontsize=7,
            color="black",
        )
    axes.set_xlim(-0.5, len(columns) - 0.5)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    axes.set_xticks(range(len(columns)), list(map(str, columns)))
    axes.set_yticks(range(len(rows)), list(map(str, rows)) if down else [""])
    axes.set_xlabel(across[0])
    axes.set_ylabel(down[0] if down else "")
    made.tight_layout()
    return made
