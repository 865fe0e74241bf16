"""How often a machine compared with itself would be called faster or slower, from its calibration."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from fastrnns.archive import compare
from fastrnns.archive.calibration import Noise
from fastrnns.measure.difference import Estimate, welch

MARGINS = (0.0, 0.005, 0.01, 0.02, 0.03, 0.05)
RESAMPLES = 1000
SEED = 20070131


@dataclass(frozen=True)
class Alarms:
    """Share of A/A comparisons called faster or slower; None where there are too few processes."""

    margin: float
    interleaved: float | None  # processes of the two sides drawn from all, in turns
    apart: float | None  # one run after another
    with_floor: float | None  # apart, the margin raised to the machine's floor as compare does


def false_alarms(
    logs: Sequence[float], processes: int, noise: Noise | None, margins: Sequence[float] = MARGINS
) -> list[Alarms]:
    """Resample two sides of so many processes from log medians in their order of time, and judge them.

    The draws overlap, so that the rates are those of this one calibration and no binomial interval belongs to
    them.
    """
    rng = random.Random(SEED)  # noqa: S311 - a simulation
    mixed = [] if len(logs) < 2 * processes else [_mixed(logs, processes, rng) for _ in range(RESAMPLES)]
    starts = range(len(logs) - processes + 1)
    apart = [
        welch(logs[first : first + processes], logs[second : second + processes])
        for first, second in itertools.combinations(starts, 2)
        if second - first >= processes
    ]
    floor = 0.0 if noise is None else noise.floor(processes, processes)
    return [
        Alarms(margin, _rate(mixed, margin), _rate(apart, margin), _rate(apart, max(margin, floor)))
        for margin in margins
    ]


def _mixed(logs: Sequence[float], processes: int, rng: random.Random) -> Estimate:
    chosen = rng.sample(range(len(logs)), 2 * processes)
    return welch([logs[index] for index in chosen[:processes]], [logs[index] for index in chosen[processes:]])


def _rate(estimates: Sequence[Estimate], margin: float) -> float | None:
    if not estimates:
        return None
    row = compare.Row("", "", "forward", compare.INCONCLUSIVE, margin=margin)
    verdicts = [
        compare.decide(row, estimate, estimate.p_different(), estimate.p_outside(margin)).verdict
        for estimate in estimates
    ]
    return sum(verdict in {compare.FASTER, compare.SLOWER} for verdict in verdicts) / len(estimates)
