"""From what the processes said to what the record holds: one result a model, with its marks. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from fastrnns.measure import stats, warmup
from fastrnns.measure.conduct import ColdStart, Measured, Phase
from fastrnns.measure.plan import BUDGET, STEADY, UNCOMPILED, Plan

# Shapes of a timed series from which a median should not be taken as it stands.
NOT_STEADY = {warmup.UNSTEADY, warmup.SLOWDOWN, warmup.WARMUP, warmup.LATE}
# Of an iteration's time: a disturbance that covers less cannot have moved it much. Only long iterations, of
# seconds, are ever covered in part; the watch looks several times a second.
DISTURBED_SHARE = 0.1
DISTURBED_NOTE = "{count} of {total} iterations were disturbed ({causes}); {left} of them are left out"


def result_of(
    measured: Measured,
    *,
    group: str,
    family: str,
    dtype: str,
    plan: Plan,
    torchscript: bool,
    has_backward: bool,
    comparable_note: str = "",
    disturbances: Sequence[dict[str, Any]] = (),
    interrupted: bool = False,
) -> dict[str, Any]:
    """The record's entry of one model."""
    ran = any(measured.forward.samples)
    moved = 0
    if plan.warmup is None:
        measured, moved = warmed(measured, torchscript=torchscript)
    status, error = measured.status, measured.error
    if status is None:
        status = "ok" if ran else "failed"
        error = (
            None if ran else ("interrupted before it was measured" if interrupted else "it was not measured")
        )
    notes = [*([comparable_note] if comparable_note else []), *measured.notes]
    marks: list[str] = []
    if moved:
        notes.append(
            f"{moved} timed iterations are counted as warm-up, by the level of those that follow them"
        )
    if torchscript and plan.warmup is not None and (few := warmup.too_few(plan.warmup, torchscript=True)):
        notes.append(few)
        marks.append("too little warm-up")
    if any(ended["timed"] == BUDGET for ended in measured.ended) or measured.left_out == BUDGET:
        marks.append("cut short")
        notes.append(
            f"cut short: the budget of {plan.budget_s:g} s was spent before the precision was reached"
        )
    if plan.warmup is None and any(ended["warmup"] != STEADY for ended in measured.ended):
        notes.append("warm-up ended before the iterations were steady")
        if any(ended["warmup"] == UNCOMPILED for ended in measured.ended):
            marks.append("not warmed up")
    excluded, causes = excluded_by(measured, disturbances)
    forward = phase_of(measured.forward, excluded, torchscript=torchscript) if ran else None
    backward = (
        phase_of(measured.backward, excluded, torchscript=torchscript) if ran and has_backward else None
    )
    for name, phase in (("forward", forward), ("backward", backward)):
        if phase is None:
            continue
        found = warmup.notes(phase["samples"], name, torchscript=torchscript)
        notes += found
        if not phase["steady"]["steady"] and "not steady" not in marks:
            marks.append("not steady")
    if causes:
        count, total = sum(map(len, excluded)), sum(map(len, measured.forward.samples))
        left = total - (forward["n"] if forward is not None else total)
        told = ", ".join(sorted(causes))
        notes.append(DISTURBED_NOTE.format(count=count, total=total, causes=told, left=left or "none"))
        marks.append(f"{count} disturbed")
    if interrupted and len(measured.ended) < len(measured.order):
        marks.append("interrupted")
        notes.append("interrupted while it was measured")
    return {
        "model": measured.name,
        "group": group,
        "family": family,
        "dtype": dtype,
        "status": status,
        "status_reason": error,
        "error": error if status != "ok" else None,
        "backend": measured.backend,
        "forward": forward,
        "backward": backward,
        **replays_of(measured),
        "cold_start": cold_start_of(measured.cold_start),
        "notes": notes,
        "started_ns": measured.started_ns,
        "order": measured.order,
        "details": {
            "marks": marks,
            **({"lengths": measured.lengths} if measured.lengths else {}),
            **({"flushed_bytes": measured.flushed_bytes} if measured.flushed_bytes else {}),
            "cold_s": measured.cold_s,
            "ended": measured.ended,
            "seconds": round(measured.seconds, 3),
            "no_further_process": measured.left_out,
            "chosen": None if measured.chosen is None else asdict(measured.chosen),
        },
    }


