"""The answer as people read it: versions side by side, the steps between neighbours, the end of a bisection. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastrnns.archive import comparable, history
from fastrnns.archive.comparable import Difference
from fastrnns.archive.compare import FASTER, SLOWER, Comparison, Row
from fastrnns.archive.history import Point, Series, Step
from fastrnns.present.table import aligned, number

HEADINGS = ("model", "phase", "version", "ms", "to the first", "95 % interval", "verdict")
LEFT = frozenset({0, 1, 2, 6})
Records = Mapping[str, Mapping[str, Any]]  # by the version's label, in order
FIRST = ("torch", "python", "packages.torch")  # named first among the software that changed


def side_by_side(records: Records, against: Sequence[Comparison]) -> str:
    """One line for each model, phase and version; `against` holds each later version against the first."""
    lines: list[tuple[str, ...]] = [HEADINGS]
    labels = list(records)
    for model, phase in dict.fromkeys((row.model, row.phase) for each in against for row in each.rows):
        levels = [median_ms(records[label], model, phase) for label in labels]
        rows = [row_of(each, model, phase) for each in against]
        lines.append((model, phase, labels[0], number(levels[0]), "", "", ""))
        lines += [
            ("", "", label, number(level), *_cells(row))
            for label, level, row in zip(labels[1:], levels[1:], rows, strict=True)
        ]
    said: dict[str, list[str]] = {}
    for label, each in zip(labels[1:], against, strict=True):
        for row in each.rows:
            if row.reason:
                said.setdefault(f"{label}: {row.reason}", []).append(f"{row.model} {row.phase}")
    return "\n".join([aligned(lines, LEFT), *(f"{', '.join(names)}, {why}" for why, names in said.items())])


def row_of(comparison: Comparison, model: str, phase: str) -> Row | None:
    """The row of one model and phase."""
    return next((row for row in comparison.rows if (row.model, row.phase) == (model, phase)), None)


def median_ms(record: Mapping[str, Any], model: str, phase: str) -> float | None:
    """The median of one model and phase in a record, comparable or not; None where it was not measured."""
    for result in record.get("results") or ():
        if result["model"] == model and result.get(phase):
            found: float | None = result[phase]["median"]
            return found
    return None


def _cells(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ("-", "-", "not measured")
    return (
        "-" if row.ratio is None else f"{row.ratio:.4f}",
        "-" if row.ci95 is None else f"{row.ci95[0]:.4f}-{row.ci95[1]:.4f}",
        row.verdict + (f" ({row.field})" if row.field else ""),
    )


def steps(records: Records, neighbours: Sequence[Comparison]) -> list[Series]:
    """The series of `archive history` with versions for points; a step is what `compare` says of two neighbours.

    `neighbours` holds each version against the one before it. The changepoints of a history learn the noise from many
    records; here are few, each with its own intervals, which say more.
    """
    labels, found = list(records), []
    for model, phase in dict.fromkeys((row.model, row.phase) for each in neighbours for row in each.rows):
        rows = [row_of(each, model, phase) for each in neighbours]
        levels = [median_ms(records[label], model, phase) for label in labels]
        points = [
            Point(f"{label} ({records[label]['id']})", str(records[label]["started_at"]), level)
            if level is not None
            else None
            for label, level in zip(labels, levels, strict=True)
        ]
        changes = []
        for index, row in enumerate(rows):
            before, after = points[index], points[index + 1]
            if row is None or row.verdict not in {SLOWER, FASTER} or before is None or after is None:
                continue
            software = changed(records[labels[index]], records[labels[index + 1]])
            changes.append(Step(before, after, row.ratio or math.nan, tuple(software)))
        known = tuple(point for point in points if point is not None)
        if known:
            setting = history.setting(records[labels[0]])
            found.append(Series(model, phase, setting, known, tuple(changes)))
    return found


def changed(base: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """What differs in the software, torch and Python before all packages that came with them."""
    found = comparable.software_changes(base, new)
    return sorted(found, key=lambda each: not each.field.startswith(FIRST))
