"""A comparison as a table for people, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from fastrnns.archive.compare import NOT_COMPARABLE, Comparison, Row
from fastrnns.present.table import aligned, number

HEADINGS = ("model", "phase", "base ms", "new ms", "ratio", "95 % interval", "margin", "verdict")
LEFT = frozenset({0, 1, 7})  # columns of words
SHOWN_SOFTWARE = 12


def text(comparison: Comparison) -> str:
    """The table, then what a reader must know beside it."""
    lines = aligned([HEADINGS, *(_cells(row) for row in comparison.rows)], LEFT)
    return "\n".join([lines, *_beside(comparison)])


def markdown(comparison: Comparison) -> str:
    """The same for a pull request: a GitHub table."""
    lines = [
        f"**{comparison.overall}**: `{comparison.new_id}` against `{comparison.base_id}`",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "|".join(" --- " if column in LEFT else " ---: " for column in range(len(HEADINGS))) + "|",
    ]
    lines += ["| " + " | ".join(_escaped(cell) for cell in _cells(row)) + " |" for row in comparison.rows]
    beside = _beside(comparison)
    return "\n".join([*lines, *([""] if beside else []), *(f"- {_escaped(line)}" for line in beside)])


def _escaped(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", " ")


def _cells(row: Row) -> tuple[str, ...]:
    verdict = row.verdict
    if row.field:
        verdict += f" ({row.field})"
    return (
        row.model,
        row.phase,
        number(row.base_ms),
        number(row.new_ms),
        "-" if row.ratio is None else f"{row.ratio:.4f}",
        "-" if row.ci95 is None else f"{row.ci95[0]:.4f}-{row.ci95[1]:.4f}",
        "-" if row.margin is None else f"{row.margin * 100:.2g} %",
        verdict,
    )


def _beside(comparison: Comparison) -> Sequence[str]:
    lines = []
    if comparison.forced:
        lines.append(
            "FORCED: these records are not comparable; what differs beside the code may explain it all"
        )
    if comparison.reference:
        lines.append(f"times are relative to {comparison.reference} in the same record")
    said: dict[str, list[str]] = {}
    for row in comparison.rows:
        if row.reason and not (row.verdict == NOT_COMPARABLE and comparison.refusals):
            said.setdefault(row.reason, []).append(f"{row.model} {row.phase}")
    lines += [f"{', '.join(names)}: {reason}" for reason, names in said.items()]
    if comparison.software and not (comparison.refusals and not comparison.forced):
        shown = ", ".join(str(change) for change in comparison.software[:SHOWN_SOFTWARE])
        more = len(comparison.software) - SHOWN_SOFTWARE
        lines.append(f"software that changed: {shown}" + (f" and {more} more" if more > 0 else ""))
    return [*lines, *comparison.notes]
