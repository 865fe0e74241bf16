"""Whether the pytest route agrees with bench, in one run: `python -m tests.benchmarks.pytest_route`.

    python -m tests.benchmarks.pytest_route --models cudnn jit --processes 10 [--device cuda] [--env apply] [--json FILE]

One process of each takes turns, on the same CPUs and the same problem; the route's JSON is read by `archive import`.
For each model and phase: the route's median over bench's, with its interval over the pairs of processes, simultaneous
for all rows (Bonferroni of 0.5 %). `agree`: the interval lies within 5 % of one. `apart`: it excludes one, and the ratio
is more than 5 % off. `inconclusive`: neither. Exit 1 where a row is apart, or none agrees.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from fastrnns.archive import imports
from fastrnns.measure import difference, stats
from tests.benchmarks import runs

LIMIT = 0.05
FALSE_ALARMS = 0.005  # for all rows together, as in compare
ROUNDS, WARMUP = 100, 20


def route(args: argparse.Namespace) -> dict[str, Any]:
    """The record of one process of the pytest route."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "out.json"
        words = [
            *([sys.executable, "-m", "env", "run", "--"] if args.env == "apply" else []),
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "fastrnns/test_bench.py",
            "--rnns", *args.models, "--device", args.device,
            "--seqLength", str(args.seq_length), "--miniBatch", str(args.mini_batch),
            "--inputSize", str(args.size), "--hiddenSize", str(args.size),
            "--rounds", str(ROUNDS), "--warmup-rounds", str(WARMUP), "--benchmark-json", str(path),
        ]  # fmt: skip
        done = subprocess.run(words, cwd=runs.ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SystemExit(f"the pytest route ended with {done.returncode}:\n{done.stdout[-2000:]}")
        return imports.read(path.read_text(encoding="utf-8"), "s")


def medians(record: dict[str, Any]) -> dict[str, float]:
    """The log of the median of each model and phase."""
    return {
        f"{result['model']} {phase}": math.log(statistics.median(result[phase]["samples"][0]))
        for result in record["results"]
        for phase in ("forward", "backward")
        if result[phase]
    }


def judged(bench: list[float], pytest: list[float], rows: int) -> dict[str, Any]:
    """One row: the ratio of the route to bench, its interval and what it says."""
    found = difference.pairwise(bench, pytest)
    low, high = found.interval(1 - FALSE_ALARMS / rows)
    ratio = math.exp(found.log_ratio)
    if low > 1 - LIMIT and high < 1 + LIMIT:
        says = "agree"
    elif abs(ratio - 1) > LIMIT and not low <= 1 <= high:
        says = "apart"
    else:
        says = "inconclusive"
    return {
        "bench_ms": math.exp(statistics.median(bench)),
        "pytest_ms": math.exp(statistics.median(pytest)),
        "ratio": ratio,
        "ci95": found.interval(stats.CONFIDENCE),
        "interval": (low, high),
        "says": says,
    }


def main() -> int:
    """Measure in turns and print one line a model and phase."""
    parser = runs.flags(__doc__)
    parser.set_defaults(processes=10)
    args = parser.parse_args()
    series: dict[str, dict[str, list[float]]] = {"bench": {}, "pytest": {}}
    ways = {"bench": lambda: runs.record(args, processes=1)[0], "pytest": lambda: route(args)}
    order = list(ways)
    for number in range(args.processes):
        for way in order:
            for row, value in medians(ways[way]()).items():
                series[way].setdefault(row, []).append(value)
        order.reverse()
        print(f"{number + 1} of {args.processes}", file=sys.stderr, flush=True)
    shared = [row for row in series["bench"] if row in series["pytest"]]
    table = {row: judged(series["bench"][row], series["pytest"][row], len(shared)) for row in shared}
    print(f"{'model and phase':28} {'bench ms':>9} {'pytest ms':>9} {'ratio':>7} {'95 %':>15}")
    for row, found in table.items():
        low, high = found["ci95"]
        print(
            f"{row:28} {found['bench_ms']:9.4g} {found['pytest_ms']:9.4g} {found['ratio']:7.3f} "
            f"{f'{low:.3f}-{high:.3f}':>15} {found['says']}"
        )
    said = [found["says"] for found in table.values()]
    summary = {
        "benchmark": "pytest_route",
        "device": args.device,
        "processes": args.processes,
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "rows": table,
        "limit": LIMIT,
        "met": "apart" not in said and "agree" in said,
    }
    runs.save(args.json, summary, {"log_medians": series})
    return int(not summary["met"])


if __name__ == "__main__":
    sys.exit(main())
