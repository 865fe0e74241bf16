"""Which model is fastest at each point of a sweep, and by how much; it wins only where that is beyond doubt. Pure.

Models of one family (the registry's: lstm, gru, ...) are set beside one another, at one point, in one phase.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastrnns import sweep
from fastrnns.archive.compare import MARGIN
from fastrnns.measure import stats
from fastrnns.measure.difference import Estimate, holm, unpaired
from fastrnns.phases import ALL

ALPHA = 0.05  # of any false winner in one record, all points and phases together (Holm)
FASTEST, TIE, ALONE, UNTOLD = "fastest", "tie", "alone", "untold"
NAMED = 6  # points that a sentence names


@dataclass(frozen=True)
class Cell:
    """One point and phase: the model with the least median, and its closest rival. ratio is rival over first."""

    point: str  # hidden_size=128,mini_batch=16
    phase: str
    model: str
    median_ms: float
    verdict: str  # fastest; tie: a rival may be as fast; alone: no other ran; untold: too few processes
    family: str | None = None
    next_model: str | None = None  # the rival whose interval comes closest
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    p: float | None = None  # two-sided, Holm-adjusted: that a rival is less than the margin behind
    timed: tuple[str, ...] = ()  # the models that ran here, fastest first


def cells(results: Sequence[Mapping[str, Any]], margin: float = MARGIN) -> tuple[Cell, ...]:
    """The winner of every point, phase and family, in the order of the results.

    The fastest is ahead of every other by more than `margin`: the largest of the p values counts (Berger 1982).
    """
    judged = [_cell(*field, margin) for field in _fields(results)]
    told = [index for index, (cell, _) in enumerate(judged) if cell.ci95 is not None]
    found = [cell for cell, _ in judged]
    for index, p in zip(told, holm([judged[index][1] for index in told]), strict=True):
        found[index] = replace(found[index], p=p, verdict=FASTEST if p < ALPHA else TIE)
    return tuple(found)


def summary(found: Sequence[Cell], results: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """One sentence a model: at how many points it is the fastest beyond doubt, where it is not, where it failed."""
    return tuple(
        _sentence(model, found, results)
        for model in dict.fromkeys(sweep.parts(result["model"])[0] for result in results)
    )


def as_details(found: Sequence[Cell]) -> list[dict[str, Any]]:
    """The cells as a record's details hold them."""
    return [asdict(cell) for cell in found]


def _sentence(model: str, found: Sequence[Cell], results: Sequence[Mapping[str, Any]]) -> str:
    here = [cell for cell in found if model in cell.timed]
    said = []
    counts = []
    for phase in dict.fromkeys(cell.phase for cell in here):
        ran = [cell for cell in here if cell.phase == phase]
        won = sum(cell.model == model and cell.verdict == FASTEST for cell in ran)
        counts.append(f"{won} of {len(ran)} {phase.replace('_', ' ')}")
    said.append(f"fastest at {', '.join(counts)}" if counts else "not timed anywhere")
    lost = [cell for cell in here if cell.model != model and cell.verdict == FASTEST]
    if lost and len(lost) == len(here):
        said.append("loses everywhere")
    elif lost:
        said.append(f"loses at {_listed([(cell.point, cell.phase) for cell in lost])}")
    for status in ("failed", "unsupported"):
        points = [
            sweep.parts(result["model"])[1]
            for result in results
            if sweep.parts(result["model"])[0] == model and result["status"] == status
        ]
        if points:
            said.append(f"{status} at {_listed([(point, '') for point in points])}")
    return f"{model}: {'; '.join(said)}"


def _listed(places: Sequence[tuple[str, str]]) -> str:
    """Points with their phases, the first of them by name."""
    phases: dict[str, list[str]] = {}
    for point, phase in places:
        phases.setdefault(point, []).extend([phase.replace("_", " ")] if phase else [])
    texts = [f"{point} ({', '.join(names)})" if names else point for point, names in phases.items()]
    more = f" and {len(texts) - NAMED} more" if len(texts) > NAMED else ""
    return ", ".join(texts[:NAMED]) + more


def _fields(
    results: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, str, str | None, list[tuple[str, Mapping[str, Any]]]]]:
    """(point, phase, family, [(model, its phase)]) where any model was timed."""
    places: dict[tuple[str, str | None], list[Mapping[str, Any]]] = {}
    for result in results:
        places.setdefault((sweep.parts(result["model"])[1], result.get("family")), []).append(result)
    for (point, family), at in places.items():
        for phase in ALL:
            ran = [
                (sweep.parts(result["model"])[0], result[phase])
                for result in at
                if result["status"] == "ok" and result.get(phase) and result[phase]["median"] is not None
            ]
            if ran:
                yield point, phase, family, sorted(ran, key=lambda one: float(one[1]["median"]))


def _cell(
    point: str,
    phase: str,
    family: str | None,
    ordered: Sequence[tuple[str, Mapping[str, Any]]],
    margin: float,
) -> tuple[Cell, float]:
    """The cell, without its verdict where it is to be judged, and the p value that it is to be judged by."""
    (model, facts), *rivals = ordered
    timed = tuple(name for name, _ in ordered)
    cell = Cell(point, phase, model, facts["median"], ALONE, family, timed=timed)
    if not rivals:
        return cell, 1.0
    name, behind = rivals[0]
    cell = replace(cell, next_model=name, ratio=behind["median"] / facts["median"], verdict=UNTOLD)
    first = _logs(facts)
    logs = {other: _logs(part) for other, part in rivals}
    if min(len(first), len(logs[name])) < 2:  # one process shows no spread
        return cell, 1.0
    # A rival of one process that comes after the next by its median (its budget was spent) is behind by that alone.
    estimates = {other: unpaired(first, values) for other, values in logs.items() if len(values) > 1}
    closest = min(estimates, key=lambda other: estimates[other].interval()[0])
    low, high = estimates[closest].interval()
    ratio = math.exp(estimates[closest].log_ratio)
    p = max(_p_within(estimate, margin) for estimate in estimates.values())
    return replace(cell, next_model=closest, ratio=ratio, ci95=(low, high)), p


def _logs(phase: Mapping[str, Any]) -> list[float]:
    return stats.log_medians(stats.measured(phase["samples"], phase.get("excluded")))


def _p_within(estimate: Estimate, margin: float) -> float:
    """Two-sided p that a rival is less than the margin behind: which model is first was chosen by the same data."""
    return min(
        1.0, 2 * stats.t_tail((estimate.log_ratio - math.log1p(margin)) / estimate.error, estimate.degrees)
    )
