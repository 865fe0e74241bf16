"""Whether two records may be compared: the fields that must agree, and the ones that differ by name. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from env import fingerprint

Record = Mapping[str, Any]

# Options that change what is measured. Absent on both sides is equal; absent on one is a difference.
OPTIONS = (
    "dtype",
    "tf32",
    "cache",
    "threads",
    "interop_threads",
    "products",
    "fuser",
    "executor",
    "deterministic",
    "cublas_workspace_config",
    "cudnn_benchmark",
    "cuda_pointwise",
    "lock_gpu_clocks",
)
UNRECORDED = {"cache": "warm"}  # what held before an option was recorded
THREAD_OPTIONS = frozenset(
    {"threads", "lock_gpu_clocks"}
)  # of the machine: may differ within each machine's ratio
NOTED_OPTIONS = ("warmup", "nloops")  # another protocol, the same quantity: said, not refused
STEPS = ("governor", "turbo", "smt")  # settings of the machine that change its speed
KINDS = frozenset({"bench", "calibrate", "reproduce"})
SHOWN = 5  # differences listed in one sentence


@dataclass(frozen=True)
class Difference:
    """One field on which the records disagree; None is: not in that record."""

    field: str
    base: Any
    new: Any

    def __str__(self) -> str:
        """Name the field and both values."""
        return f"{self.field} ({_short(self.base)} / {_short(self.new)})"


def _short(value: Any) -> str:
    text = "not recorded" if value is None else str(value) or "-"
    return text if len(text) <= 60 else text[:57] + "..."


def leaf_differences(base: Any, new: Any, prefix: str = "") -> Iterator[Difference]:
    """Every leaf of two JSON trees that differs, by its dotted path."""
    if isinstance(base, Mapping) and isinstance(new, Mapping):
        for key in sorted(set(base) | set(new)):
            yield from leaf_differences(
                base.get(key), new.get(key), f"{prefix}.{key}" if prefix else str(key)
            )
    elif base != new:
        yield Difference(prefix, base, new)


def device_kind(record: Record) -> str | None:
    """`cuda` of `cuda:1`; None where the record does not say."""
    device = (record.get("options") or {}).get("device")
    return None if device is None else str(device).partition(":")[0]


def hardware_id(record: Record) -> str | None:
    """The id of the machine's hardware, which holds nothing that wanders."""
    value = ((record.get("fingerprint") or {}).get("ids") or {}).get("hardware")
    return None if value is None else str(value)


def hardware_differences(base: Record, new: Record) -> list[Difference]:
    """Nothing where the hardware ids agree; else the parts that differ, or the ids where no part tells."""
    base_id, new_id = hardware_id(base), hardware_id(new)
    if base_id is not None and base_id == new_id:
        return []
    prints = [dict(record.get("fingerprint") or {}) for record in (base, new)]
    parts = [fingerprint.identity("hardware", side.get("hardware") or {}) for side in prints]
    found = list(leaf_differences(parts[0], parts[1], "hardware"))
    return found or [Difference("hardware id", base_id, new_id)]


def software_changes(base: Record, new: Record) -> list[Difference]:
    """What the software fingerprints differ in: what a difference in time may be due to."""
    parts = [(record.get("fingerprint") or {}).get("software") or {} for record in (base, new)]
    return list(leaf_differences(parts[0], parts[1]))


