"""What the comparison of a version with the good one says in a bisection: good, bad, or not decided, and why. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fastrnns.archive.comparable import sentence
from fastrnns.archive.compare import FASTER, SAME, SLOWER, Comparison, Row
from fastrnns.matrix.bisection import BAD, GOOD, UNDECIDED, Answer

HALF = 0.5  # of the whole slowdown: what lies nearer to the good version than to the bad one is good


@dataclass(frozen=True)
class Slowdown:
    """What a bisection looks for: which times the bad version has slower, and from where on a version is bad."""

    rows: tuple[tuple[str, str, float], ...]  # model, phase, bad over good
    margin: float  # relative to the good version

    def __str__(self) -> str:
        """Name the times and the limit."""
        named = ", ".join(f"{model} {phase} ({ratio - 1:+.1%})" for model, phase, ratio in self.rows)
        return f"{named}; bad is slower than the good one by more than {self.margin:.1%}"


def slowdown(comparison: Comparison, margin: float | None, least: float) -> Slowdown | None:
    """What is slower in the bad version; None where nothing is shown to be.

    Of several times those are looked at that show at least half of the greatest slowdown, on the log scale. The limit
    is half of what these are slower at least, the lower end of the 95 % interval, since what was just found to be
    slower looks slower than it is; but it is not below `least`, unless a `margin` was asked for.
    """
    slower = [row for row in comparison.rows if row.verdict == SLOWER and row.ratio is not None]
    if not slower:
        return None
    logs = {(row.model, row.phase): math.log(row.ratio or 1.0) for row in slower}
    greatest = max(logs.values())
    chosen = {key: value for key, value in logs.items() if value >= HALF * greatest}
    lows = [row.ci95[0] for row in slower if row.ci95 is not None and (row.model, row.phase) in chosen]
    limit = (
        max(least, math.expm1(HALF * math.log(max(1.0, min(lows, default=1.0)))))
        if margin is None
        else margin
    )
    return Slowdown(tuple((*key, math.exp(value)) for key, value in chosen.items()), limit)


def judged(comparison: Comparison, wanted: Slowdown) -> tuple[Answer, str]:
    """One version against the good one, and the reason in words."""
    if comparison.refusals and not comparison.forced:
        return UNDECIDED, f"not comparable: {sentence(list(comparison.refusals))}"
    keys = {(model, phase) for model, phase, _ in wanted.rows}
    rows = [row for row in comparison.rows if (row.model, row.phase) in keys]
    if slower := [row for row in rows if row.verdict == SLOWER]:
        return BAD, _told(slower)
    if len(rows) == len(keys) and all(row.verdict in {SAME, FASTER} for row in rows):
        return GOOD, _told(rows)
    open_ = [row for row in rows if row.verdict not in {SAME, FASTER}]
    return UNDECIDED, _told(open_) if open_ else "it was not measured"


def _told(rows: Sequence[Row]) -> str:
    return "; ".join(
        f"{row.model} {row.phase} {row.verdict}"
        + ("" if row.ratio is None else f" ({row.ratio - 1:+.1%})")
        + (f": {row.reason}" if row.reason else "")
        for row in rows
    )


def hopeless(comparison: Comparison, wanted: Slowdown) -> bool:
    """Whether more processes would not tell either: a model failed in that version."""
    keys = {model for model, _, _ in wanted.rows}
    return any(row.failed and row.model in keys for row in comparison.rows)
