"""The difference between two sets of processes on the log scale: estimate, interval, p values. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from fastrnns.measure import stats

LEAST_ERROR = 1e-4  # standard error of a log time: clocks resolve no better, identical processes or not

TRIM = 0.2  # at each end
MIN_TRIMMED = 14  # processes a side; of ten, two modes gave 0.9 % false alarms in place of 0.7
CLEARLY = 0.9  # of the other interval's width: to choose by chance would cost false alarms
SHARP = 0.9975  # the widths are compared at the level at which differences are judged


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


def unpaired(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """The difference of two sets of processes: of their means (Welch), or of their trimmed means where that tells more.

    Yuen (1974): means of which a fifth is trimmed at each end, with Winsorised variances, in Welch's form. A process
    now and then is 10 % slower than its siblings (one in ten on an H200 in a virtual machine): in a mean it hides any
    small difference. Where processes fall into two modes the mean tells more. Which of the two is taken is decided by
    the width of its interval, never by the difference; of few processes trimming would leave too few
    (false alarms and power of both: tests/benchmarks/simulate.py).
    """
    plain = welch(base, new)
    if min(len(base), len(new)) < MIN_TRIMMED:
        return plain
    (base_mean, *base_part), (new_mean, *new_part) = _trimmed(base), _trimmed(new)
    variance = base_part[0] + new_part[0]
    degrees = base_part[1] + new_part[1]
    if variance > 0:
        degrees = variance**2 / sum(part**2 / free for part, free in (base_part, new_part))
    return _sharper(plain, Estimate(new_mean - base_mean, max(LEAST_ERROR, math.sqrt(variance)), degrees))


def pairwise(base: Sequence[float], new: Sequence[float]) -> Estimate:
    """The differences pair by pair: what drifts hits both alike and cancels (Student 1908).

    Or their trimmed mean (Tukey and McLaughlin 1963), where `unpaired` would take one.
    """
    differences = [second - first for first, second in zip(base, new, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences))
    plain = Estimate(statistics.fmean(differences), max(LEAST_ERROR, error), len(differences) - 1)
    if len(differences) < MIN_TRIMMED:
        return plain
    mean, variance, degrees = _trimmed(differences)
    return _sharper(plain, Estimate(mean, max(LEAST_ERROR, math.sqrt(variance)), degrees))


def _sharper(plain: Estimate, trimmed: Estimate) -> Estimate:
    """The trimmed one where its interval is clearly narrower."""
    widths = [stats.t_quantile(SHARP, each.degrees) * each.error for each in (plain, trimmed)]
    return trimmed if widths[1] < CLEARLY * widths[0] else plain


def _trimmed(values: Sequence[float]) -> tuple[float, float, float]:
    """Trimmed mean, its squared standard error, degrees of freedom: (n - 1) s_w^2 / (h (h - 1)), h - 1."""
    ordered = sorted(values)
    cut = int(TRIM * len(ordered))
    kept = ordered[cut : len(ordered) - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    left = len(kept)
    error = (len(ordered) - 1) * statistics.variance(winsorised) / (left * (left - 1))
    return statistics.fmean(kept), error, left - 1.0


def from_noise(base: Sequence[float], new: Sequence[float], deviation: float, degrees: float) -> Estimate:
    """The difference of means with a noise known from elsewhere: what one process a side can be judged by."""
    error = deviation * math.sqrt(1 / len(base) + 1 / len(new))
    return Estimate(statistics.fmean(new) - statistics.fmean(base), max(LEAST_ERROR, error), degrees)
