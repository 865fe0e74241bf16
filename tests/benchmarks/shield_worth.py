"""What a shield is worth: spread and shift of a small CPU workload beside two busy processes a CPU. Needs root."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env import tasks
from env.journal import Journal
from env.owner import Owner
from env.privilege import Privilege
from env.shield import NAMES, ShieldStep
from env.step import Host, Wanted
from env.sysfs import Files

BUSY_PER_CPU = 2
CONDITIONS = ("quiet", "loaded", "pinned", "shielded")
BUSY = "while True: sum(range(10000))"
# About two milliseconds of arithmetic on data that stays in the first cache: what moves its time is the machine.
WORKER = """
import json, sys, time
sys.stdin.readline()
def iteration():
    total = 0
    for value in range(40_000):
        total += value * value & 255
    return total
for _ in range(50):
    iteration()
times = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter_ns()
    iteration()
    times.append((time.perf_counter_ns() - start) / 1e6)
print(json.dumps(times))
"""


@contextlib.contextmanager
def load(count: int) -> Iterator[None]:
    """Busy processes that may run wherever the kernel lets them."""
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.wait()


@contextlib.contextmanager
def shield(cpus: str | None, backend: str | None, kind: str) -> Iterator[ShieldStep]:
    """A shield on this machine, taken down whatever happens."""
    files = Files("/")
    host = Host(files, Privilege(files), Wanted(cpus=cpus, shield=backend, partition=kind))
    with tempfile.TemporaryDirectory() as folder:
        host.journal = Journal.create(
            Path(folder) / "journal" / "j.jsonl", "hold", Owner.me("shield_worth"), ""
        )
        step = ShieldStep(host)
        try:
            step.apply()
            state = step.probe()
            if state.status != "stable":
                raise SystemExit(f"no shield: {state.reason}")
            yield step
        finally:
            step.restore(host.journal.of("shield", operations=True))


def measure(iterations: int, step: ShieldStep | None = None, cpus: tuple[int, ...] = ()) -> list[float]:
    """Times of one fresh worker, in milliseconds."""
    with subprocess.Popen(
        [sys.executable, "-c", WORKER, str(iterations)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        if step is not None:
            step.adopt(worker.pid)
        elif cpus:
            tasks.pin(worker.pid, cpus)
        out, _ = worker.communicate("go\n")
    times: list[float] = json.loads(out)
    return times


def summary(times: list[float]) -> dict[str, float]:
    """Median and spread."""
    cuts = statistics.quantiles(times, n=100)
    return {
        "median_ms": round(statistics.median(times), 4),
        "p5_ms": round(cuts[4], 4),
        "p95_ms": round(cuts[94], 4),
        "spread": round(cuts[94] / cuts[4], 3),
        "iterations": len(times),
    }


def main() -> int:
    """Print one JSON object: each condition, and the ratios between them, from one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpus", help="bench CPUs; the best by topology when left out")
    parser.add_argument("--shield", choices=[name for name in NAMES if name != "affinity"], help="backend")
    parser.add_argument("--partition", choices=("root", "isolated"), default="root")
    parser.add_argument("--iterations", type=int, default=400, help="a round and condition")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, help="write the JSON there too")
    args = parser.parse_args()
    every = len(os.sched_getaffinity(0))
    files = Files("/")
    bench = Host(files, Privilege(files), Wanted(cpus=args.cpus)).bench
    times: dict[str, list[float]] = {name: [] for name in CONDITIONS}
    name = ""
    for _ in range(args.rounds):  # conditions take turns, so that a slow minute of the machine hits all alike
        times["quiet"] += measure(args.iterations)
        with load(BUSY_PER_CPU * every):
            times["loaded"] += measure(args.iterations)
            times["pinned"] += measure(args.iterations, cpus=bench)
            with shield(args.cpus, args.shield, args.partition) as step:
                name = step.backend().name
                times["shielded"] += measure(args.iterations, step)
    found: dict[str, Any] = {condition: summary(values) for condition, values in times.items()}
    quiet = found["quiet"]["median_ms"]
    answer = {
        "backend": name,
        "kind": args.partition if name == "cgroup2" else None,
        "bench_cpus": len(bench),
        "cpus": every,
        "busy_processes": BUSY_PER_CPU * every,
        "conditions": found,
        "median_against_quiet": {c: round(found[c]["median_ms"] / quiet, 3) for c in CONDITIONS},
        "spread_loaded_over_shielded": round(found["loaded"]["spread"] / found["shielded"]["spread"], 2),
        "median_loaded_over_shielded": round(
            found["loaded"]["median_ms"] / found["shielded"]["median_ms"], 2
        ),
    }
    text = json.dumps(answer, indent=2)
    print(text)
    if args.output:
        args.output.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
