"""Summaries of timing samples and their intervals: numbers in, numbers out.

A process is the unit of replication. Iterations of one process share its memory layout, its JIT profile and
its moment on the machine, and they are autocorrelated, so that pooling them makes an interval look far
narrower than it is (Kalibera and Jones, ISMM 2013; Georges, Buytaert and Eeckhout, OOPSLA 2007).

SciPy is imported where it is needed, and only `scipy.special` for the everyday intervals: `scipy.stats` takes
a second to import.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Samples = Sequence[Sequence[float]]  # one list of iterations a process

CONFIDENCE = 0.95
BOOTSTRAP_RESAMPLES = 9999  # Davison and Hinkley 1997, section 5.2: R + 1 a multiple of 1/alpha
BOOTSTRAP_SEED = 20070131
MIN_BOOTSTRAP_PROCESSES = 5  # with fewer there are too few distinct resamples for a 95 % interval
MAX_EXCLUDED = 0.2  # of a process's iterations; more is no longer a few disturbed samples

MIN_ORDER_PROCESSES = 5  # from here the order statistics of the process medians make an interval

METHOD_PROCESSES = "order statistics of the per-process medians, interpolated"
METHOD_FEW_PROCESSES = "t interval on the log of the per-process medians"
METHOD_WITHIN = "order statistics of the iterations of one process; covers within-process variation only"
METHOD_NONE = "no interval: too few independent samples"
METHOD_WIDE = "no interval: the processes do not agree on the order of magnitude"
WIDEST = 10.0  # high over low: an interval wider than that is no knowledge, and reads as if it were


@dataclass(frozen=True)
class Interval:
    """A two-sided interval and how it was made."""

    low: float
    high: float
    method: str


def measured(samples: Samples, excluded: Sequence[Sequence[int]] | None = None) -> list[list[float]]:
    """The finite, positive samples of each process, less those the watch saw the machine disturb.

    `excluded` holds iteration numbers, one list a process, as the watch reported them: nothing is dropped for
    its value. A process which would lose more than MAX_EXCLUDED of its iterations keeps them all.
    Processes that measured nothing vanish.
    """
    kept: list[list[float]] = []
    for index, series in enumerate(samples):
        skip = set(excluded[index]) if excluded is not None and index < len(excluded) else set()
        if len(skip) > MAX_EXCLUDED * len(series):
            skip = set()
        values = [
            float(value)
            for number, value in enumerate(series)
            if number not in skip and math.isfinite(value) and value >= 0
        ]
        if values:
            kept.append(values)
    return kept


def process_medians(samples: Samples) -> list[float]:
    """The median of each process: robust to spikes, and one number a replicate."""
    return [statistics.median(series) for series in samples if len(series)]


def log_medians(samples: Samples) -> list[float]:
    """Logarithms of the per-process medians; a median of zero measures nothing and is left out."""
    return [math.log(median) for median in process_medians(samples) if median > 0]


def t_quantile(probability: float, degrees: float) -> float:
    """Quantile of Student's t distribution (SciPy's stdtrit, after Cephes)."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def t_tail(statistic: float, degrees: float) -> float:
    """Upper tail probability of Student's t distribution (SciPy's stdtr)."""
    from scipy.special import stdtr

    return float(stdtr(degrees, -statistic))


