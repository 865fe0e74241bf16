"""What a measurement costs beyond what it measures, by one command: `python -m tests.benchmarks.cost`.

In one run: `import torch` (and, on a GPU, the start of CUDA) in a fresh process, then the whole
`python -m fastrnns.bench --rnns cudnn --warmup 10 --nloops 100 --processes 1`. Printed is its wall time over the
sum of its timed milliseconds and one import: at most 1.3 on a CPU, 1.5 on a GPU.
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

from fastrnns.archive.store import Archive

ROOT = Path(__file__).resolve().parents[2]
START = """
import sys, time
start = time.perf_counter()
import torch
if sys.argv[1] != "cpu":
    torch.zeros(1, device=sys.argv[1])
    torch.cuda.synchronize(sys.argv[1])
print(time.perf_counter() - start)
"""


def start_seconds(device: str) -> float:
    """The time to import torch and start the device, in a fresh process; the second of two, files in memory."""
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", START, device], capture_output=True, text=True, check=True
        )
    return float(done.stdout)


def main() -> int:
    """Measure, print the parts, and fail past the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=float, help="default: 1.3 on a CPU, 1.5 on a GPU")
    parser.add_argument("more", nargs="*", help="further arguments of fastrnns.bench, after --")
    args = parser.parse_args()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "fastrnns.bench",
            "--rnns",
            "cudnn",
            "--warmup",
            "10",
            "--nloops",
            "100",
        ]
        command += ["--processes", "1", "--device", args.device, "--archive", folder, *args.more]
        begun = time.perf_counter()
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        wall_s = time.perf_counter() - begun
        record = Archive(folder).load("latest")
    start_s = start_seconds(record["options"]["device"])
    timed_s = sum(
        sum(series) / 1e3
        for result in record["results"]
        for phase in ("forward", "backward")
        for series in (result[phase] or {"samples": []})["samples"]
    )
    warmup_s = sum(
        sum(series) / 1e3
        for result in record["results"]
        for phase in ("forward", "backward")
        for series in (result[phase] or {"warmup": []})["warmup"]
    )
    gpu = record["options"]["device"] != "cpu"
    limit = args.limit or (1.5 if gpu else 1.3)
    ratio = wall_s / (timed_s + start_s)
    print(
        json.dumps(
            {
                "device": record["options"]["device"],
                "wall_s": round(wall_s, 3),
                "timed_s": round(timed_s, 3),
                "warmup_s": round(warmup_s, 3),
                "import_torch_and_start_s": round(start_s, 3),
                "start_in_the_run": record["options"]["cold_start_s"],
                "ratio": round(ratio, 3),
                "limit": limit,
            },
            indent=2,
        )
    )
    return int(ratio > limit)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
