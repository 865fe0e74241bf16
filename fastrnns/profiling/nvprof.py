"""nvprof, for GPUs before compute capability 8.0: kernels by name, read back from its own log."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastrnns.profiling import cudnn, external
from fastrnns.profiling.events import ReportError
from fastrnns.profiling.summary import ROWS

Runner = Callable[[Sequence[str]], external.Completed]
_MILLISECONDS = {"s": 1e3, "ms": 1.0, "us": 1e-3, "ns": 1e-6}


def arguments(path: str, program: Sequence[str], log: Path) -> list[str]:
    """The command line: a summary of what ran on the GPU between cudaProfilerStart and Stop."""
    return [
        path,
        "--csv",
        "--print-gpu-summary",
        "--profile-from-start",
        "off",
        "--log-file",
        str(log),
        *program,
    ]


def profile(
    path: str, program: Sequence[str], folder: Path, *, name: str, run: Runner, iterations: int
) -> tuple[dict[str, dict[str, Any]], list[Path]]:
    """Run a program under nvprof; what ran, both phases together, and its log."""
    log = folder / f"{name}.nvprof.csv"
    done = run(arguments(path, program, log))
    external.report(log, "nvprof", done)
    return parse(log.read_bytes().decode("utf-8", "replace"), iterations), [log]


def parse(text: str, iterations: int) -> dict[str, dict[str, Any]]:
    """The kernels of a log by name, per iteration; refuses one without any."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"Type"')), None)
    if start is None:
        raise ReportError(f"nvprof's log holds no kernel: {external.Completed(0, text).last_words}")
    header, units, *body = csv.reader(io.StringIO("\n".join(lines[start:])))
    where = {column: number for number, column in enumerate(header)}
    scale = _MILLISECONDS.get(units[where["Time"]].strip(), 1.0)
    rows: list[dict[str, Any]] = [
        {
            "name": row[where["Name"]],
            "calls": float(row[where["Calls"]]) / iterations,
            "own_ms": float(row[where["Time"]]) * scale / iterations,
            "share": float(row[where["Time(%)"]]) / 100,
        }
        for row in body
        if len(row) == len(header) and row[where["Type"]] == "GPU activities"
    ]
    if not rows:
        raise ReportError("nvprof's log holds no kernel: nothing ran on the GPU while it looked")
    rows.sort(key=lambda row: -float(row["own_ms"]))
    kernels = {
        "total_ms": sum(float(row["own_ms"]) for row in rows),
        "count": sum(float(row["calls"]) for row in rows),
        "per_step": None,
        "rows": rows[:ROWS],
    }
    algorithm = cudnn.algorithm([str(row["name"]) for row in rows])
    return {"whole": {"iterations": iterations, "kernels": kernels, "cudnn_algorithm": algorithm}}
