"""What `env check` costs beside the interpreter's start: `python -m tests.benchmarks.env_check`.

On a tree of 256 CPUs with a frequency policy each, the best of several runs of `python -m env check --root TREE
--json` and of `python -c pass`, taken in turns in one run. Printed is the difference, at most 150 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmarks.kill_storm import lay_out

ROOT = Path(__file__).resolve().parents[2]


def seconds(command: list[str]) -> float:
    """The wall time of one run."""
    started = time.perf_counter()
    subprocess.run(
        command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    return time.perf_counter() - started


def main() -> int:
    """Print one JSON object; exit code 1 past the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpus", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--limit-ms", type=float, default=150.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "machine"
        lay_out(folder, args.cpus)
        check = [sys.executable, "-m", "env", "check", "--root", str(folder), "--json"]
        start = [sys.executable, "-c", "pass"]
        pairs = [(seconds(start), seconds(check)) for _ in range(args.rounds)]
    bare, whole = (min(values) * 1e3 for values in zip(*pairs, strict=True))
    found = {
        "cpus": args.cpus,
        "start_ms": bare,
        "check_ms": whole,
        "beside_start_ms": whole - bare,
        "limit_ms": args.limit_ms,
    }
    print(json.dumps({key: round(value, 1) for key, value in found.items()}))
    return int(whole - bare > args.limit_ms)


if __name__ == "__main__":
    sys.exit(main())
