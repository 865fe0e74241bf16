"""How many processes, how long to warm up, when to stop: pure decisions over measured times. No torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The defaults and why. Processes are the replicates: five are the fewest that `compare` judges by, and a pilot from
# which the variance within and between processes says what else is worth running (measure/replicates.py); each costs
# an import of torch (2 to 5 s), so more are started only while the interval is too wide and budget is left.
PROCESSES = 5
MOST_PROCESSES = 20
PRECISION = 0.01  # half the interval of the median, relative
ITERATIONS_CAP = 100  # in one process, upstream's count
BUDGET_SECONDS = 45.0  # for one model, over all processes: twelve models then fit in twelve minutes
OVERRUN = 1.25  # of the budget: no iteration is started that would end later than this (45 s: under a minute)

LEAST_WARMUP = 1
LEAST_WARMUP_TORCHSCRIPT = 2  # the profiling executor specialises in its second run
LEAST_TIMED = 3
WARMUP_SECONDS = 0.3  # of work after the first iteration: clocks of CPUs and GPUs rise within this
COLD_SECONDS = 60.0  # on a GPU, for libraries that load and kernels that compile; charged to no budget
COMPILING = (
    2.0  # among the last iterations, the longest over the shortest, while TorchScript still specialises
)
COLD = 3.0  # an iteration that took so many times the shortest one did something besides its work
WARMUP_SHARE = 1 / 3  # of the time that a process has for a model
WARMUP_CAP = 300
STEADY_WINDOW = 3  # iterations at least; a quarter of the warm-up when that is more
STEADY_TOLERANCE = 0.05  # between the medians of two windows that follow each other
# Of iterations before a process may stop as precise: starting it took seconds, so that ending it after six short
# iterations saves nothing, and leaves its median several times as uncertain as a hundred of them would.
TIMED_SECONDS = 0.5
LOOKS = (6, 10, 15, 22, 33, 50, 70)  # planned: looking after each iteration would stop on luck

FIXED, STEADY, CAP, BUDGET, PRECISE, STOPPED = "fixed", "steady", "cap", "budget", "precise", "stopped"
UNCOMPILED = "limit while compiling"


@dataclass(frozen=True)
class Rule:
    """What one process is told about one model; None for a count means: decide by the rest."""

    warmup: int | None
    nloops: int | None
    precision: float
    seconds: float  # to warm up and measure in this process
    limit_seconds: float  # at which even the fewest iterations give way
    least_warmup: int = LEAST_WARMUP
    torchscript: bool = False
    cold_seconds: float = 0.0  # that loading and compiling may take on top of `seconds`
    most: int = ITERATIONS_CAP  # timed iterations

    def as_dict(self) -> dict[str, Any]:
        """The rule as it crosses the wire."""
        return asdict(self)


def warm(rule: Rule, totals_ms: Sequence[float], spent_s: float) -> str | None:
    """Why the warm-up is over, or None to go on. `totals_ms`: forward and backward together.

    TorchScript compiles in its first iterations, seconds each on a GPU: timing one of those would report the
    compiler. So its warm-up is not ended by its share of the time while it compiles, only by the limit.
    """
    count = len(totals_ms)
    if rule.warmup is not None:
        return FIXED if count >= rule.warmup else None
    if count < rule.least_warmup:
        return None
    spent_s -= cold_seconds(rule, totals_ms)
    last = totals_ms[-STEADY_WINDOW:]
    next_s = min(last) / 1e3
    if spent_s + LEAST_TIMED * next_s >= rule.limit_seconds:
        return UNCOMPILED if rule.torchscript and compiling(rule, totals_ms) else BUDGET
    steady = settled(totals_ms)
    if rule.torchscript and compiling(rule, totals_ms):
        return None
    if spent_s + next_s > WARMUP_SHARE * rule.seconds:
        return STEADY if steady else BUDGET
    if count >= WARMUP_CAP:
        return STEADY if steady else CAP
    return STEADY if steady and sum(totals_ms[1:]) / 1e3 >= WARMUP_SECONDS else None


def compiling(rule: Rule, totals_ms: Sequence[float]) -> bool:
    """Whether TorchScript may still be specialising: too few iterations to tell, or the last ones quite unequal.

    On a GPU forward and backward compile for up to five iterations of seconds each, alike among themselves.
    """
    last = totals_ms[-STEADY_WINDOW:]
    few = 2 * STEADY_WINDOW if rule.cold_seconds else STEADY_WINDOW
    return len(totals_ms) <= few or max(last) > COMPILING * min(last)


def cold_seconds(rule: Rule, totals_ms: Sequence[float]) -> float:
    """What the warm-up so far spent on loading and compiling, as far as that is charged to no budget."""
    if not totals_ms:
        return 0.0
    if rule.torchscript and compiling(rule, totals_ms):  # nothing yet tells what an iteration takes
        return min(rule.cold_seconds, sum(totals_ms) / 1e3)
    usual = min(totals_ms)
    cold_ms = sum(total - usual for total in totals_ms if total > COLD * usual)
    return min(rule.cold_seconds, max(cold_ms, totals_ms[0] - usual) / 1e3)


def settled(totals_ms: Sequence[float]) -> bool:
    """Whether the last two windows of iterations have nearly the same median."""
    if len(totals_ms) < 2 * STEADY_WINDOW:
        return False
    window = max(STEADY_WINDOW, len(totals_ms) // 4)
    last = statistics.median(totals_ms[-window:])
    before = statistics.median(totals_ms[-2 * window : -window])
    return abs(last - before) <= STEADY_TOLERANCE * before


def enough(
    rule: Rule, forward_ms: Sequence[float], backward_ms: Sequence[float], spent_s: float
) -> str | None:
    """Why sampling is over, or None to go on. `spent_s` counts the warm-up too."""
    count = len(forward_ms)
    if rule.nloops is not None:
        return FIXED if count >= rule.nloops else None
    if count == 0:
        return None
    if count >= rule.most:
        return CAP
    next_s = (forward_ms[-1] + (backward_ms[-1] if backward_ms else 0.0)) / 1e3
    if spent_s + next_s > rule.limit_seconds:
        return BUDGET
    if count < LEAST_TIMED:
        return None
    if spent_s + next_s > rule.seconds:
        return BUDGET
    if count in LOOKS and sum(forward_ms) + sum(backward_ms) >= TIMED_SECONDS * 1e3:
        widths = [halfwidth(series) for series in (forward_ms, backward_ms) if series]
        if all(width is not None and width <= rule.precision for width in widths):
            return PRECISE
    return None


def halfwidth(series: Sequence[float]) -> float | None:
    """Relative half-width of the order-statistic 95 % interval of a median (David and Nagaraja, 7.1).

    Written out here because a worker must not spend its time importing SciPy.
    """
    count = len(series)
    tail, rank = 0, 0
    while rank < count // 2 and (tail + math.comb(count, rank)) * 2 <= 0.05 * 2**count:
        tail += math.comb(count, rank)
        rank += 1
    if rank == 0:
        return None
    ordered = sorted(series)
    middle = statistics.median(ordered)
    return (ordered[count - rank] - ordered[rank - 1]) / 2 / middle if middle > 0 else None


@dataclass(frozen=True)
class Plan:
    """What the whole run is told: counts that are fixed, or the precision and the budget that decide."""

    processes: int = PROCESSES
    most_processes: int = MOST_PROCESSES
    warmup: int | None = None
    nloops: int | None = None
    precision: float = PRECISION
    budget_s: float = BUDGET_SECONDS

    @property
    def fixed(self) -> bool:
        """Whether the number of processes was asked for."""
        return self.most_processes == self.processes


def plan_for(
    *, processes: int | None, warmup: int | None, nloops: int | None, precision: float, budget_s: float
) -> Plan:
    """The plan of a command line: what was asked for exactly, the rest by default.

    With --nloops the historical protocol was asked for, so there is one process unless --processes says more.
    """
    if processes is None and nloops is not None:
        processes = 1
    return Plan(
        processes=PROCESSES if processes is None else processes,
        most_processes=MOST_PROCESSES if processes is None else processes,
        warmup=warmup,
        nloops=nloops,
        precision=precision,
        budget_s=budget_s,
    )


@dataclass(frozen=True)
class Choice:
    """What to run of one model: processes in all and iterations in each, and why."""

    processes: int
    iterations: int
    reason: str


@dataclass(frozen=True)
class Spent:
    """What is known of one model after some processes."""

    processes: int  # that measured it
    seconds: float  # its share of each process's start included
    least_seconds: float  # what the shortest useful process would take
    precise: bool = False  # at a planned look: the intervals over processes are narrow enough
    chosen: Choice | None = None  # at and after a planned look: what the variance seen so far asks for


def due(plan: Plan, process: int, spent: Spent | None) -> str | None:
    """Why a model is not measured in this process, or None when it is."""
    if process == 0 or spent is None:
        return None
    if process >= plan.most_processes:
        return CAP
    if plan.fixed:
        return None
    if process >= plan.processes and spent.precise:
        return PRECISE
    if spent.seconds + spent.least_seconds > plan.budget_s:
        return BUDGET
    if process >= plan.processes and spent.chosen is not None and spent.chosen.processes <= spent.processes:
        return BUDGET
    return None


def rule_for(
    plan: Plan, process: int, spent: Spent | None, *, torchscript: bool, cold_seconds: float = 0.0
) -> Rule:
    """One process's share of what is left of a model's budget."""
    left = plan.budget_s - (spent.seconds if spent is not None else 0.0)
    chosen = spent.chosen if spent is not None and process >= plan.processes else None
    share = max(0.0, left / max(1, (chosen.processes if chosen else plan.processes) - process))
    return Rule(
        warmup=plan.warmup,
        nloops=plan.nloops,
        precision=plan.precision,
        seconds=share,
        limit_seconds=max(share, plan.budget_s * OVERRUN - (plan.budget_s - left)),
        least_warmup=LEAST_WARMUP_TORCHSCRIPT if torchscript else LEAST_WARMUP,
        torchscript=torchscript,
        cold_seconds=cold_seconds,
        most=chosen.iterations if chosen else ITERATIONS_CAP,
    )


def least_seconds(cold_s: float, iteration_ms: float, *, torchscript: bool) -> float:
    """What one more process would take at least: build, warm up, and the fewest timed iterations."""
    warmup = LEAST_WARMUP_TORCHSCRIPT if torchscript else LEAST_WARMUP
    return cold_s + (warmup + LEAST_TIMED) * iteration_ms / 1e3


def rotated(names: Sequence[str], process: int, processes: int) -> list[str]:
    """The order of the models in one process: each process starts elsewhere, so that drift hits all alike."""
    if not names:
        return []
    start = round(process * len(names) / max(1, processes)) % len(names)
    return [*names[start:], *names[:start]]
