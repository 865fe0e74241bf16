"""The difference between two sets of processes on the log scale: estimate, interval, p values. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fastrnns.measure import stats

LEAST_ERROR = 1e-4  # standard error of a log time: clocks resolve no better, identical processes or not


@dataclass(frozen=True)
class Estimate:
    """A difference of log times, its standard error and degrees of freedom."""

    log_ratio: float
    error: float
    degrees: float

    def interval(self, confidence: float = stats.CONFIDENCE) -> tuple[float, float]:
        """Of the ratio: exp(d -+ t se)."""
        half = stats.t_quantile((1 + confidence) / 2, self.degrees) * self.error
        return math.exp(self.log_ratio - half), math.exp(self.log_ratio + half)

    def p_different(self) -> float:
        """Two-sided p of no difference."""
        return min(1.0, 2 * stats.t_tail(abs(self.log_ratio) / self.error, self.degrees))

    def p_outside(self, margin: float) -> float:
        """P of a difference of at least `margin`: the larger of two one-sided tests (Schuirmann 1987)."""
        return stats.t_tail((math.log1p(margin) - abs(self.log_ratio)) / self.error, self.degrees)


def holm(values: Sequence[float]) -> list[float]:
    """P values adjusted for their number by Holm's step-down procedure (1979), in the order given."""
    order = sorted(range(len(values)), key=lambda index: values[index])
    adjusted = [0.0] * len(values)
    highest = 0.0
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(values) - rank) * values[index]))
        adjusted[index] = highest
    return adjusted


def welch(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """Difference of two means of unequal variance (Welch 1947; degrees of freedom by Satterthwaite 1946)."""
    parts = [(statistics.variance(side) / len(side), len(side) - 1) for side in (base, new)]
    variance = sum(part for part, _ in parts)
    degrees = float(len(base) + len(new) - 2)
    if variance > 0:
        degrees = variance**2 / sum(part**2 / free for part, free in parts)
    return Estimate(
        statistics.fmean(new) - statistics.fmean(base), max(LEAST_ERROR, math.sqrt(variance)), degrees
    )


def pairwise(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """Mean of the differences pair by pair: what drifts hits both alike and cancels (Student 1908)."""
    differences = [second - first for first, second in zip(base, new, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    return Estimate(statistics.fmean(differences), max(LEAST_ERROR, error), len(differences) - 1)


def from_noise(base: Sequence[float], new: Sequence[float], deviation: float, degrees: float) -> Estimate:
    """The difference of means with a noise known from elsewhere: what one process a side can be judged by."""
    error = deviation * math.sqrt(1 / len(base) + 1 / len(new))
    return Estimate(statistics.fmean(new) - statistics.fmean(base), max(LEAST_ERROR, error), degrees)
