"""asv's results, version 2: one file of `results/<machine>/`, in seconds, and what asv wants beside it."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from fastrnns.archive.export.series import MS_A_SECOND, Series, commit, cpu_brand, series_of
from fastrnns.archive.naming import machine_folder
from fastrnns.errors import UsageError

NOT_HELD = (
    "warm-up, the environment, the watch, the verdict, failed models; asv looks for this file as"
    " results/<machine>/<commit>-<environment>.json, with machine.json beside it and benchmarks.json above,"
    " which --output DIR writes, too"
)
COLUMNS = (
    "result", "params", "version", "started_at", "duration", "stats_ci_99_a", "stats_ci_99_b", "stats_q_25",
    "stats_q_75", "stats_number", "stats_repeat", "samples", "profile",
)  # fmt: skip
ENVIRONMENT = "existing"
BENCHMARK_VERSION = "1"


def export(record: Mapping[str, Any]) -> str:
    """The results file as JSON."""
    if commit(record) is None:
        raise UsageError(
            f"asv orders results by commit, and record {record['id']} does not know its own; use csv"
        )
    machine = _machine(record)
    started = int(datetime.fromisoformat(record["started_at"].replace("Z", "+00:00")).timestamp() * 1000)
    python = (record["fingerprint"]["software"].get("python") or {}).get("version") or ""
    return json.dumps(
        {
            "commit_hash": commit(record),
            "env_name": ENVIRONMENT,
            "date": started,
            "params": {key: value for key, value in machine.items() if key != "version"} | {"python": python},
            "python": python,
            "requirements": {},
            "env_vars": {},
            "result_columns": list(COLUMNS),
            "results": {_name(series): _row(series, started) for series in series_of(record)},
            "durations": {},
            "version": 2,
        },
        indent=1,
    )


def tree(record: Mapping[str, Any]) -> dict[str, str]:
    """All files of an asv results folder that holds this record, by path."""
    machine = _machine(record)
    name = f"{(commit(record) or '')[:8]}-{ENVIRONMENT}.json"
    benchmarks: dict[str, Any] = {_name(series): _benchmark(series) for series in series_of(record)}
    return {
        f"{machine['machine']}/{name}": export(record),
        f"{machine['machine']}/machine.json": json.dumps(machine, indent=1),
        "benchmarks.json": json.dumps({**benchmarks, "version": 2}, indent=1),
    }


def trees(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The files of several records: their benchmarks together; of one machine, commit and build the last record."""
    found: dict[str, str] = {}
    benchmarks: dict[str, Any] = {}
    for record in records:
        found |= tree(record)
        benchmarks |= json.loads(found["benchmarks.json"])
    return {**found, "benchmarks.json": json.dumps(benchmarks, indent=1)}


def _machine(record: Mapping[str, Any]) -> dict[str, Any]:
    hardware, kernel = (
        record["fingerprint"]["hardware"],
        record["fingerprint"]["software"].get("kernel") or {},
    )
    memory, cpus = hardware.get("memory_gib"), (hardware.get("topology") or {}).get("cpus")
    return {
        "machine": machine_folder(record["fingerprint"]),
        "os": " ".join(filter(None, (kernel.get("system"), kernel.get("release")))),
        "arch": (hardware.get("cpu") or {}).get("architecture") or "",
        "cpu": cpu_brand(record) or "",
        "num_cpu": "" if cpus is None else str(cpus),
        "ram": "" if memory is None else f"{memory:g} GiB",
        "version": 1,
    }


def _name(series: Series) -> str:
    return f"fastrnns.{series.group}.{series.model}.time_{series.phase}"


def _row(series: Series, started: int) -> list[Any]:
    """The record's median, the quartiles of all samples; what we do not know (a 99 % interval) is null."""
    median = series.summary["median"]
    samples = [value / MS_A_SECOND for value in series.pooled]
    quarters = statistics.quantiles(samples, method="inclusive") if len(samples) > 1 else samples * 3
    return [
        [None if median is None else median / MS_A_SECOND], [], BENCHMARK_VERSION, started, None,
        [None], [None], [quarters[0]], [quarters[2]], [1], [len(samples)], [samples], None,
    ]  # fmt: skip


def _benchmark(series: Series) -> dict[str, Any]:
    return {
        "name": _name(series),
        "type": "time",
        "unit": "seconds",
        "params": [],
        "param_names": [],
        "version": BENCHMARK_VERSION,
        "code": "",
        "timeout": 60.0,
        "number": 0,
        "repeat": 0,
        "rounds": 1,
        "sample_time": 0.01,
        "min_run_count": 2,
        "warmup_time": -1,
    }
