"""A record as a table: one row an iteration, warm-up included; shared by csv and parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fastrnns.phases import ALL, STREAM

COLUMNS = (
    "record", "started_at", "kind", "verdict", "hardware_id", "device", "model", "group", "dtype", "backend",
    "phase", "process", "part", "iteration", "time_ms", "started_ns", "excluded",
)  # fmt: skip


def rows(record: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The rows in the order of COLUMNS; unknown is None."""
    head = (
        record["id"],
        record["started_at"],
        record["kind"],
        record["verdict"]["status"],
        record["fingerprint"]["ids"]["hardware"],
        record["options"].get("device"),
    )
    for result in record["results"]:
        about = (*head, result["model"], result["group"], result["dtype"], result["backend"])
        for phase in ALL:
            part = result.get(phase)
            if result["status"] != "ok" or part is None:
                continue
            for name, key in (("warmup", "warmup"), ("timed", "samples")):
                for process, series in enumerate(part[key]):
                    timed = name == "timed" and phase in STREAM
                    starts = _of(result.get("started_ns"), process) if timed else []
                    left_out = set(_of(part.get("excluded"), process)) if name == "timed" else set()
                    for iteration, value in enumerate(series):
                        start = starts[iteration] if iteration < len(starts) else None
                        yield (*about, phase, process, name, iteration, value, start, iteration in left_out)


def _of(series: Any, process: int) -> list[Any]:
    return list(series[process]) if series and process < len(series) else []