def refusals(base: Record, new: Record, *, within_machine: bool = False) -> list[Difference]:
    """The fields that forbid a comparison, the most telling first."""
    found: list[Difference] = []
    if base.get("kind") not in KINDS or new.get("kind") not in KINDS:
        found.append(Difference("kind", base.get("kind"), new.get("kind")))
    for index, record in enumerate((base, new)):
        verdict = record.get("verdict") or {}
        if verdict.get("status") == "invalid":
            reasons = "; ".join(map(str, verdict.get("reasons") or ())) or "no reason recorded"
            said = f"invalid: {reasons}"
            found.append(Difference("verdict", said, "-") if index == 0 else Difference("verdict", "-", said))
    if not within_machine:
        found += hardware_differences(base, new)
    if device_kind(base) != device_kind(new):
        found.append(Difference("device kind", device_kind(base), device_kind(new)))
    found += leaf_differences(base.get("problem") or {}, new.get("problem") or {}, "problem")
    base_options, new_options = base.get("options") or {}, new.get("options") or {}
    for key in OPTIONS:
        if within_machine and key in THREAD_OPTIONS:
            continue
        usual = UNRECORDED.get(key)
        found += leaf_differences(base_options.get(key, usual), new_options.get(key, usual), key)
    if not within_machine:
        found += _step_differences(base, new)
    return found


def series_key(record: Record) -> Hashable:
    """Equal for any two records between which `refusals` finds nothing; what else can part them, `joins` says."""
    return hardware_id(record), _setting_key(record)


class SeriesKeys:
    """The series keys of many records; the options and problem that records share as objects are frozen once."""

    def __init__(self) -> None:
        """Know none yet."""
        self._known: dict[
            tuple[int, int], tuple[Any, Any, Hashable]
        ] = {}  # holds the objects: an id is used once

    def of(self, record: Record) -> Hashable:
        """As `series_key`."""
        options, problem = record.get("options"), record.get("problem")
        place = (id(options), id(problem))
        if place not in self._known:
            self._known[place] = (options, problem, _setting_key(record))
        return hardware_id(record), self._known[place][-1]


def _setting_key(record: Record) -> Hashable:
    options = record.get("options") or {}
    return (
        device_kind(record),
        _frozen(record.get("problem") or {}),
        *[_frozen(options.get(key, UNRECORDED.get(key))) for key in OPTIONS],
    )


def joins(base: Record, new: Record) -> bool:
    """Whether `refusals` finds nothing, of records of such kinds and verdicts whose series keys are equal."""
    return hardware_id(base) is not None and next(_step_differences(base, new), None) is None


def _frozen(value: Any) -> Hashable:
    """A JSON value as `leaf_differences` sees it: a key without a value is no key."""
    if isinstance(value, dict):
        return frozenset((key, _frozen(item)) for key, item in value.items() if item is not None)
    return tuple(map(_frozen, value)) if isinstance(value, list) else cast(Hashable, value)


def _step_differences(base: Record, new: Record) -> Iterator[Difference]:
    states = []
    for record in (base, new):
        steps = (record.get("environment") or {}).get("before") or []
        states.append({step.get("name"): step.get("current") for step in steps if isinstance(step, Mapping)})
    for name in STEPS:
        before, after = states[0].get(name), states[1].get(name)
        if (
            before is not None and after is not None and before != after
        ):  # unknown on one side: noted elsewhere
            yield Difference(f"environment {name}", before, after)


def remarks(base: Record, new: Record) -> list[str]:
    """What does not forbid a comparison and ought to be known beside it."""
    found = []
    for side, record in (("base", base), ("new", new)):
        verdict = record.get("verdict") or {}
        if verdict.get("status") == "tainted":
            reasons = "; ".join(map(str, verdict.get("reasons") or ())) or "no reason recorded"
            found.append(f"{side} is tainted: {reasons}")
        if verdict.get("status") is None:
            found.append(f"{side} carries no verdict on itself")
    base_options, new_options = base.get("options") or {}, new.get("options") or {}
    found += [
        str(Difference(key, base_options.get(key), new_options.get(key))) + ": another protocol on each side"
        for key in NOTED_OPTIONS
        if base_options.get(key) != new_options.get(key)
    ]
    return found


def sentence(differences: list[Difference]) -> str:
    """The refusal as one sentence, with the fields named."""
    shown = ", ".join(map(str, differences[:SHOWN]))
    more = len(differences) - SHOWN
    return shown + (f" and {more} more" if more > 0 else "")
