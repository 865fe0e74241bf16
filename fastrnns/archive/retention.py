"""Which records a rule of retention removes, and which stay because of what refers to them. Pure.

A record stays, however old, if a record that stays names it (`--against`, what was reproduced, the ceilings of a
roofline), was measured in a pair with it, or is judged by its noise floor; and if it is the newest of its kind on
its hardware: the calibration, the ceilings and the `latest` that the next command will look for.
"""

from __future__ import annotations

import bisect
import graphlib
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from fastrnns.archive import calibration, comparable
from fastrnns.archive.comparable import Record
from fastrnns.errors import HarnessError


@dataclass(frozen=True)
class Rule:
    """What may go: what is older than an age, beyond the newest so many of a command, or both where both are given."""

    older_than: timedelta | None = None
    keep: int | None = None


@dataclass(frozen=True)
class Facts:
    """What is looked at of a record, which is little, so that those of a large archive fit into memory."""

    path: Path
    id: str
    kind: str
    started_at: datetime
    command: tuple[str, ...]
    bytes: int  # with the files beside it
    file_sha256: str  # of its file, as it was judged
    mentions: frozenset[str]  # ids, and beginnings of ids, that it holds
    pair: str | None
    calibrates: bool
    setting: Hashable  # equal for records that one calibration may serve
    thin: Record  # for what the setting leaves open
    fault: str = ""  # why it is not for a rule to judge

    @property
    def hardware(self) -> str:
        """The hardware id; the folder, for a machine that could not be told from another."""
        return comparable.hardware_id(self.thin) or str(self.path.parent)


@dataclass(frozen=True)
class Plan:
    """The records that go, in the order in which they do, and why others that the rule names stay."""

    remove: tuple[Facts, ...]
    stay: tuple[tuple[Facts, str], ...]


def thin(record: Record) -> dict[str, Any]:
    """What `comparable.joins` and the hardware id need of a record."""
    prints, verdict = record.get("fingerprint") or {}, record.get("verdict") or {}
    before = (record.get("environment") or {}).get("before") or ()
    steps = [{key: step.get(key) for key in ("name", "current")} for step in before]
    return {
        "kind": record.get("kind"),
        "verdict": {"status": verdict.get("status")},
        "fingerprint": {"ids": {"hardware": (prints.get("ids") or {}).get("hardware")}},
        "environment": {"before": [step for step in steps if step["name"] in comparable.STEPS]},
    }


def judge(
    records: Sequence[Facts], rule: Rule, now: datetime, protected: Mapping[Path, str] | None = None
) -> Plan:
    """Apply a rule to all records of an archive, oldest first; `protected` says why some stay in any case."""
    wanted = {facts.path: facts for facts in _wanted(records, rule, now)}
    stay: dict[Path, str] = {}
    for path, reason in (*_by_themselves(records), *(protected or {}).items()):
        if path in wanted:
            stay.setdefault(path, reason)
    links = _Links(records)
    kept = [facts for facts in records if facts.path not in wanted or facts.path in stay]
    while kept:
        facts = kept.pop()
        for other, reason in links.of(facts):
            if other.path in wanted and other.path not in stay:
                stay[other.path] = reason
                kept.append(other)
    gone = [facts for path, facts in wanted.items() if path not in stay]
    return Plan(tuple(_in_turn(gone, links)), tuple((wanted[path], why) for path, why in stay.items()))


def _wanted(records: Sequence[Facts], rule: Rule, now: datetime) -> Iterator[Facts]:
    newer: dict[Hashable, int] = defaultdict(int)
    for facts in reversed(records):
        key = (facts.path.parent, facts.kind, facts.command)
        newer[key] += 1
        old = rule.older_than is None or now - facts.started_at > rule.older_than
        if old and (rule.keep is None or newer[key] > rule.keep):
            yield facts


def _by_themselves(records: Sequence[Facts]) -> Iterator[tuple[Path, str]]:
    newest = {(facts.hardware, facts.kind): facts for facts in records}
    newest |= {(facts.hardware, "usable"): facts for facts in records if facts.calibrates}
    by_id: dict[str, list[Facts]] = defaultdict(list)
    for facts in records:
        by_id[facts.id].append(facts)
        if facts.fault:
            yield facts.path, facts.fault
    for facts in newest.values():
        yield facts.path, f"it is the newest {facts.kind} of its hardware"
    for twins in by_id.values():
        if len(twins) > 1:
            yield from (
                (facts.path, f"the id {facts.id} is there twice; see archive check") for facts in twins
            )


class _Links:
    """What each record refers to."""

    def __init__(self, records: Sequence[Facts]) -> None:
        self.by_id = {facts.id: facts for facts in records}
        self.ids = sorted(self.by_id)
        self.pairs: dict[str, list[Facts]] = defaultdict(list)
        self.calibrations: dict[Hashable, list[Facts]] = defaultdict(list)
        for facts in records:
            if facts.pair is not None:
                self.pairs[facts.pair].append(facts)
            if facts.calibrates:
                self.calibrations[facts.setting].append(facts)

    def of(self, facts: Facts) -> Iterator[tuple[Facts, str]]:
        """The records that stay with this one, and why."""
        for other in self.named(facts):
            yield other, f"record {facts.id} refers to it"
        for other in self.pairs.get(facts.pair or "", ()):
            yield other, f"it was measured in a pair with record {facts.id}"
        if facts.kind not in comparable.KINDS:
            return
        for known in reversed(
            self.calibrations.get(facts.setting, ())
        ):  # as calibration.find: the last that suits
            if comparable.joins(known.thin, facts.thin):
                yield known, f"it calibrates record {facts.id}"
                return

    def named(self, facts: Facts) -> Iterator[Facts]:
        """The records whose id, or its beginning, this one holds."""
        for word in facts.mentions:
            for name in self.ids[bisect.bisect_left(self.ids, word) :]:
                if not name.startswith(word):
                    break
                if name != facts.id:
                    yield self.by_id[name]


def _in_turn(gone: Collection[Facts], links: _Links) -> list[Facts]:
    """What refers goes before what it refers to, so that an end in the middle leaves no name of what is not there."""
    by_path = {facts.path: facts for facts in gone}
    order: graphlib.TopologicalSorter[Path] = graphlib.TopologicalSorter(dict.fromkeys(by_path, ()))
    for facts in gone:
        for other in links.named(facts):
            if other.path in by_path:
                order.add(other.path, facts.path)
    try:
        turns = [by_path[path] for path in order.static_order()]
    except graphlib.CycleError as error:
        names = ", ".join(str(path) for path in error.args[1][:2])
        raise HarnessError(
            f"records refer to each other in a circle ({names}), which none that was written once can; "
            "see archive check"
        ) from None
    return sorted(turns, key=lambda facts: facts.kind == calibration.KIND)
