"""Google Benchmark's JSON: a repetition a process (its mean), aggregates over them, in milliseconds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from fastrnns.archive.export.series import Series, facts, series_of

NOT_HELD = (
    "single iterations (a repetition is the mean of a process), warm-up, the environment, the watch, failed"
    " models; cpu_time is left out, because only elapsed time was measured"
)


def export(record: Mapping[str, Any]) -> str:
    """The report as JSON."""
    threads = record["options"].get("threads")
    rows = [
        row
        for index, series in enumerate(series_of(record))
        for row in _rows(series, index, threads if isinstance(threads, int) else None)
    ]
    cpus = (record["fingerprint"]["hardware"].get("topology") or {}).get("cpus")
    context = {
        "date": record["started_at"],
        "executable": "fastrnns",
        "num_cpus": cpus,
        "json_schema_version": 1,
    }
    return json.dumps({"context": {**context, **facts(record)}, "benchmarks": rows}, indent=1)


def _rows(series: Series, family: int, threads: int | None) -> Iterator[dict[str, Any]]:
    means = [(len(values), statistics.fmean(values)) for values in series.samples if values]
    common = {
        "name": series.name,
        "family_index": family,
        "per_family_instance_index": 0,
        "run_name": series.name,
        "repetitions": len(means),
        "threads": threads,
        "time_unit": "ms",
    }
    for index, (count, mean) in enumerate(means):
        yield {
            **common,
            "run_type": "iteration",
            "repetition_index": index,
            "iterations": count,
            "real_time": mean,
        }
    values = [mean for _, mean in means]
    if len(values) < 2:
        return
    for name, figure in (
        ("mean", statistics.fmean),
        ("median", statistics.median),
        ("stddev", statistics.stdev),
    ):
        yield {
            **common,
            "name": f"{series.name}_{name}",
            "run_type": "aggregate",
            "aggregate_name": name,
            "aggregate_unit": "time",
            "iterations": len(values),
            "real_time": figure(values),
        }
