"""Which model is fastest at each point of a sweep, and by how much; it wins only where that is beyond doubt. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastrnns import sweep
from fastrnns.measure import stats
from fastrnns.measure.difference import Estimate, holm, unpaired
from fastrnns.phases import ALL

ALPHA = 0.05  # of any false winner in one record, all points and phases together (Holm)
FASTEST, TIE, ALONE, UNTOLD = "fastest", "tie", "alone", "untold"


@dataclass(frozen=True)
class Cell:
    """One point and phase: the model with the least median, and the next. ratio is the next over the first."""

    point: str  # hidden_size=128,mini_batch=16
    phase: str
    model: str
    median_ms: float
    verdict: str  # fastest; tie: the next may be as fast; alone: no other ran; untold: too few processes
    next_model: str | None = None
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    p: float | None = None  # two-sided, Holm-adjusted: that the two differ


def cells(results: Sequence[Mapping[str, Any]]) -> tuple[Cell, ...]:
    """The winner of every point and phase, in the order of the results."""
    found = [_cell(point, phase, ran) for point, phase, ran in _fields(results)]
    told = [index for index, (_, estimate) in enumerate(found) if estimate is not None]
    adjusted = holm([estimate.p_different() for _, estimate in found if estimate is not None])
    for index, p in zip(told, adjusted, strict=True):
        cell = replace(found[index][0], p=p, verdict=FASTEST if p < ALPHA else TIE)
        found[index] = (cell, None)
    return tuple(cell for cell, _ in found)


def summary(found: Sequence[Cell]) -> tuple[str, ...]:
    """One sentence a model: where it is the fastest, and that is beyond doubt."""
    phases = list(dict.fromkeys(cell.phase for cell in found))
    models = dict.fromkeys(name for cell in found for name in (cell.model, cell.next_model) if name)
    said = []
    for model in models:
        counts = []
        for phase in phases:
            here = [cell for cell in found if cell.phase == phase]
            won = sum(cell.model == model and cell.verdict == FASTEST for cell in here)
            counts.append(f"{won} of {len(here)} {phase.replace('_', ' ')}")
        said.append(f"{model}: fastest at {', '.join(counts)}")
    return tuple(said)


def as_details(found: Sequence[Cell]) -> list[dict[str, Any]]:
    """The cells as a record's details hold them."""
    return [asdict(cell) for cell in found]


def _fields(
    results: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[str, str, list[tuple[str, Mapping[str, Any]]]]]:
    """(point, phase, [(model, its phase)]) where any model was timed."""
    points = dict.fromkeys(sweep.parts(result["model"])[1] for result in results)
    for point in points:
        at = [result for result in results if sweep.parts(result["model"])[1] == point]
        for phase in ALL:
            ran = [
                (sweep.parts(result["model"])[0], result[phase])
                for result in at
                if result["status"] == "ok" and result.get(phase) and result[phase]["median"] is not None
            ]
            if ran:
                yield point, phase, ran


def _cell(
    point: str, phase: str, ran: Sequence[tuple[str, Mapping[str, Any]]]
) -> tuple[Cell, Estimate | None]:
    ordered = sorted(ran, key=lambda one: float(one[1]["median"]))
    model, facts = ordered[0]
    cell = Cell(point, phase, model, facts["median"], ALONE)
    if len(ordered) == 1:
        return cell, None
    other, behind = ordered[1]
    cell = replace(cell, next_model=other, ratio=behind["median"] / facts["median"], verdict=UNTOLD)
    logs = [
        stats.log_medians(stats.measured(part["samples"], part.get("excluded"))) for part in (facts, behind)
    ]
    if min(map(len, logs)) < 2:  # one process shows no spread
        return cell, None
    estimate = unpaired(*logs)
    low, high = estimate.interval()
    if not math.isfinite(high):
        return cell, None
    return replace(cell, ratio=math.exp(estimate.log_ratio), ci95=(low, high)), estimate
