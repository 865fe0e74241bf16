"""Where warm-up ends, found from the data: changepoints on log time, and a name for the shape of the series.

After Barrett, Bolz-Tereick, Killick, Mount and Tratt, "Virtual machine warmup blows hot and cold" (OOPSLA
2017): no warm-up is assumed to end. A series is cut where its level changes; it is steady from where its
segments are alike to the last one. TorchScript adds two shapes of its own: the profiling runs at the start,
and a later re-specialisation after a plateau that looked steady.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FLAT = "flat"
WARMUP = "warmup"
SLOWDOWN = "slowdown"
FAST_FIRST = "fast-first"
LATE = "late-respecialisation"
UNSTEADY = "no-steady-state"
SHORT = "too-short"

STEADY_LABELS = frozenset({FLAT, WARMUP, FAST_FIRST, LATE, SLOWDOWN})

PENALTY = (
    15.0  # times log n for one changepoint, in units of the noise's variance: Barrett et al. 2017, section 4
)
ALIKE = 0.01  # levels within 1 % are one level; never finer than the noise itself (below)
NOISE_FLOOR = 0.002  # log time; below it clocks and rounding decide
SPIKE = (
    5.0  # scaled deviations from the running median: set aside for the search only, never from the samples
)
SPIKE_WINDOW = 2  # neighbours to either side
HEAD = 3  # the first iterations are never spikes: they are what is looked for
MIN_LENGTH = 8  # fewer iterations show no shape
SHORT_SERIES = 24  # iterations; a warm-up of a few iterations is then a large part of them
MIN_STEADY = 8  # iterations at the last level before warm-up is said to have ended
STEADY_SHARE = (
    0.5  # of a whole series must be steady: Barrett et al. ask for the last 500 of 2000, we for half
)
PLATEAU = 5  # iterations that look like a steady level: what a late re-specialisation comes after
PROFILING_RUNS = 2  # TorchScript: one profiled run, one that compiles (pytorch pull request 58801)


@dataclass(frozen=True)
class Segment:
    """Iterations start..stop-1 at one level."""

    start: int
    stop: int
    median: float


@dataclass(frozen=True)
class Shape:
    """What a series of iterations looks like; end is its first steady iteration, None where there is none."""

    label: str
    end: int | None
    segments: tuple[Segment, ...]
    reason: str

    @property
    def steady(self) -> bool:
        """Whether there is a steady state to measure."""
        return self.label in STEADY_LABELS


def noise(logs: Sequence[float]) -> float:
    """Scale of the iteration-to-iteration noise: the upper quartile of the absolute first differences.

    Differences, for they do not see the level changes that are looked for (von Neumann 1941). The quartile
    and not the median: times that hop between two speeds stand still half of the time. For normal noise the
    upper quartile of |x2 - x1| is 1.1503 sqrt(2) deviations. Of a short series only the second half is used:
    the first may be all warm-up.
    """
    tail = logs[len(logs) // 2 :] if len(logs) < SHORT_SERIES else logs
    if len(tail) < 3:
        return NOISE_FLOOR
    steps = sorted(abs(second - first) for first, second in itertools.pairwise(tail))
    return max(NOISE_FLOOR, steps[(3 * len(steps)) // 4] / (1.1503 * math.sqrt(2)))


def without_spikes(logs: Sequence[float], scale: float) -> list[float]:
    """The series to search: lone spikes become the running median, as Barrett et al. set outliers aside."""
    cleaned = list(logs)
    for index in range(HEAD, len(logs)):
        window = logs[max(0, index - SPIKE_WINDOW) : index + SPIKE_WINDOW + 1]
        centre = statistics.median(window)
        if abs(logs[index] - centre) > SPIKE * scale:
            cleaned[index] = centre
    return cleaned


def changepoints(logs: Sequence[float], scale: float) -> list[int]:
    """Starts of the segments: optimal partitioning of the mean with a known noise scale.

    Minimises sum over segments of SSE / scale^2 + PENALTY log n (Jackson et al. 2005; PELT, Killick,
    Fearnhead and Eckley 2012, is its pruned form and gives the same answer; at a few hundred iterations
    pruning buys nothing).
    """
    import numpy as np

    count = len(logs)
    values = np.asarray(logs, dtype=float) - float(np.mean(logs))
    sums = np.concatenate(([0.0], np.cumsum(values)))
    squares = np.concatenate(([0.0], np.cumsum(values * values)))
    penalty = PENALTY * math.log(max(2, count)) * scale * scale
    best = np.full(count + 1, math.inf)
    best[0] = -penalty
    previous = np.zeros(count + 1, dtype=int)
    for stop in range(1, count + 1):
        lengths = stop - np.arange(stop)
        cost = (squares[stop] - squares[:stop]) - (sums[stop] - sums[:stop]) ** 2 / lengths
        total = best[:stop] + cost + penalty
        previous[stop] = int(np.argmin(total))
        best[stop] = total[previous[stop]]
    starts: list[int] = []
    stop = count
    while stop > 0:
        starts.append(int(previous[stop]))
        stop = int(previous[stop])
    return starts[::-1]


def segments(series: Sequence[float]) -> tuple[Segment, ...]:
    """The series cut where its level changes; levels are medians of the raw times."""
    if not series:
        return ()
    if min(series) <= 0:
        return (Segment(0, len(series), statistics.median(series)),)
    logs = [math.log(value) for value in series]
    scale = noise(logs)
    starts = changepoints(without_spikes(logs, scale), scale)
    stops = [*starts[1:], len(series)]
    return tuple(
        Segment(start, stop, statistics.median(series[start:stop]))
        for start, stop in zip(starts, stops, strict=True)
    )


def classify(series: Sequence[float], *, torchscript: bool = False) -> Shape:
    """Name the shape of a whole series, and say from which iteration it is steady."""
    if len(series) < MIN_LENGTH:
        return Shape(SHORT, None, (), f"{len(series)} iterations show no shape; at least {MIN_LENGTH} do")
    parts = segments(series)
    last = parts[-1]
    if last.median <= 0:
        return Shape(UNSTEADY, None, parts, "times of zero cannot be judged")
    tolerance = _tolerance(series, last)

    def level(part: Segment) -> float:
        return math.log(part.median / last.median) if part.median > 0 else -math.inf

    first_alike = len(parts) - 1
    while first_alike > 0 and abs(level(parts[first_alike - 1])) <= tolerance:
        first_alike -= 1
    end = parts[first_alike].start
    before = parts[:first_alike]
    steady_length = len(series) - end
    if steady_length < max(MIN_STEADY, STEADY_SHARE * len(series)):
        reason = f"only the last {steady_length} of {len(series)} iterations are at one level"
        return Shape(UNSTEADY, None, parts, reason)
    if not before:
        return Shape(FLAT, 0, parts, "one level throughout")
    change = f"{(math.exp(level(before[-1])) - 1) * 100:+.0f} % before iteration {end}"
    if all(level(part) < 0 for part in before):
        if end <= HEAD:
            return Shape(
                FAST_FIRST, end, parts, f"the first iterations are faster than all later ones: {change}"
            )
        return Shape(SLOWDOWN, end, parts, f"it became slower: {change}")
    plateau = [part for part in before if part.stop - part.start >= PLATEAU and part.stop > PROFILING_RUNS]
    if torchscript and plateau:
        return Shape(LATE, end, parts, f"compiled again after it had looked steady: {change}")
    return Shape(WARMUP, end, parts, f"slower at first: {change}")


def _tolerance(series: Sequence[float], last: Segment) -> float:
    """How far two levels may lie apart and be one: ALIKE, or the noise within the last level if more."""
    tail = [math.log(value) for value in series[last.start : last.stop] if value > 0]
    if len(tail) < 2:
        return ALIKE
    centre = statistics.median(tail)
    return max(ALIKE, 1.4826 * statistics.median(abs(value - centre) for value in tail))


def late(*phases: tuple[Sequence[float], Sequence[float]], torchscript: bool = False) -> int:
    """How many of the first timed iterations belong to the warm-up still, by the level of those that follow.

    Each phase is (warm-up, timed), the same iterations in every phase. Zero where a phase has no steady state, or
    would have to give up more than half of what was timed: then the shape is named, and nothing is moved.
    """
    most = 0
    for before, timed in phases:
        shape = classify([*before, *timed], torchscript=torchscript)
        if not shape.steady or shape.end is None:
            return 0
        most = max(most, shape.end - len(before))
    allowed = min((len(timed) for _, timed in phases), default=0) // 2
    return most if most <= allowed else 0


def too_few(warmup: int, *, torchscript: bool) -> str | None:
    """Why so few warm-up iterations are too few, or None."""
    if torchscript and warmup < PROFILING_RUNS:
        return (
            f"{warmup} warm-up iterations are too few for TorchScript, which compiles in its first "
            f"{PROFILING_RUNS} runs; use --warmup {PROFILING_RUNS} or more"
        )
    return None


def notes(samples: Sequence[Sequence[float]], phase: str, *, torchscript: bool = False) -> list[str]:
    """What the timed samples of the processes look like where that is not flat, one sentence a label."""
    shapes = [classify(series, torchscript=torchscript) for series in samples if len(series)]
    found: dict[str, list[Shape]] = {}
    for shape in shapes:
        if shape.label not in {FLAT, SHORT}:
            found.setdefault(shape.label, []).append(shape)
    return [
        f"{phase}: not steady in {len(group)} of {len(shapes)} processes: {label} ({group[0].reason})"
        for label, group in sorted(found.items())
    ]
