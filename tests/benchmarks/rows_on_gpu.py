"""Verify and time each of today's LSTM rows on a GPU: `python -m tests.benchmarks.rows_on_gpu [--dtype fp32 ...]`.

Each step is a command of its own with a time limit, so that a row that hangs or compiles for ever costs that step
alone. Steps: `verify` and `bench` of what needs no compiler, together, in each number format; then of each compiled row
alone. The last line is JSON: for each step its seconds and exit code, and for each model its status, its largest error
beside float64, its medians in milliseconds (stream and device time), and its cold start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastrnns import phases, runner

ROOT = Path(__file__).resolve().parents[2]
COMPILED = tuple(name for name in runner.MODERN if runner.lookup(name).compiled)
PLAIN = ("cudnn", "aten", "py", *(name for name in runner.MODERN if name.startswith("cudagraph_")))
SMALL = ("--seqLength", "7", "--inputSize", "24", "--hiddenSize", "40", "--miniBatch", "6")
BENCH = ("--processes", "2", "--nloops", "50", "--warmup", "10")


def steps(
    dtypes: Sequence[str], compiled_dtypes: Sequence[str], sizes: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """Name, kind, models, number format and sizes of each step, what is quick first."""
    for dtype in dtypes:
        yield {"kind": "verify", "models": PLAIN, "dtype": dtype, "sizes": SMALL}
        yield {"kind": "verify", "models": PLAIN, "dtype": dtype, "sizes": sizes}
        yield {"kind": "bench", "models": PLAIN, "dtype": dtype, "sizes": sizes}
    for dtype in compiled_dtypes:
        for name in COMPILED:
            yield {"kind": "verify", "models": (name,), "dtype": dtype, "sizes": SMALL}
            yield {"kind": "bench", "models": ("cudnn", name), "dtype": dtype, "sizes": sizes}


def run(step: Mapping[str, Any], limit_s: float, device: str) -> dict[str, Any]:
    """One step: what its command said, and how it ended."""
    kind = device.partition(":")[0]
    models = [name for name in step["models"] if kind in runner.lookup(name).devices]
    with tempfile.TemporaryDirectory() as folder:
        module = "fastrnns.test" if step["kind"] == "verify" else "fastrnns.bench"
        command = [sys.executable, "-m", module, "--rnns", *models, "--dtype", step["dtype"], *step["sizes"],
                   "--device", device, "--env", "ignore", "--archive", folder]  # fmt: skip
        if step["kind"] == "bench":
            command += [
                *BENCH,
                "--compile-limit",
                f"{limit_s:g}",
                *(["--graph-replay"] if kind == "cuda" else []),
            ]
        started = time.monotonic()
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              start_new_session=True) as process:  # fmt: skip
            try:
                text, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGINT)  # it keeps what it measured, and ends its workers
                try:
                    text, _ = process.communicate(timeout=20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    text, _ = process.communicate()
                text += f"\nended after {limit_s:g} s"
        found = {"kind": step["kind"], "dtype": step["dtype"], "sizes": " ".join(step["sizes"]) or "default",
                 "seconds": round(time.monotonic() - started, 1), "exit_code": process.returncode}  # fmt: skip
        records = [json.loads(path.read_bytes()) for path in Path(folder).glob("*/*.json")]
        found["models"] = [told(result) for record in records for result in record["results"]]
    print(f"{found['kind']} {' '.join(models)} {found['dtype']} {found['sizes']}: {found['seconds']} s,"
          f" exit {found['exit_code']}\n{text[-3000:]}", flush=True)  # fmt: skip
    if not found["models"]:
        found["said"] = text[-500:]
    return found


def told(result: Mapping[str, Any]) -> dict[str, Any]:
    """One model's result in a few figures."""
    errors = [check["max_abs"] for check in result.get("checks") or () if check["against"] == "float64"]
    numbers = [error for error in errors if isinstance(error, float)]
    return {
        "model": result["model"],
        "status": result["status"],
        **({"error": result["error"]} if result["error"] else {}),
        **({"largest_error": max(numbers)} if numbers else {}),
        **{phase: result[phase]["median"] for phase in phases.ALL if result.get(phase)},
        **({"cold_start_ms": result["cold_start"]["samples"]} if result.get("cold_start") else {}),
        "notes": [note for note in result["notes"] if "graph replay" in note],
        "backend": result["backend"],
    }


def main() -> int:
    """Run the steps that the time allows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--dtype", nargs="*", choices=runner.DTYPES, default=list(runner.DTYPES))
    parser.add_argument("--compiled-dtype", nargs="*", choices=runner.DTYPES, default=["fp32"])
    parser.add_argument(
        "--sizes", default="", help="of bench, as one argument (default: the default problem)"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--limit", type=float, default=150.0, metavar="S", help="of one step")
    parser.add_argument("--total", type=float, default=560.0, metavar="S", help="no step begins after it")
    args = parser.parse_args()
    began = time.monotonic()
    found: list[dict[str, Any]] = []
    left_out = 0
    for step in steps(args.dtype, args.compiled_dtype, args.sizes.split()):
        left = args.total - (time.monotonic() - began)
        if left < 10:
            left_out += 1
            continue
        found.append(run(step, min(args.limit, left), args.device))
    bad = [f"{step['kind']} {model['model']} {step['dtype']}" for step in found for model in step["models"]
           if model["status"] != "ok"]  # fmt: skip
    print(json.dumps({"steps": found, "not_ok": bad, "left_out": left_out}, allow_nan=False))
    return 1 if any(step["exit_code"] for step in found) else 0


if __name__ == "__main__":
    sys.exit(main())
