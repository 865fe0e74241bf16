"""pyperf 1.0: a suite of benchmarks, a run a process, values in seconds (pyperf, JSON format)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastrnns.archive.export.series import MS_A_SECOND, Series, cpu_brand, facts, series_of

NOT_HELD = (
    "the environment before and after, the watch, failed models, excluded iterations; mean and interval are"
    " computed anew from the values, which pyperf takes to be independent"
)


def export(record: Mapping[str, Any]) -> str:
    """The suite as JSON."""
    suite = {
        "version": "1.0",
        "metadata": _metadata(record),
        "benchmarks": [_benchmark(record, series) for series in series_of(record)],
    }
    return json.dumps(suite, indent=1, sort_keys=True)


def _metadata(record: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {f"fastrnns_{key}": value for key, value in facts(record).items()}
    python = record["fingerprint"]["software"].get("python") or {}
    if python.get("version"):
        found["python_version"] = python["version"]
    if cpu_brand(record):
        found["cpu_model_name"] = cpu_brand(record)
    return found


def _benchmark(record: Mapping[str, Any], series: Series) -> dict[str, Any]:
    runs = []
    for index, values in enumerate(series.samples):
        if not values:
            continue
        run: dict[str, Any] = {
            "metadata": {"date": record["started_at"].replace("T", " ").rstrip("Z")},
            "values": [value / MS_A_SECOND for value in values],
        }
        warmup = series.warmup[index] if index < len(series.warmup) else ()
        if warmup:
            run["warmups"] = [[1, value / MS_A_SECOND] for value in warmup]
        runs.append(run)
    metadata = {"name": series.name, "unit": "second", "loops": 1}
    if series.backend:
        metadata["fastrnns_backend"] = series.backend
    return {"metadata": metadata, "runs": runs}