def replays_of(measured: Measured) -> dict[str, Any]:
    """The phases of device time, where graphs were replayed."""
    found = {"forward_graph": measured.forward_graph, "backward_graph": measured.backward_graph}
    return {
        name: phase_of(phase, [[] for _ in phase.samples], torchscript=False)
        for name, phase in found.items()
        if any(phase.samples)
    }


def cold_start_of(found: ColdStart) -> dict[str, Any] | None:
    """What building and the first iteration took, one number a process; None where no iteration ended."""
    if not found.built:
        return None
    return {
        "unit": "ms",
        "samples": found.total,
        "built": found.built,
        "first_forward": found.first_forward,
        "first_backward": found.first_backward or None,
    }


def warmed(measured: Measured, *, torchscript: bool) -> tuple[Measured, int]:
    """The same measurement with its warm-up ended where the whole series says, and how many iterations moved."""
    phases = [phase for phase in (measured.forward, measured.backward) if any(phase.samples)]
    counts = [
        warmup.late(*((p.warmup[index], p.samples[index]) for p in phases), torchscript=torchscript)
        for index in range(len(measured.order))
    ]
    if not any(counts):
        return measured, 0

    def cut(phase: Phase) -> Phase:
        if not any(phase.samples):
            return phase
        return Phase(
            [series[count:] for series, count in zip(phase.samples, counts, strict=True)],
            [
                [*before, *series[:count]]
                for before, series, count in zip(phase.warmup, phase.samples, counts, strict=True)
            ],
        )

    starts = [series[count:] for series, count in zip(measured.started_ns, counts, strict=True)]
    forward, backward = cut(measured.forward), cut(measured.backward)
    return replace(measured, forward=forward, backward=backward, started_ns=starts), sum(counts)


def phase_of(phase: Phase, excluded: Sequence[Sequence[int]], *, torchscript: bool) -> dict[str, Any]:
    """One phase: the raw samples and what is said of them."""
    labels = [warmup.classify(series, torchscript=torchscript).label for series in phase.samples if series]
    made = {
        "unit": "ms",
        "samples": phase.samples,
        "warmup": phase.warmup,
        **stats.summarise(phase.samples, excluded),
        "steady": {"steady": not NOT_STEADY.intersection(labels), "labels": labels},
    }
    if any(excluded):
        made["excluded"] = [list(indices) for indices in excluded]
    return made


def excluded_by(
    measured: Measured, disturbances: Sequence[dict[str, Any]]
) -> tuple[list[list[int]], set[str]]:
    """The iterations that a disturbance covers, one list a process, and its causes; never by their value."""
    excluded: list[list[int]] = []
    causes: set[str] = set()
    for index, starts in enumerate(measured.started_ns):
        here: list[int] = []
        for number, start in enumerate(starts):
            took_ms = sum(
                phase.samples[index][number]
                for phase in (measured.forward, measured.backward)
                if number < len(phase.samples[index])
            )
            end = start + int(took_ms * 1e6)
            covered: dict[str, int] = {}
            for item in disturbances:
                overlap = min(end, item["to_ns"]) - max(start, item["from_ns"])
                if overlap > 0:
                    covered[str(item["cause"])] = covered.get(str(item["cause"]), 0) + overlap
            hits = {cause for cause, ns in covered.items() if ns >= DISTURBED_SHARE * (end - start)}
            if hits:
                here.append(number)
                causes |= hits
        excluded.append(here)
    return excluded, causes


def unsupported(name: str, reason: str, *, group: str, family: str, dtype: str) -> dict[str, Any]:
    """The entry of a model of the default matrix that cannot run this problem."""
    return {
        "model": name,
        "group": group,
        "family": family,
        "dtype": dtype,
        "status": "unsupported",
        "status_reason": reason,
        "error": reason,
        "backend": None,
        "forward": None,
        "backward": None,
        "notes": [],
    }
