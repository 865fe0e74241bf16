"""Simulated series with a known truth: false alarms, coverage and power of the statistics used here.

    python -m tests.benchmarks.simulate [--pairs 2000] [--json FILE]

Exit 1 where a target is missed: false alarms at most 1 % of A/A pairs, coverage of the 95 % interval 93-97 %.
The row marked `known limit` has no target for coverage: what it asks for, the one median, does not exist
there.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from fastrnns.archive import compare
from fastrnns.measure import difference, replicates, stats

PROCESSES, ITERATIONS = 10, 40
MARGIN = 0.01
FALSE_ALARMS, COVERAGE = 0.01, (0.93, 0.97)
SHIFTS = (0.03, 0.05, 0.10)
TRUTH_PROCESSES = 100_000  # to know the location of a scenario, which the interval is to cover

Make = Callable[[np.random.Generator, int, int], np.ndarray]  # (processes, iterations) log times


def between(rng: np.random.Generator, processes: int, deviation: float) -> np.ndarray:
    """Levels of the processes, as a column."""
    return rng.normal(0, deviation, (processes, 1))


def quiet(rng, processes, iterations):
    return between(rng, processes, 0.004) + rng.normal(0, 0.01, (processes, iterations))


def noisy(rng, processes, iterations):
    return between(rng, processes, 0.03) + rng.normal(0, 0.05, (processes, iterations))


def heavy_tails(rng, processes, iterations):
    """Iterations from |t(2)|: no variance; processes from t(4): one in ten far away."""
    levels = 0.01 * rng.standard_t(4, (processes, 1))
    return levels + np.abs(0.03 * rng.standard_t(2, (processes, iterations)))


def drift(rng, processes, iterations):
    """Each process slows down along its run, by its own amount, as it heats."""
    slope = np.abs(rng.normal(0.02, 0.01, (processes, 1)))
    return (
        between(rng, processes, 0.01)
        + slope * np.linspace(0, 1, iterations)
        + rng.normal(0, 0.01, (processes, iterations))
    )


def bimodal_iterations(rng, processes, iterations):
    """Iterations hop between two speeds 20 % apart; each process has its own share of the slow one."""
    share = rng.beta(4, 8, (processes, 1))
    slow = rng.random((processes, iterations)) < share
    return between(rng, processes, 0.01) + 0.18 * slow + rng.normal(0, 0.02, (processes, iterations))


def bimodal_processes(rng, processes, iterations):
    """Two of five processes are 8 % slower throughout: memory layout, another algorithm."""
    return 0.08 * (rng.random((processes, 1)) < 0.4) + rng.normal(0, 0.01, (processes, iterations))


def equal_modes(rng, processes, iterations):
    """Exactly half of the processes are 8 % slower: every time between the two is a median of them."""
    return 0.08 * (rng.random((processes, 1)) < 0.5) + rng.normal(0, 0.01, (processes, iterations))


def autocorrelated(rng, processes, iterations):
    """AR(1) with 0.9: pooled iterations would claim four times the precision there is."""
    series = np.empty((processes, iterations))
    level = rng.normal(0, 0.03, processes)
    for index in range(iterations):
        series[:, index] = level
        level = 0.9 * level + rng.normal(0, 0.03 * math.sqrt(1 - 0.81), processes)
    return between(rng, processes, 0.01) + series


def spikes(rng, processes, iterations):
    """One iteration in twenty takes three times as long, and one process in fifteen is disturbed throughout."""
    hit = rng.random((processes, iterations)) < 0.05
    disturbed = (rng.random((processes, 1)) < 1 / 15) * rng.exponential(0.03, (processes, 1))
    return (
        between(rng, processes, 0.01) + disturbed + 1.1 * hit + rng.normal(0, 0.01, (processes, iterations))
    )


def rare_mode(rng, processes, iterations):
    """One process in ten is 20 % slower: a third of all sets of ten processes never sees it."""
    return 0.18 * (rng.random((processes, 1)) < 0.1) + rng.normal(0, 0.01, (processes, iterations))


SCENARIOS: dict[str, tuple[Make, bool]] = {  # name: (series, whether coverage has a target)
    "quiet": (quiet, True),
    "noisy": (noisy, True),
    "heavy tails": (heavy_tails, True),
    "drift": (drift, True),
    "bimodal iterations": (bimodal_iterations, True),
    "bimodal processes": (bimodal_processes, True),
    "autocorrelated": (autocorrelated, True),
    "spikes": (spikes, True),
    "rare mode": (rare_mode, True),
    "equal modes (known limit)": (equal_modes, False),
}


@dataclass(frozen=True)
class Figures:
    """What was seen of one scenario with one number of processes."""

    scenario: str
    processes: int
    pairs: int
    false_alarms: float
    naive_false_alarms: float  # pooled iterations, Welch at 5 %: what a pooled t test does
    coverage: float
    bootstrap_coverage: float | None
    power: dict[str, float]
    same: float  # A/A pairs that earn `same` at the margin
    coverage_has_target: bool

    @property
    def met(self) -> bool:
        """Whether the targets are met."""
        covered = COVERAGE[0] <= self.coverage <= COVERAGE[1]
        return self.false_alarms <= FALSE_ALARMS and (covered or not self.coverage_has_target)


def medians(rng: np.random.Generator, make: Make, sets: int, processes: int, iterations: int) -> np.ndarray:
    """Log medians of the processes of many sets: (sets, processes)."""
    return np.median(make(rng, sets * processes, iterations), axis=1).reshape(sets, processes)


def true_location(rng: np.random.Generator, make: Make, processes: int) -> float:
    """What the interval is about: the median over processes, or the mean of the logs where they are few."""
    logs = np.median(make(rng, TRUTH_PROCESSES, ITERATIONS), axis=1)
    return float(np.median(logs) if processes >= stats.MIN_ORDER_PROCESSES else logs.mean())


def covers(logs: np.ndarray, truth: float) -> bool:
    """Whether the interval that a record would carry holds the truth."""
    low, high = stats.summarise([[value] for value in np.exp(logs)])["ci95"]
    return math.log(low) <= truth <= math.log(high)


def verdict(base: np.ndarray, new: np.ndarray, margin: float = MARGIN) -> str:
    """The product's own decision on one model and phase."""
    estimate = difference.unpaired(base.tolist(), new.tolist())
    row = compare.Row("m", "g", "forward", compare.INCONCLUSIVE, margin=margin)
    return compare.decide(row, estimate, estimate.p_different(), estimate.p_outside(margin)).verdict


