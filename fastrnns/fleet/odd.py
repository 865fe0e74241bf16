"""Which node is the odd one out among nodes of the same hardware: numbers in, readings out. Pure.

A node is odd in a model and phase when three things hold together, each of which fails alone:

- It stands out among the nodes: its modified z score, 0.6745 (x - median) / MAD over the nodes' log times, is beyond
  3.5 (Iglewicz and Hoaglin 1993, "How to detect and handle outliers"). Of few nodes the MAD is small by chance as often
  as not.
- It differs from the others beyond the noise of processes: Welch's t test, or Yuen's, of its log per-process medians
  against those of all others, as `compare` judges two records (fastrnns.measure.difference), adjusted over all nodes,
  models and phases after Holm. Of many nodes which all differ a little that finds half of them.
- It is at least `compare`'s margin (1 %) away from the median node. Less is of no interest.

Of two nodes that differ nothing says which is the odd one: both are named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastrnns.archive import comparable
from fastrnns.archive.compare import ALPHA, MARGIN, MIN_PROCESSES
from fastrnns.measure import stats
from fastrnns.measure.difference import holm, unpaired
from fastrnns.phases import ALL as PHASES

Record = Mapping[str, Any]

CUT = 3.5  # Iglewicz and Hoaglin 1993
TO_SIGMA = 0.6745  # the median absolute deviation of a normal distribution, in its standard deviations
LEAST_MAD = 1e-4  # log time: as `difference.LEAST_ERROR`


@dataclass(frozen=True)
class Reading:
    """One node's time of one model and phase beside those of its like."""

    node: int
    model: str
    phase: str
    median_ms: float
    ratio: float  # to the median over the group's nodes; above 1 is slower
    z: float | None  # modified z score; None of fewer than three nodes
    p: float | None  # Holm-adjusted; None where there are too few processes
    odd: bool = False


@dataclass(frozen=True)
class Group:
    """Nodes whose records may be compared: the same hardware, problem and options."""

    hardware: str | None
    nodes: tuple[int, ...]
    readings: tuple[Reading, ...]
    notes: tuple[str, ...]

    @property
    def odd(self) -> tuple[Reading, ...]:
        """What stands out."""
        return tuple(reading for reading in self.readings if reading.odd)


def groups(records: Mapping[int, Record]) -> list[Group]:
    """The nodes by what may be compared, each group judged; `records` holds the one of each node, by its number.

    A record that is invalid is in no group: it says nothing of its node's speed.
    """
    sorted_out: list[list[int]] = []
    for number, record in records.items():
        if record["verdict"]["status"] == "invalid":
            continue
        mates = next(
            (mates for mates in sorted_out if not comparable.refusals(records[mates[0]], record)), None
        )
        if mates is None:
            sorted_out.append([number])
        else:
            mates.append(number)
    found = [_judged({number: records[number] for number in mates}) for mates in sorted_out]
    return [
        replace(group, notes=(*group.notes, *_apart(found[:index], group, records)))
        for index, group in enumerate(found)
    ]


def _apart(before: Sequence[Group], group: Group, records: Mapping[int, Record]) -> list[str]:
    """Why nodes of one hardware are not set against each other: it may be what is wrong with one of them."""
    mates = [each for each in before if each.hardware is not None and each.hardware == group.hardware]
    return [
        f"node {group.nodes[0]} is of the hardware of node {each.nodes[0]} and not comparable:"
        f" {comparable.sentence(comparable.refusals(records[each.nodes[0]], records[group.nodes[0]]))}"
        for each in mates[:1]
    ]


def _judged(records: Mapping[int, Record]) -> Group:
    logs = {number: _logs(record) for number, record in records.items()}
    keys = list(dict.fromkeys(key for each in logs.values() for key in each))
    readings = [
        reading
        for key in keys
        for reading in _readings(key, {n: logs[n][key] for n in logs if key in logs[n]})
    ]
    known = [reading.p for reading in readings if reading.p is not None]
    adjusted = iter(holm(known))
    found = []
    for reading in readings:
        p = None if reading.p is None else next(adjusted)
        stands_out = reading.z is None or abs(reading.z) > CUT
        differs = p is not None and p < ALPHA
        far = abs(math.log(reading.ratio)) > math.log1p(MARGIN)
        found.append(replace(reading, p=p, odd=stands_out and differs and far))
    first = next(iter(records.values()))
    return Group(comparable.hardware_id(first), tuple(records), tuple(found), tuple(_notes(records, found)))


def _readings(key: tuple[str, str], logs: Mapping[int, Sequence[float]]) -> list[Reading]:
    centres = {number: statistics.median(values) for number, values in logs.items()}
    middle = statistics.median(centres.values())
    mad = max(LEAST_MAD, statistics.median(abs(centre - middle) for centre in centres.values()))
    found = []
    for number, centre in centres.items():
        others = [value for other, values in logs.items() if other != number for value in values]
        enough = len(logs[number]) >= MIN_PROCESSES and len(others) >= MIN_PROCESSES
        p = unpaired(others, logs[number]).p_different() if enough else None
        z = TO_SIGMA * (centre - middle) / mad if len(centres) > 2 else None
        # Of two nodes the median lies between them: the other one is what to set it against.
        base = middle if len(centres) != 2 else statistics.median(others)
        found.append(Reading(number, *key, math.exp(centre), math.exp(centre - base), z, p))
    return found


def _logs(record: Record) -> dict[tuple[str, str], list[float]]:
    """Logs of the per-process medians, by model and phase."""
    found = {}
    for result in record.get("results") or ():
        for phase in PHASES:
            part = result.get(phase)
            if result.get("status") == "ok" and part:
                values = stats.log_medians(stats.measured(part["samples"], part.get("excluded")))
                if values:
                    found[str(result["model"]), phase] = values
    return found


def _notes(records: Mapping[int, Record], readings: Sequence[Reading]) -> list[str]:
    """What a reader must know beside the readings."""
    numbers = list(records)
    notes = []
    if len(numbers) == 1:
        return [f"node {numbers[0]} has no like: nothing to set it against"]
    if all(reading.p is None for reading in readings):
        notes.append(
            f"too few processes to tell a node from noise: give --processes {MIN_PROCESSES} or more, or leave it out"
        )
    if len(numbers) == 2 and any(reading.odd for reading in readings):
        notes.append("of two nodes that differ nothing says which is the odd one")
    base = records[numbers[0]]
    for number in numbers[1:]:
        changes = comparable.software_changes(base, records[number])
        if changes:
            notes.append(
                f"node {number} has other software than node {numbers[0]}: {comparable.sentence(changes)}"
            )
    return notes
