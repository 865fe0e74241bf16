"""Nsight Compute: hardware counters of each kernel, read back from its report as a table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fastrnns.profiling import cudnn, external
from fastrnns.profiling.events import ReportError
from fastrnns.profiling.summary import PHASES, ROWS

Runner = Callable[[Sequence[str]], external.Completed]
TIME = "gpu__time_duration.sum"
METRICS = {  # of ncu: what the table calls it
    TIME: "time",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed": "sm_percent",
    "dram__throughput.avg.pct_of_peak_sustained_elapsed": "dram_percent",
    "lts__throughput.avg.pct_of_peak_sustained_elapsed": "l2_percent",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "warps_active_percent",
    "dram__bytes.sum": "dram_bytes",
    "launch__registers_per_thread": "registers_per_thread",
    "launch__grid_size": "blocks",
    "launch__block_size": "threads_per_block",
}
_NANOSECONDS = {
    "nsecond": 1.0,
    "ns": 1.0,
    "usecond": 1e3,
    "us": 1e3,
    "msecond": 1e6,
    "ms": 1e6,
    "second": 1e9,
    "s": 1e9,
}
_PERCENT = tuple(name for name in METRICS.values() if name.endswith("percent"))


def arguments(path: str, program: Sequence[str], report: Path, launches: int) -> list[str]:
    """The command line; the clocks are left as they are, so that times are those of a run without ncu."""
    return [
        path, "--target-processes=all", "--profile-from-start=off", "--clock-control=none", "--nvtx",
        f"--launch-count={launches}", f"--metrics={','.join(METRICS)}",
        "--force-overwrite", f"--export={report.with_suffix('')}", *program,
    ]  # fmt: skip


def profile(
    path: str, program: Sequence[str], folder: Path, *, name: str, run: Runner, launches: int
) -> tuple[dict[str, dict[str, Any]], list[Path]]:
    """Run a program under ncu; what each phase did, and the table of its kernels."""
    report = folder / f"{name}.ncu-rep"
    done = run(arguments(path, program, report, launches))
    external.report(report, "ncu", done)
    listing = [path, "--import", str(report), "--csv", "--page=raw", "--print-units=base"]
    try:
        kernels = parse(run([*listing, "--nvtx"]).output)  # with the names of the phases
    except ReportError:
        kernels = parse(run(listing).output)
    table = folder / f"{name}.kernels.csv"
    with table.open("w", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.DictWriter(
            file, ["phase", "name", "time_ns", *[m for m in METRICS.values() if m != "time"]]
        )
        writer.writeheader()
        writer.writerows(kernels)
    return summarise(kernels, reached=len(kernels) >= launches), [table]


def parse(text: str) -> list[dict[str, Any]]:
    """The kernels of ncu's CSV, in the order of launch; refuses a listing without any."""
    lines = text.splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        words = external.Completed(0, text).last_words
        raise ReportError(f"ncu's report holds no kernel: {words}")
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:]))))
    header, units, *body = rows
    where = {name: number for number, name in enumerate(header)}
    ranges = [number for number, name in enumerate(header) if "Range" in name]
    found = []
    for row in body:
        if len(row) != len(header) or not row[where["ID"]].strip().isdigit():
            continue
        kernel: dict[str, Any] = {
            "phase": _phase([row[number] for number in ranges]),
            "name": row[where["Kernel Name"]],
        }
        for metric, short in METRICS.items():
            value = _number(row[where[metric]]) if metric in where else None
            if short == "time":
                scale = _NANOSECONDS.get(units[where[metric]].strip(), 1.0) if metric in where else 1.0
                kernel["time_ns"] = None if value is None else value * scale
            else:
                kernel[short] = value
        found.append(kernel)
    if not found:
        raise ReportError("ncu's report holds no kernel: nothing ran on the GPU while it looked")
    return found


def summarise(kernels: Sequence[dict[str, Any]], *, reached: bool = False) -> dict[str, dict[str, Any]]:
    """The kernels of each phase by name, the largest first, with their mean counters weighted by time."""
    found: dict[str, dict[str, Any]] = {}
    for phase in (*PHASES, "whole"):
        chosen = [kernel for kernel in kernels if kernel["phase"] == phase]
        if not chosen:
            continue
        total = sum(kernel["time_ns"] or 0.0 for kernel in chosen)
        names = sorted({kernel["name"] for kernel in chosen})
        rows = [_row(name, [kernel for kernel in chosen if kernel["name"] == name], total) for name in names]
        rows.sort(key=lambda row: -row["own_ms"])
        found[phase] = {
            "iterations": 1,
            "kernels": {"total_ms": total / 1e6, "count": len(chosen), "per_step": None, "rows": rows[:ROWS]},
            "cudnn_algorithm": cudnn.algorithm(names),
            "notes": ["ncu runs kernels one at a time: gaps and overlap are not seen"]
            + (["stopped at the number of kernels that --launches allows"] if reached else []),
        }
    return found


def _row(name: str, kernels: Sequence[dict[str, Any]], total: float) -> dict[str, Any]:
    time = sum(kernel["time_ns"] or 0.0 for kernel in kernels)
    row = {"name": name, "calls": len(kernels), "own_ms": time / 1e6, "share": time / total if total else 0.0}
    for counter in _PERCENT:
        known = [
            (kernel[counter], kernel["time_ns"] or 0.0) for kernel in kernels if kernel[counter] is not None
        ]
        weight = sum(weight for _, weight in known)
        row[counter] = sum(value * weight for value, weight in known) / weight if weight else None
    return row


def _phase(ranges: Sequence[str]) -> str:
    text = " ".join(ranges)
    return next((phase for phase in PHASES if phase in text), "whole")


def _number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None
