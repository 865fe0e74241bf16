"""pytest-benchmark's JSON: a benchmark a model and phase, in seconds, statistics over all samples."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from fastrnns.archive.export.series import MS_A_SECOND, Series, commit, cpu_brand, dirty, facts, series_of

NOT_HELD = (
    "processes (all samples are pooled, and its statistics take them as independent), warm-up, intervals, the"
    " environment, the watch, failed models"
)
VERSION = "5.2.3"  # of the plugin whose layout this is


def export(record: Mapping[str, Any]) -> str:
    """The report as JSON."""
    software = record["fingerprint"]["software"]
    kernel, python = software.get("kernel") or {}, software.get("python") or {}
    return json.dumps(
        {
            "machine_info": {
                "node": record["fingerprint"]["ids"]["hardware"] or "unknown",
                "machine": (record["fingerprint"]["hardware"].get("cpu") or {}).get("architecture"),
                "system": kernel.get("system"),
                "release": kernel.get("release"),
                "python_version": python.get("version"),
                "python_implementation": python.get("implementation"),
                "cpu": {"brand_raw": cpu_brand(record)},
            },
            "commit_info": {"id": commit(record) or "unknown", "dirty": dirty(record)},
            "benchmarks": [_benchmark(record, series) for series in series_of(record)],
            "datetime": record["started_at"].rstrip("Z") + "+00:00",
            "version": VERSION,
        },
        indent=1,
    )


def _benchmark(record: Mapping[str, Any], series: Series) -> dict[str, Any]:
    seconds = [value / MS_A_SECOND for value in series.pooled]
    return {
        "group": "fastrnns",
        "name": f"test_{series.phase}[{series.model}]",
        "fullname": series.name,
        "params": {"model": series.model},
        "param": series.model,
        "extra_info": {**facts(record), "backend": series.backend, "dtype": series.dtype},
        "options": {"timer": "fastrnns", "warmup": bool(series.warmup and series.warmup[0])},
        "stats": {**_stats(seconds), "data": seconds},
    }


def _stats(values: Sequence[float]) -> dict[str, Any]:
    """The plugin's own figures, by its own definitions (Tukey's hinges for the quartiles)."""
    ordered = sorted(values)
    count, middle = len(ordered), len(ordered) // 2
    mean = statistics.fmean(ordered)
    stddev = statistics.stdev(ordered) if count > 1 else 0.0
    low = statistics.median(ordered[: middle + count % 2]) if count > 1 else ordered[0]
    high = statistics.median(ordered[middle:]) if count > 1 else ordered[0]
    reach = 1.5 * (high - low)
    inside = [value for value in ordered if low - reach <= value <= high + reach]
    far_iqr = count - len(inside)
    far_stddev = sum(not mean - stddev <= value <= mean + stddev for value in ordered)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": count,
        "median": statistics.median(ordered),
        "iqr": high - low,
        "q1": low,
        "q3": high,
        "iqr_outliers": far_iqr,
        "stddev_outliers": far_stddev,
        "outliers": f"{far_stddev};{far_iqr}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean if mean else 0.0,
        "total": sum(ordered),
        "iterations": 1,
    }