def pooled_p(base: np.ndarray, new: np.ndarray) -> np.ndarray:
    """P values of Welch's test on pooled iterations, for the contrast."""
    from scipy.stats import ttest_ind

    return ttest_ind(base, new, axis=1, equal_var=False).pvalue


def simulate(
    name: str, pairs: int, processes: int = PROCESSES, seed: int = 1, *, bootstrap: int = 0
) -> Figures:
    """All figures of one scenario."""
    make, has_target = SCENARIOS[name]
    rng = np.random.default_rng([seed, processes, *name.encode()])
    raw = [make(rng, pairs * processes, ITERATIONS) for _ in range(2)]
    base, new = (np.median(side, axis=1).reshape(pairs, processes) for side in raw)
    aa = [verdict(a, b) for a, b in zip(base, new, strict=True)]
    naive = pooled_p(*(np.exp(side).reshape(pairs, -1) for side in raw))
    truth = true_location(rng, make, processes)
    covered = sum(covers(logs, truth) for logs in base)
    boot = None
    if bootstrap:
        hits = 0
        for logs in base[:bootstrap]:
            low, high = stats.bootstrap_interval([[value] for value in np.exp(logs)])
            hits += math.log(low) <= truth <= math.log(high)
        boot = hits / min(bootstrap, pairs)
    power = {}
    for shift in SHIFTS:
        found = [verdict(a, b + math.log1p(shift)) for a, b in zip(base, new, strict=True)]
        power[f"{shift:.0%}"] = found.count(compare.SLOWER) / pairs
    alarms = sum(word in {compare.SLOWER, compare.FASTER} for word in aa) / pairs
    return Figures(
        name, processes, pairs, alarms, float((naive < 0.05).mean()), covered / pairs, boot, power,
        aa.count(compare.SAME) / pairs, has_target,
    )  # fmt: skip


