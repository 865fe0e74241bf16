"""How many iterations a process and how many processes: chosen from the variance seen at each level.

Kalibera and Jones, "Rigorous benchmarking in reasonable time" (ISMM 2013): repeat where the uncertainty is.
The number of processes is decided at planned looks, on the width of the interval only: stopping on a p-value
would find differences by looking often enough.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fastrnns.measure import stats
from fastrnns.measure.plan import Choice

LOOKS = (5, 7, 10, 14, 20, 28, 40)  # numbers of processes at which to stop or go on
MIN_PROCESSES, MAX_PROCESSES = LOOKS[1], LOOKS[-1]
MIN_ITERATIONS, MAX_ITERATIONS = 10, 100
MEDIAN_VARIANCE = (
    math.pi / 2
)  # of a median, relative to a mean's, for normal noise (Kendall and Stuart, chapter 14)


@dataclass(frozen=True)
class Variance:
    """Variance of the log times: of one iteration (as it enters a median), and of one process beyond that."""

    within: float  # effective variance an iteration: autocorrelation and the median's efficiency included
    between: float  # of the true per-process levels; 0 where the iterations explain all there is
    processes: int
    iterations: float  # mean number a process

    def of_process(self, iterations: float) -> float:
        """Variance of the log median of one process with so many iterations."""
        return self.between + self.within / max(1.0, iterations)


def split_variance(samples: stats.Samples) -> Variance | None:
    """Estimate the two levels from a pilot; None with fewer than two processes.

    T2^2 = S2^2 - S1^2 / n1 (Kalibera and Jones 2013, section 6.2), S2^2 the variance of the per-process log
    medians, and S1^2 the mean variance within, times (1 + r1) / (1 - r1) for autocorrelation and pi / 2 for
    the median.
    """
    kept = [[math.log(value) for value in series if value > 0] for series in stats.measured(samples)]
    kept = [series for series in kept if series]
    if len(kept) < 2:
        return None
    within = []
    for series in kept:
        if len(series) < 2:
            continue
        r1 = min(0.9, stats.autocorrelation(series))
        within.append(_robust_variance(series) * MEDIAN_VARIANCE * (1 + r1) / (1 - r1))
    iterations = statistics.fmean(len(series) for series in kept)
    inner = statistics.fmean(within) if within else 0.0
    outer = statistics.variance([statistics.median(series) for series in kept])
    return Variance(inner, max(0.0, outer - inner / iterations), len(kept), iterations)


def _robust_variance(series: Sequence[float]) -> float:
    """Variance from the middle half of the values: what the precision of a median depends on."""
    if len(series) < 4:
        return statistics.variance(series)
    lower, _, upper = statistics.quantiles(series, n=4)
    return ((upper - lower) / 1.349) ** 2


def iterations_per_process(
    variance: Variance, seconds_per_iteration: float, seconds_per_process: float
) -> int:
    """The cheapest number of iterations a process: ceil(sqrt(c2 / c1 * T1^2 / T2^2)), clamped.

    Kalibera and Jones 2013, equation 3: c1 the cost of one iteration, c2 what a new process costs besides
    (start, import, warm-up). Where processes do not differ, one more iteration is always cheaper: the cap.
    """
    if variance.between <= 0 or seconds_per_iteration <= 0:
        return MAX_ITERATIONS
    ratio = seconds_per_process / seconds_per_iteration * variance.within / variance.between
    return max(MIN_ITERATIONS, min(MAX_ITERATIONS, math.ceil(math.sqrt(max(0.0, ratio)))))


def processes_needed(
    variance: Variance, iterations: int, precision: float, confidence: float = stats.CONFIDENCE
) -> int:
    """Processes until the interval's half-width is `precision`: n >= (t s / log(1 + precision))^2.

    Stein's two-stage rule (1945) with t at n - 1, so that small n pays for its unknown variance. May exceed
    MAX_PROCESSES: the caller says that the precision is out of reach.
    """
    deviation = math.sqrt(variance.of_process(iterations))
    target = math.log1p(precision)
    for count in range(LOOKS[0], 10_000):
        quantile = stats.t_quantile((1 + confidence) / 2, count - 1) if count <= 200 else 2.0
        if quantile * deviation / math.sqrt(count) <= target:
            return count
    return 10_000


def next_look(done: int, looks: Sequence[int] = LOOKS) -> int | None:
    """The number of processes at the next planned look; None after the last."""
    return next((look for look in looks if look > done), None)


def precise_enough(
    series: Mapping[str, stats.Samples], done: int, precision: float, looks: Sequence[int] = LOOKS
) -> bool:
    """Whether to stop after `done` processes: every model and phase was precise at the look before this one.

    Stopping at once would favour moments at which the spread happens to look small, and the interval would
    cover less than it says (Chow and Robbins 1965). The processes between the two looks are run whatever they
    show: with them it covers 93 % and more (tests/benchmarks/simulate.py), for fewer processes than a
    stricter width takes. The width is that of the t interval, which sees every process; the order statistics
    see two or four.
    """
    if done not in looks or done == looks[0]:
        return False
    before = looks[looks.index(done) - 1]
    widths = [_t_halfwidth(samples[:before]) for samples in series.values()]
    return bool(widths) and all(width is not None and width <= precision for width in widths)


def _t_halfwidth(samples: stats.Samples) -> float | None:
    bounds = stats.log_t_interval(stats.process_medians(stats.measured(samples)))
    return None if bounds is None else math.sqrt(bounds[1] / bounds[0]) - 1


def choose(
    series: Mapping[str, stats.Samples],
    *,
    seconds_per_iteration: float,
    seconds_per_process: float,
    precision: float,
    budget_s: float,
    used_s: float = 0.0,
    looks: Sequence[int] = LOOKS,
) -> Choice:
    """From a pilot of all models and phases: what the worst of them needs, within the budget.

    `seconds_per_process` is what a process costs besides its timed iterations, `seconds_per_iteration` that
    of one iteration of all models together. The answer is a planned look, or what the budget allows.
    """
    variances = [variance for variance in map(split_variance, series.values()) if variance is not None]
    done = max((len(samples) for samples in series.values()), default=0)
    if not variances:
        return Choice(max(done, MIN_PROCESSES), MAX_ITERATIONS, "no pilot: the least number of processes")
    iterations = max(
        iterations_per_process(variance, seconds_per_iteration, seconds_per_process) for variance in variances
    )
    needed = max(processes_needed(variance, iterations, precision) for variance in variances)
    precise_at = next((look for look in looks if look >= needed), looks[-1])
    wanted = max(done, next_look(precise_at, looks) or looks[-1])  # see precise_enough
    cost = seconds_per_process + iterations * seconds_per_iteration
    affordable = done + math.floor(max(0.0, budget_s - used_s) / cost) if cost > 0 else wanted
    if affordable < wanted:
        return Choice(max(done, affordable), iterations, f"the budget of {budget_s:g} s allows no more")
    if needed > looks[-1]:
        return Choice(
            wanted, iterations, f"{needed} processes would be needed for {precision:.2%}; {wanted} is the cap"
        )
    return Choice(wanted, iterations, f"expected to reach {precision:.2%}")
