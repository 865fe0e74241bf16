"""Step changes of a model over the archived records of one machine, and what software changed at each. Pure.

As asv finds regressions in a history: the series is cut where its level changes (the same changepoints as
warm-up), and a step counts where it is larger than a margin. Only records that may be compared stand in one
series.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastrnns import sweep
from fastrnns.archive import comparable
from fastrnns.archive.comparable import Difference, Record
from fastrnns.measure import stats, warmup
from fastrnns.phases import ALL as PHASES

KINDS = frozenset({"bench", "reproduce", "calibrate"})
MARGIN = 0.01
LEAST_NOISE = 0.003  # log time from run to run; the archive of a quiet machine is no quieter
SHOWN = 6


@dataclass(frozen=True)
class Point:
    """One record's time of one model and phase."""

    record_id: str
    started_at: str
    median_ms: float


@dataclass(frozen=True)
class Step:
    """A change of level between two records that follow each other; ratio is after over before."""

    before: Point
    after: Point
    ratio: float
    software: tuple[Difference, ...]


@dataclass(frozen=True)
class Series:
    """One model and phase in one setting: its points in order of time, and its steps."""

    model: str
    phase: str
    setting: str
    points: tuple[Point, ...]
    steps: tuple[Step, ...]


def history(records: Iterable[Record], model: str, margin: float = MARGIN) -> list[Series]:
    """All series of a model, oldest record first in `records`."""
    groups: list[list[Record]] = []
    keys = comparable.SeriesKeys()
    alike: dict[Hashable, list[list[Record]]] = {}  # only those of one series key can be of one series
    for record in records:
        if record.get("kind") not in KINDS or _result(record, model) is None:
            continue
        if (record.get("verdict") or {}).get("status") == "invalid":
            continue
        candidates = alike.setdefault(keys.of(record), [])
        for group in candidates:
            if comparable.joins(group[0], record):
                group.append(record)
                break
        else:
            candidates.append([record])
            groups.append(candidates[-1])
    found = [_series(group, model, phase, margin) for group in groups for phase in PHASES]
    return [series for series in found if series is not None]


def _result(record: Record, model: str) -> Mapping[str, Any] | None:
    for result in record.get("results") or ():
        if result.get("model") == model and result.get("status") == "ok":
            return dict(result)
    return None


def _series(group: Sequence[Record], model: str, phase: str, margin: float) -> Series | None:
    points: list[Point] = []
    kept: list[Record] = []
    for record in group:
        part = (_result(record, model) or {}).get(phase) or {}
        medians = stats.process_medians(stats.measured(part.get("samples") or (), part.get("excluded")))
        if medians and min(medians) > 0:
            points.append(Point(str(record["id"]), str(record["started_at"]), statistics.median(medians)))
            kept.append(record)
    if not points:
        return None
    return Series(model, phase, setting(group[0], model), tuple(points), tuple(_steps(points, kept, margin)))


def _steps(points: Sequence[Point], records: Sequence[Record], margin: float) -> Iterable[Step]:
    logs = [math.log(point.median_ms) for point in points]
    starts = warmup.changepoints(logs, _noise(logs))
    bounds = [*starts, len(logs)]
    levels = [statistics.median(logs[a:b]) for a, b in itertools.pairwise(bounds)]
    for index, start in enumerate(starts[1:], start=1):
        change = levels[index] - levels[index - 1]
        if abs(change) > math.log1p(margin):
            software = tuple(comparable.software_changes(records[start - 1], records[start]))
            yield Step(points[start - 1], points[start], math.exp(change), software)


def _noise(logs: Sequence[float]) -> float:
    """Median absolute difference from record to record, as a deviation: steps are few among them."""
    if len(logs) < 3:
        return LEAST_NOISE
    moves = [abs(after - before) for before, after in itertools.pairwise(logs)]
    return max(LEAST_NOISE, statistics.median(moves) / (0.6745 * math.sqrt(2)))


def setting(record: Record, model: str = "") -> str:
    """What a series was measured with, in one line; of a sweep with the sizes of the series' own point."""
    options = record.get("options") or {}
    problem = {**(record.get("problem") or {}), **sweep.sizes_of(sweep.parts(model)[1])}
    sizes = "x".join(str(value) for value in problem.values())
    return f"{options.get('device')} {options.get('dtype')} {sizes} hardware {comparable.hardware_id(record)}"


def as_dict(series: Series) -> dict[str, Any]:
    """A series as JSON."""
    return asdict(series)


def text(found: Sequence[Series]) -> str:
    """The history for people: each series, its levels and its steps."""
    lines = []
    for series in found:
        first, last = series.points[0], series.points[-1]
        lines.append(f"{series.model} {series.phase}: {series.setting}")
        lines.append(
            f"  {len(series.points)} records from {first.started_at[:10]} ({first.median_ms:.4g} ms)"
            f" to {last.started_at[:10]} ({last.median_ms:.4g} ms), {len(series.steps)} steps"
        )
        for step in series.steps:
            word = "slower" if step.ratio > 1 else "faster"
            lines.append(
                f"  {step.after.started_at[:19]} {abs(step.ratio - 1):.1%} {word}:"
                f" {step.before.record_id} -> {step.after.record_id}"
            )
            shown = [str(change) for change in step.software[:SHOWN]]
            more = len(step.software) - SHOWN
            what = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
            lines.append(f"    changed: {what or 'nothing in the software fingerprint'}")
    return "\n".join(lines)
