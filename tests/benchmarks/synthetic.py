"""Synthetic records for benchmarks of the archive: nights of a fleet, made from the committed bench records.

A node has one of the fleet's hardware ids, one of the real records as its nightly bench, and a speed of its own. From
night to night the torch version, the commit, the ids, the times of day and every sample change; all else is the real
record's. `slim` cuts a record down to what keeps a million of them readable within an hour.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from fastrnns.archive import naming, store

ROOT = Path(__file__).resolve().parents[2]
FIRST_NIGHT = datetime(2027, 1, 1, 1, tzinfo=timezone.utc)
PHASES = ("forward", "backward")
STEP_NIGHT, STEP = 60, 1.03  # from that night on a build is slower, for a history to find
Record = dict[str, Any]


@dataclass(frozen=True)
class Fleet:
    """So many nodes, which are of so many kinds of hardware, each with a record a night."""

    nodes: int
    hardware: int
    seed: int = 17


def real_records() -> list[Record]:
    """The bench records in results/, oldest first."""
    return [
        entry.record for entry in store.Archive(ROOT / "results").list() if entry.record["kind"] == "bench"
    ]


def slim(record: Record, models: int = 1, processes: int = 3, samples: int = 10) -> Record:
    """The record with few samples, without what the watch saw and without the list of packages."""
    results = [dict(result) for result in record["results"][:models]]
    for result in results:
        for phase in PHASES:
            if part := result[phase]:
                kept = {
                    key: [series[:samples] for series in part[key][:processes]]
                    for key in ("samples", "warmup")
                }
                result[phase] = {**part, **kept, "excluded": None}
        result |= {"started_ns": None, "details": {}, "order": None, "roofline": None}
    software = {key: item for key, item in record["fingerprint"]["software"].items() if key != "packages"}
    fingerprint = {**record["fingerprint"], "software": software}
    environment = {**record["environment"], "watch": None, "disturbances": []}
    return {**record, "results": results, "fingerprint": fingerprint, "environment": environment}


def night(
    fleet: Fleet, templates: Sequence[Record], number: int, nodes: Sequence[int]
) -> Iterator[tuple[str, Record]]:
    """The records of some nodes in one night, each with its machine's folder; not sealed."""
    dice = random.Random(fleet.seed * 1_000_003 + number * 1_009 + nodes[0])
    date = FIRST_NIGHT + timedelta(days=number)
    per_machine = -(-fleet.nodes // fleet.hardware)
    for node in nodes:
        template = templates[node % len(templates)]
        machine = node % fleet.hardware
        speed = random.Random(node).lognormvariate(0, 0.02) * (STEP if number >= STEP_NIGHT else 1.0)
        fingerprint = template["fingerprint"]
        software = fingerprint["software"]
        torch = {**(software.get("torch") or {}), "version": f"2.15.0.dev{date:%Y%m%d}"}
        project = {**(software.get("project") or {}), "commit": f"{number // 7 + 1:040x}"}
        ids = {
            **fingerprint["ids"],
            "hardware": f"{machine + 1:08x}{'5a' * 4}",
            "software": f"{number + 1:016x}",
        }
        started = date + timedelta(seconds=dice.randrange(6 * 3600), milliseconds=dice.randrange(1000))
        record = {
            **template,
            "id": f"{dice.getrandbits(48):012x}",
            "started_at": f"{started:%Y-%m-%dT%H:%M:%S}.{started.microsecond // 1000:03d}Z",
            "sequence": number * per_machine + node // fleet.hardware + 1,
            "fingerprint": {
                **fingerprint,
                "software": {**software, "torch": torch, "project": project},
                "ids": ids,
            },
            "results": [_timed(result, speed, dice) for result in template["results"]],
        }
        yield naming.machine_folder(record["fingerprint"]), record


def _timed(result: Record, speed: float, dice: random.Random) -> Record:
    made = dict(result)
    for phase in PHASES:
        if not (part := result[phase]):
            continue
        scales = [speed * dice.lognormvariate(0, 0.003) for _ in part["samples"]]
        samples = [
            [value and value * scale for value in series]
            for series, scale in zip(part["samples"], scales, strict=True)
        ]
        scale = scales[0] if scales else speed
        figures = {key: part[key] and part[key] * scale for key in ("median", "mean", "std", "min")}
        interval = part["ci95"] and [bound * scale for bound in part["ci95"]]
        made[phase] = {**part, **figures, "ci95": interval, "samples": samples}
    return made
