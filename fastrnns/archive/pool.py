"""Several records of the same thing as one: their processes are replicates of one another. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastrnns.archive import comparable
from fastrnns.archive.comparable import Record
from fastrnns.errors import MachineError
from fastrnns.phases import ALL as PHASES


def pooled(records: Sequence[Record]) -> dict[str, Any]:
    """One record with the processes of all; refuses records that differ in more than the time of day."""
    first = dict(records[0])
    if len(records) == 1:
        return first
    for other in records[1:]:
        differences = comparable.refusals(first, other) + comparable.software_changes(first, other)
        if differences:
            raise MachineError(
                f"records {first.get('id')} and {other.get('id')} cannot be pooled: "
                f"{comparable.sentence(differences)}; name them one by one"
            )
    results: dict[tuple[str, str], dict[str, Any]] = {}
    for record in records:
        for result in record.get("results") or ():
            key = (str(result.get("group")), str(result["model"]))
            if key not in results:
                results[key] = {**result, **{phase: _phase(result.get(phase)) for phase in PHASES}}
            else:
                _join(results[key], result)
    statuses = [record.get("verdict") or {} for record in records]
    worst = next(
        (v for word in ("invalid", "tainted") for v in statuses if v.get("status") == word), statuses[0]
    )
    return {
        **first,
        "id": "+".join(str(record.get("id")) for record in records),
        "options": {**(first.get("options") or {}), "pair": None},
        "results": list(results.values()),
        "verdict": worst,
    }


def _phase(part: Any) -> Any:
    if not part:
        return part
    samples = [list(series) for series in part.get("samples") or ()]
    return {**part, "samples": samples, "excluded": _excluded(part, len(samples))}


def _excluded(part: Any, count: int) -> list[list[int]]:
    found = [list(indices) for indices in part.get("excluded") or ()]
    return [*found, *([] for _ in range(count - len(found)))]


def _join(into: dict[str, Any], result: Any) -> None:
    if result.get("status") != "ok":  # a failure in one of them is a failure of the pool
        into |= {"status": result.get("status"), "error": result.get("error")}
    for phase in PHASES:
        part = _phase(result.get(phase))
        if part and into.get(phase):
            into[phase]["samples"] += part["samples"]
            into[phase]["excluded"] += part["excluded"]
        elif part:
            into[phase] = part
