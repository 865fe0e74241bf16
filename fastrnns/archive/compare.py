"""What two records say of each other: one verdict a model and phase, with its ratio and interval. Pure.

Faster and slower need two things: a difference beyond doubt (Welch's t test on the log of the per-process medians, or
Yuen's of trimmed means, corrected over all models and phases after Holm) and of a size beyond the margin. Same is
earned: the interval lies inside the margin (two one-sided tests). All else is inconclusive, and says why.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastrnns.archive import comparable
from fastrnns.archive.calibration import Calibration
from fastrnns.archive.comparable import Difference, Record
from fastrnns.archive.verdict import BACKWARD_SHARE, disturbed
from fastrnns.errors import MachineError
from fastrnns.measure import stats
from fastrnns.measure.difference import Estimate, from_noise, holm, pairwise, unpaired
from fastrnns.phases import ALL as PHASES

FASTER, SLOWER, SAME, INCONCLUSIVE = "faster", "slower", "same", "inconclusive"
ONLY_BASE, ONLY_NEW, NOT_COMPARABLE = "only-in-base", "only-in-new", "not-comparable"

ALPHA = 0.005  # of any false faster or slower in one comparison, all models and phases together
ALPHA_SAME = 0.05  # of a false same
MARGIN = 0.01  # smaller differences are of no interest unless asked for
SAME_LIMIT = 0.05  # a floor above it makes no two records the same, only the machine too noisy to tell
MIN_PROCESSES = 5  # a side; of three, all may fall into one mode: up to 4 % false alarms (simulate.py)
IMPLAUSIBLE = 100.0  # between backward times, one side was not measured


@dataclass(frozen=True)
class Row:
    """The verdict on one model and phase. ratio is new over base: above 1 is slower."""

    model: str
    group: str
    phase: str
    verdict: str
    field: str | None = None  # which forbids the comparison
    reason: str | None = None
    base_ms: float | None = None
    new_ms: float | None = None
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    margin: float | None = None
    p: float | None = None  # two-sided, Holm-adjusted
    processes: tuple[int, int] | None = None
    failed: bool = False  # the new record holds a failure where a result belongs


@dataclass(frozen=True)
class Comparison:
    """All verdicts on two records."""

    base_id: str
    new_id: str
    rows: tuple[Row, ...]
    refusals: tuple[Difference, ...]  # empty, unless refused or forced
    forced: bool
    reference: str | None
    software: tuple[Difference, ...]
    notes: tuple[str, ...]

    @property
    def overall(self) -> str:
        """The worst that was found, in one word."""
        verdicts = {row.verdict for row in self.rows}
        return next(
            (word for word in (SLOWER, NOT_COMPARABLE, INCONCLUSIVE, FASTER, SAME) if word in verdicts),
            NOT_COMPARABLE,
        )

    @property
    def exit_code(self) -> int:
        """1: slower, or failed in the new record; 3: not all could be compared; else 0.

        Inconclusive is 0: nothing bad was shown, and it is said that nothing was shown.
        """
        if any(row.verdict == SLOWER or row.failed for row in self.rows):
            return 1
        judged = any(row.ratio is not None or row.verdict == INCONCLUSIVE for row in self.rows)
        if not judged or any(row.verdict == NOT_COMPARABLE for row in self.rows):
            return 3
        return 0

    def as_dict(self) -> dict[str, Any]:
        """The comparison as JSON."""
        return {
            "schema": 1,
            "base": self.base_id,
            "new": self.new_id,
            "overall": self.overall,
            "exit_code": self.exit_code,
            "forced": self.forced,
            "reference": self.reference,
            "refusals": [asdict(difference) for difference in self.refusals],
            "software": [asdict(difference) for difference in self.software],
            "notes": list(self.notes),
            "alpha": ALPHA,
            "rows": [asdict(row) for row in self.rows],
        }


def compare(
    base: Record,
    new: Record,
    *,
    margin: float = MARGIN,
    reference: str | None = None,
    force: bool = False,
    calibration: Calibration | None = None,
) -> Comparison:
    """Judge every model and phase of `new` against `base`.

    With `reference`, times are divided by those of that model in the same record first, and only that the
    machines differ is allowed then.
    """
    refused = comparable.refusals(base, new, within_machine=reference is not None)
    notes = comparable.remarks(base, new)
    rows: list[Row] = []
    pending: list[tuple[int, Estimate]] = []
    if refused and not force:
        field = refused[0].field
        reason = comparable.sentence(refused)
        rows = [replace(row, verdict=NOT_COMPARABLE, field=field, reason=reason) for row in _named(base, new)]
    else:
        if refused:
            notes.append(f"forced although not comparable: {comparable.sentence(refused)}")
        if calibration is None and reference is None:
            notes.append(
                "no calibration of this machine: the margin is as asked; run python -m fastrnns.calibrate"
            )
        paired = _paired(base, new)
        references = (_reference(base, reference), _reference(new, reference)) if reference else (None, None)
        for row in _named(base, new):
            if row.model == reference:
                continue
            judged, estimate = _judge(
                row, base, new, references, margin=margin, calibration=calibration, paired=paired
            )
            if estimate is not None:
                pending.append((len(rows), estimate))
            rows.append(judged)
        for (index, estimate), p in zip(pending, holm([e.p_different() for _, e in pending]), strict=True):
            same_p = estimate.p_outside(rows[index].margin or margin)
            rows[index] = decide(rows[index], estimate, p, same_p, margin)
    return Comparison(
        str(base.get("id", "base")),
        str(new.get("id", "new")),
        tuple(rows),
        tuple(refused),
        bool(refused) and force,
        reference,
        tuple(comparable.software_changes(base, new)),
        tuple(notes),
    )


Results = Mapping[tuple[str, str], Mapping[str, Any]]


def _results(record: Record) -> Results:
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for result in record.get("results") or ():
        found.setdefault((str(result.get("group", "")), str(result["model"])), result)
    return found


def _named(base: Record, new: Record) -> Iterator[Row]:
    """One empty row for every model and phase that either record knows, in the order of the base."""
    sides = (_results(base), _results(new))
    for group, model in dict.fromkeys((*sides[0], *sides[1])):
        held = [side.get((group, model)) for side in sides]
        for phase in PHASES:
            if phase == PHASES[0] or any(result is not None and result.get(phase) for result in held):
                yield Row(model, group, phase, INCONCLUSIVE)


def _reference(record: Record, model: str) -> Mapping[str, Any]:
    for (_, name), result in _results(record).items():
        if name == model and result.get("status") == "ok":
            return result
    raise MachineError(f"record {record.get('id')} holds no result of {model}; choose a model that both hold")


def _paired(base: Record, new: Record) -> bool:
    """Whether the two were measured in one interleaved run, process by process."""
    pairs = [(record.get("options") or {}).get("pair") for record in (base, new)]
    return pairs[0] is not None and pairs[0] == pairs[1]


def _logs(part: Mapping[str, Any] | None) -> list[float | None]:
    """The log median of each process, None where it measured nothing, so that the index stays the process."""
    if not part:
        return []
    excluded = part.get("excluded") or ()
    found: list[float | None] = []
    for index, series in enumerate(part.get("samples") or ()):
        kept = stats.measured([series], [excluded[index]] if index < len(excluded) else None)
        logs = stats.log_medians(kept)
        found.append(logs[0] if logs else None)
    return found


def _present(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _count(part: Mapping[str, Any]) -> int:
    return sum(len(series) for series in part.get("samples") or ())


def _judge(
    row: Row,
    base: Record,
    new: Record,
    references: tuple[Mapping[str, Any] | None, Mapping[str, Any] | None],
    *,
    margin: float,
    calibration: Calibration | None,
    paired: bool,
) -> tuple[Row, Estimate | None]:
    """Fill a row as far as it goes alone; with an estimate, it is decided together with the others."""
    key = (row.group, row.model)
    results = (_results(base).get(key), _results(new).get(key))
    missing = _missing(row, *results)
    if missing is not None:
        return missing, None
    parts = [(result or {})[row.phase] for result in results]
    forbidden = _forbidden(row, [result or {} for result in results])
    if forbidden is not None:
        return forbidden, None
    sides = [_logs(part) for part in parts]
    for index, reference in enumerate(references):
        if reference is not None:
            sides[index] = _relative(sides[index], _logs(reference.get(row.phase)))
    logs = [_present(side) for side in sides]
    counts = (len(logs[0]), len(logs[1]))
    relative = references[0] is not None
    row = replace(
        row,
        base_ms=None if relative or not logs[0] else math.exp(statistics.fmean(logs[0])),
        new_ms=None if relative or not logs[1] else math.exp(statistics.fmean(logs[1])),
        processes=counts,
        margin=margin,
    )
    if min(counts) == 0:
        return replace(row, reason="insufficient samples: a side measured no time"), None
    row = replace(row, ratio=math.exp(statistics.fmean(logs[1]) - statistics.fmean(logs[0])))
    fewest = min(_count(part) for part in parts)
    if fewest < 2:
        return replace(row, reason=f"insufficient samples: n = {fewest}; measure with more --nloops"), None
    noise = None if calibration is None or relative else calibration.noise(row.model, row.phase)
    if noise is not None:
        row = replace(row, margin=max(margin, noise.floor(*counts, paired=paired)))
    if paired and len(sides[0]) == len(sides[1]):
        both = [(a, b) for a, b in zip(*sides, strict=True) if a is not None and b is not None]
        if len(both) >= MIN_PROCESSES:
            return row, pairwise([a for a, _ in both], [b for _, b in both])
    if min(counts) >= MIN_PROCESSES:
        return row, unpaired(*logs)
    if noise is not None:
        return row, from_noise(logs[0], logs[1], noise.deviation, noise.degrees)
    reason = (
        f"insufficient processes: {min(counts)}; at least {MIN_PROCESSES} a side tell what differs "
        "from process to process"
    )
    return replace(row, reason=reason), None


def _missing(row: Row, base: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> Row | None:
    held = []
    for result in (base, new):
        status = "absent" if result is None else str(result.get("status", "ok"))
        if status == "ok" and not (result or {}).get(row.phase):
            status = "not measured"
        held.append(status)
    if held == ["ok", "ok"]:
        return None
    failed = held[1] == "failed"
    if held[0] == "ok" or held[1] == "ok":
        side, word = ("new", ONLY_BASE) if held[0] == "ok" else ("base", ONLY_NEW)
        result = new if side == "new" else base
        why = (result or {}).get("error")
        reason = f"{row.phase} {held[1] if side == 'new' else held[0]} in {side}" + (
            f": {why}" if why else ""
        )
        return replace(row, verdict=word, reason=reason, failed=failed)
    reason = f"base: {held[0]}; new: {held[1]}"
    return replace(row, verdict=NOT_COMPARABLE, field="status", reason=reason, failed=failed)


def _forbidden(row: Row, results: Sequence[Mapping[str, Any]]) -> Row | None:
    """What forbids comparing this one row: another precision or unit, a phase not really measured."""

    def refuse(field: str, reason: str) -> Row:
        return replace(row, verdict=NOT_COMPARABLE, field=field, reason=reason)

    for field, values in (
        ("dtype", [result.get("dtype") for result in results]),
        ("unit", [result[row.phase].get("unit") for result in results]),
    ):
        if values[0] != values[1]:
            return refuse(field, str(Difference(field, *values)))
    medians = [
        stats.process_medians(stats.measured(result[row.phase].get("samples") or ())) for result in results
    ]
    middles = [statistics.median(values) if values else None for values in medians]
    for side, result, middle in zip(("base", "new"), results, middles, strict=True):
        if (spoilt := disturbed(result)) is not None:
            return refuse("disturbances", f"{side}: {spoilt}")
        if middle == 0:
            return refuse(row.phase, f"{side}: a time of 0 was not measured")
        forward = stats.process_medians(stats.measured((result.get("forward") or {}).get("samples") or ()))
        if (
            row.phase == "backward"
            and middle
            and forward
            and middle < BACKWARD_SHARE * statistics.median(forward)
        ):
            return refuse(
                "backward",
                f"{side}: backward was not measured, or is implausible: {middle:.4g} ms beside a forward of "
                f"{statistics.median(forward):.4g} ms",
            )
    first, second = middles
    if row.phase == "backward" and first and second and max(first / second, second / first) > IMPLAUSIBLE:
        side = "base" if first < second else "new"
        return refuse(
            "backward", f"{side}: backward was not measured, or is implausible: {min(first, second):.4g} ms"
        )
    return None


def _relative(side: Sequence[float | None], reference: Sequence[float | None]) -> list[float | None]:
    """Log ratio to the reference model, process by process; to its mean where processes do not correspond."""
    if len(side) == len(reference):
        return [None if a is None or b is None else a - b for a, b in zip(side, reference, strict=True)]
    known = _present(reference)
    return [None if a is None or not known else a - statistics.fmean(known) for a in side]


def decide(row: Row, estimate: Estimate, p: float, same_p: float, asked: float = 0.0) -> Row:
    """The verdict, once the p values of all rows are known; `asked` is the margin before any floor."""
    margin = row.margin or 0.0
    low, high = estimate.interval()
    row = replace(row, ci95=(low, high), p=p)
    beyond = abs(estimate.log_ratio) > math.log1p(margin)
    if p <= ALPHA and beyond:
        return replace(row, verdict=SLOWER if estimate.log_ratio > 0 else FASTER)
    if 1 / (1 + margin) <= low and high <= 1 + margin and same_p <= ALPHA_SAME:
        if margin <= max(SAME_LIMIT, asked):
            return replace(row, verdict=SAME)
        reason = f"this machine differs from itself by up to {margin:.1%}: nothing smaller can be told on it"
        return replace(row, verdict=INCONCLUSIVE, reason=reason)
    if p <= ALPHA:
        reason = "a difference, and not shown to be larger or smaller than the margin"
    elif beyond:
        reason = f"beyond the margin, and may be chance (p = {p:.2g}); more processes would tell"
    else:
        reason = "the interval is wider than the margin; more processes would tell"
    return replace(row, verdict=INCONCLUSIVE, reason=reason)