def log_t_interval(medians: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Student's t interval for the centre of the process medians, made on the log scale.

    exp(mean(x) -+ t(1 - alpha/2, n - 1) * s / sqrt(n)) with x the logs: times are positive and skewed to the
    right, and ratios are what is asked about (Box, Hunter and Hunter 2005, chapter 3; processes as the level
    of replication: Kalibera and Jones 2013).
    """
    logs = [math.log(median) for median in medians if median > 0]
    if len(logs) < 2 or len(logs) < len(medians):
        return None
    half = t_quantile((1 + confidence) / 2, len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs))
    centre = statistics.fmean(logs)
    return math.exp(centre - half), math.exp(centre + half)


def median_interval(medians: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Interval for the median over processes, free of any distribution, interpolated on the log scale.

    Hettmansperger and Sheather 1986 ("Confidence intervals based on interpolated order statistics"): between
    the two pairs of order statistics whose binomial coverage lies around the one asked for. Preferred to
    Student's t because processes fall into modes (memory layout, another algorithm) and single ones are
    disturbed: there the t interval covers as little as 70 % with five processes, this one what it says
    (tests/benchmarks/simulate.py). Five processes give 93.75 %, their smallest and largest; fewer give None.
    """
    from scipy.special import bdtr

    ordered = [math.log(median) for median in sorted(medians) if median > 0]
    count = len(ordered)
    if count < MIN_ORDER_PROCESSES or count < len(medians):
        return None

    def coverage(rank: int) -> float:
        return 1 - 2 * float(bdtr(rank - 1, count, 0.5))

    rank = 1
    while rank + 1 <= count // 2 and coverage(rank + 1) >= confidence:
        rank += 1
    low, high = ordered[rank - 1], ordered[count - rank]
    outer = coverage(rank)
    if outer > confidence and rank + 1 <= count // 2:
        excess = (outer - confidence) / (outer - coverage(rank + 1))
        weight = (count - rank) * excess / (rank + (count - 2 * rank) * excess)
        low += weight * (ordered[rank] - low)
        high += weight * (ordered[count - rank - 1] - high)
    return math.exp(low), math.exp(high)


def autocorrelation(series: Sequence[float]) -> float:
    """Lag-1 autocorrelation r1 (Box and Jenkins), clipped to [0, 0.99].

    Computed on deviations from the median, each clipped at three scaled median absolute deviations, for one
    spike would otherwise hide the correlation of all others.
    """
    if len(series) < 4:
        return 0.0
    centre = statistics.median(series)
    scale = 1.4826 * statistics.median(abs(value - centre) for value in series)
    if scale == 0:
        return 0.0
    deviations = [max(-3 * scale, min(3 * scale, value - centre)) for value in series]
    total = sum(deviation * deviation for deviation in deviations)
    if total == 0:
        return 0.0
    pairs = itertools.pairwise(deviations)
    return min(0.99, max(0.0, sum(first * second for first, second in pairs) / total))


def order_interval(series: Sequence[float], confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Distribution-free interval for the median of one process from its order statistics.

    Ranks from the binomial distribution with p = 1/2 (Hahn and Meeker 1991, section 5.2), at the effective
    sample size n (1 - r1) / (1 + r1) of an AR(1) series. Below six independent values there is none at 95 %.
    """
    from scipy.special import bdtr

    ordered = sorted(series)
    count = len(ordered)
    r1 = autocorrelation(series)
    effective = max(1, math.floor(count * (1 - r1) / (1 + r1)))
    lower = -1  # largest rank with P(Binomial(effective, 1/2) <= rank) <= alpha / 2
    while lower + 1 < effective and float(bdtr(lower + 1, effective, 0.5)) <= (1 - confidence) / 2:
        lower += 1
    if lower < 0:
        return None
    rank = min(count // 2, math.floor((lower + 1) / effective * count))  # as a share of the whole series
    rank = max(1, rank)
    return ordered[rank - 1], ordered[count - rank]


def interval(samples: Samples, confidence: float = CONFIDENCE) -> Interval | None:
    """The interval of the location: over processes where there are several, within the only one otherwise."""
    medians = process_medians(samples)
    if len(medians) >= MIN_ORDER_PROCESSES:
        bounds = median_interval(medians, confidence)
        return None if bounds is None else Interval(*bounds, METHOD_PROCESSES)
    if len(medians) >= 2:
        bounds = log_t_interval(medians, confidence)
        if bounds is None:
            return None
        # The median and the mean of the logs part where processes fall in unequal groups: cover both.
        centre = statistics.median(medians)
        return Interval(min(bounds[0], centre), max(bounds[1], centre), METHOD_FEW_PROCESSES)
    if len(medians) == 1:
        bounds = order_interval(next(series for series in samples if len(series)), confidence)
        return None if bounds is None else Interval(*bounds, METHOD_WITHIN)
    return None


def summarise(samples: Samples, excluded: Sequence[Sequence[int]] | None = None) -> dict[str, Any]:
    """Location, interval and spread of one phase of one model, in the unit of the samples.

    median: the median of the per-process medians. ci95: see `interval`, named by method. mean, min and n:
    over all iterations that count. std: of all iterations (n - 1), null for a single one.
    """
    kept = measured(samples, excluded)
    pooled = [value for series in kept for value in series]
    if not pooled:
        empty: dict[str, Any] = dict.fromkeys(("median", "ci95", "mean", "std", "min"))
        return {**empty, "n": 0, "method": METHOD_NONE}
    bounds = interval(kept)
    few = bounds is not None and bounds.method == METHOD_FEW_PROCESSES
    wide = few and bounds is not None and bounds.high > WIDEST * bounds.low
    if wide:
        bounds = None
    return {
        "median": statistics.median(process_medians(kept)),
        "ci95": None if bounds is None else [bounds.low, bounds.high],
        "mean": statistics.fmean(pooled),
        "std": statistics.stdev(pooled) if len(pooled) > 1 else None,
        "min": min(pooled),
        "n": len(pooled),
        "method": METHOD_WIDE if wide else METHOD_NONE if bounds is None else bounds.method,
    }


def bootstrap_interval(samples: Samples, confidence: float = CONFIDENCE) -> tuple[float, float] | None:
    """Cluster bootstrap over processes, to check the interval with: percentiles of the median of the medians.

    Whole processes are drawn, for the iterations inside one are not independent (Davison and Hinkley 1997,
    section 3.8; scipy.stats.bootstrap). The seed is fixed: the same record gives the same answer.
    """
    logs = log_medians(measured(samples))
    if len(logs) < MIN_BOOTSTRAP_PROCESSES or max(logs) == min(logs):
        return None
    import numpy as np
    from scipy.stats import bootstrap

    result = bootstrap(
        (np.asarray(logs),),
        np.median,
        n_resamples=BOOTSTRAP_RESAMPLES,
        confidence_level=confidence,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    )
    low, high = result.confidence_interval
    return math.exp(float(low)), math.exp(float(high))