def stopped_coverage(name: str, sets: int, precision: float, seed: int = 2) -> tuple[float, float]:
    """Coverage of the 95 % interval when stopping at planned looks, and the mean number of processes."""
    make, _ = SCENARIOS[name]
    rng = np.random.default_rng([seed, *name.encode()])
    values = medians(rng, make, sets, replicates.MAX_PROCESSES, ITERATIONS)
    truth = true_location(rng, make, replicates.MAX_PROCESSES)
    covered = used = 0
    for logs in values:
        times = np.exp(logs).tolist()
        done = replicates.MAX_PROCESSES
        for look in replicates.LOOKS:
            series = {"m": [[value] for value in times[:look]]}
            if replicates.precise_enough(series, look, precision):
                done = look
                break
        covered += covers(logs[:done], truth)
        used += done
    return covered / sets, used / sets


def main() -> int:
    """Print the table; exit 1 where a target is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--processes", type=int, nargs="+", default=[5, 10, 20])
    parser.add_argument("--bootstrap", type=int, default=200, help="sets that the bootstrap is checked on")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    started = time.monotonic()
    head = (
        "scenario",
        "n",
        "alarms",
        "pooled t",
        "coverage",
        "bootstrap",
        *(f"+{s:.0%}" for s in SHIFTS),
        "same",
    )
    line = "{:24}{:>4}{:>9}{:>10}{:>10}{:>11}" + "{:>8}" * len(SHIFTS) + "{:>8}  {}"
    print(line.format(*head, ""))
    found = []
    for name in SCENARIOS:
        for processes in args.processes:
            few = processes < stats.MIN_BOOTSTRAP_PROCESSES
            figures = simulate(name, args.pairs, processes, bootstrap=0 if few else args.bootstrap)
            found.append(figures)
            boot = "-" if figures.bootstrap_coverage is None else f"{figures.bootstrap_coverage:.1%}"
            print(
                line.format(
                    name, processes, f"{figures.false_alarms:.2%}", f"{figures.naive_false_alarms:.1%}",
                    f"{figures.coverage:.1%}", boot, *(f"{value:.0%}" for value in figures.power.values()),
                    f"{figures.same:.0%}", "" if figures.met else "MISSED",
                ),
                flush=True,
            )  # fmt: skip
    print("\nstopping at the planned looks on width (1 %):")
    stops = {}
    for name, (_, has_target) in SCENARIOS.items():
        coverage, used = stopped_coverage(name, args.pairs, 0.01)
        chance = 2 * math.sqrt(COVERAGE[0] * (1 - COVERAGE[0]) / args.pairs)  # of this simulation itself
        low = COVERAGE[0] - chance <= coverage
        stops[name] = {
            "coverage": coverage,
            "processes": used,
            "met": low or not has_target,
            "has_target": has_target,
        }
        print(
            f"{name:24} coverage {coverage:.1%}, {used:.1f} processes  {'' if stops[name]['met'] else 'MISSED'}"
        )
    print(f"\n{time.monotonic() - started:.0f} s")
    if args.json:
        with Path(args.json).open("w", encoding="utf-8") as file:
            json.dump(
                {"pairs": args.pairs, "figures": [asdict(f) for f in found], "stopping": stops},
                file,
                indent=1,
            )
    met = all(f.met for f in found) and all(s["met"] for s in stops.values())
    covered = [f.coverage for f in found if f.coverage_has_target]
    summary = {
        "benchmark": "simulate",
        "pairs": args.pairs,
        "worst_false_alarm_rate": max(f.false_alarms for f in found),
        "coverage": [min(covered), max(covered)],
        "coverage_when_stopping": min(s["coverage"] for s in stops.values() if s["has_target"]),
        "target": {"false_alarm_rate": FALSE_ALARMS, "coverage": COVERAGE},
        "met": met,
    }
    print(json.dumps(summary))
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
