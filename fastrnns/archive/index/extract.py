"""The rows of one record: every figure is the record's own, or made from its samples as `history` makes it. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from fastrnns.archive import comparable
from fastrnns.archive.index.layout import DAMAGED, FACT, PROBLEM, RECORD, RESULT, Partition, Stamp
from fastrnns.measure import stats
from fastrnns.phases import ALL as PHASES

Row = dict[str, Any]


@dataclass
class Rows:
    """Rows by kind, as they are gathered; facts by their digest, for many records share one."""

    records: list[Row] = field(default_factory=list)
    results: list[Row] = field(default_factory=list)
    facts: dict[str, Row] = field(default_factory=dict)
    damaged: list[Row] = field(default_factory=list)

    def by_kind(self) -> dict[str, list[Row]]:
        """The rows under the names of their kinds."""
        return {
            RECORD: self.records,
            RESULT: self.results,
            FACT: list(self.facts.values()),
            DAMAGED: self.damaged,
        }


def add_record(rows: Rows, where: Partition, name: str, stamp: Stamp, record: Mapping[str, Any]) -> None:
    """Add the rows of one record, which lies in the file `name` of its machine's folder."""
    fingerprint = record["fingerprint"]
    hardware, software, ids = fingerprint["hardware"], fingerprint["software"], fingerprint["ids"]
    options, problem = record["options"], record["problem"] or {}
    keys = {
        "name": name,
        "machine": where.machine,
        "month": where.month,
        "id": record["id"],
        "kind": record["kind"],
        "started": moment(record["started_at"]),
        "verdict": record["verdict"]["status"],
        "device": options.get("device"),
        "hardware_id": ids["hardware"],
        "software_id": ids["software"],
        "torch": _text(_at(software, "torch"), "version") or options.get("torch"),
    }
    project = _at(software, "project")
    dirty = project.get("dirty")
    rows.records.append(
        {
            **keys,
            **stamp._asdict(),
            **{name: problem.get(name) for name in PROBLEM},
            "started_text": record["started_at"],
            "sequence": record["sequence"],
            "duration_s": float(record["duration_s"]),
            "exit_code": record["exit_code"],
            "reasons": record["verdict"]["reasons"],
            "models": [result["model"] for result in record["results"]],
            "argv": record["command"]["argv"],
            "state_id": ids["state"],
            "cpu": _text(_at(hardware, "cpu"), "brand"),
            "gpus": [str(gpu.get("model")) for gpu in hardware.get("gpus") or () if isinstance(gpu, Mapping)],
            "python": _text(_at(software, "python"), "version"),
            "driver": _text(_at(software, "driver"), "nvidia"),
            "kernel": _text(_at(software, "kernel"), "release"),
            "commit": _text(project, "commit"),
            "dirty": dirty if isinstance(dirty, bool) else None,
            "steps": json.dumps(_steps(record)),
            "setting": _fact(rows, "setting", _setting(record)),
            "software": _fact(rows, "software", software),
            "hardware": _fact(rows, "hardware", hardware),
        }
    )
    for index, result in enumerate(record["results"]):
        own = result.get("problem") or problem  # in a sweep each result has sizes of its own
        about = {**keys, "place": index, **{name: own.get(name) for name in PROBLEM}}
        rows.results.extend({**about, **row} for row in _results(result))


def add_damaged(rows: Rows, where: Partition, name: str, stamp: Stamp, problem: str) -> None:
    """Add the row of a file that is no record; `problem` is its sentence without the path that it begins with."""
    rows.damaged.append({"name": name, **where._asdict(), **stamp._asdict(), "problem": problem})


def moment(text: str) -> datetime | None:
    """The time of a record, in UTC and to the millisecond; None for a day that no calendar has."""
    fraction = (text[20:-1] + "000")[:3] if text[19] == "." else "000"
    try:
        return datetime.fromisoformat(f"{text[:19]}.{fraction}")
    except ValueError:
        return None


def _results(result: Mapping[str, Any]) -> Iterator[Row]:
    about = {
        "model": result["model"],
        "model_group": result["group"],
        "dtype": result["dtype"],
        "status": result["status"],
        "error": result["error"],
        "backend": result["backend"],
    }
    timed = [(phase, result[phase]) for phase in PHASES if result.get(phase)]
    for phase, part in timed:
        low, high = part["ci95"] or (None, None)
        samples = [
            [math.nan if value is None else value for value in series] for series in part["samples"] or ()
        ]
        yield {
            **about,
            "phase": phase,
            "median_ms": part["median"],
            "low_ms": low,
            "high_ms": high,
            "mean_ms": part["mean"],
            "std_ms": part["std"],
            "min_ms": part["min"],
            "n": part["n"],
            "process_medians_ms": stats.process_medians(stats.measured(samples, part.get("excluded"))),
        }
    if not timed:
        yield {**about, "phase": None}


def _setting(record: Mapping[str, Any]) -> dict[str, Any]:
    """What decides whether records stand in one series, in the record's own order."""
    options = record["options"]
    kept = {key: options[key] for key in options if key == "device" or key in comparable.OPTIONS}
    return {"problem": record["problem"], "options": kept}


def _steps(record: Mapping[str, Any]) -> list[Any]:
    return [
        {"name": step["name"], "current": step["current"]}
        for step in record["environment"]["before"]
        if step["name"] in comparable.STEPS
    ]


def _fact(rows: Rows, kind: str, value: Any) -> str:
    text = json.dumps(value)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    rows.facts.setdefault(f"{kind} {digest}", {"fact": kind, "digest": digest, "json": text})
    return digest


def _at(part: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = part.get(name)
    return found if isinstance(found, Mapping) else {}


def _text(part: Mapping[str, Any], name: str) -> str | None:
    found = part.get(name)
    return None if found is None else str(found)
