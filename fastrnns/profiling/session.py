"""Running a plan: one fresh process a model, its report read back, and each model's result."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastrnns.errors import HarnessError
from fastrnns.measure import stats
from fastrnns.measure.process import Child, ChildDied, ChildSilent
from fastrnns.profiling import events as reports
from fastrnns.profiling import external, ncu, nsys, nvprof, reading, roofline, summary
from fastrnns.profiling.plan import SILENCE_S, Plan, steps_of
from fastrnns.runner import lookup

WORKER = "fastrnns.profiling.worker"
POLL_S = 0.25  # how long a wait for events may hide a Ctrl-C
INTERRUPTED = "interrupted before it was done"
Adopt = Callable[[int], None]
Say = Callable[[str], None]


class Interrupted(HarnessError):  # noqa: N818 - it names what happened, as ChildDied does
    """Somebody asked this process to end while a model was being profiled."""


@dataclass(frozen=True)
class Place:
    """Where what is profiled runs, and whether it is still wanted."""

    folder: Path  # for reports
    adopt: Adopt | None = None  # puts a waiting process onto the bench CPUs
    cpus: tuple[int, ...] | None = None
    interrupted: Callable[[], bool] = lambda: False


@dataclass
class Found:
    """What is known of one model's profile."""

    model: str
    status: str = "ok"
    error: str | None = None
    backend: str | None = None
    lengths: list[int] | None = None
    forward_ms: list[float] = field(default_factory=list)  # without a profiler
    backward_ms: list[float] = field(default_factory=list)
    started_ns: list[int] = field(default_factory=list)
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)
    counted: dict[str, Any] | None = None
    fused: str | None = None  # what the JIT fused, in words
    graph: Path | None = None
    files: list[Path] = field(default_factory=list)  # for the archive
    hello: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def fail(self, status: str, error: str) -> None:
        """What went wrong first."""
        if self.status == "ok":
            self.status, self.error = status, error


def run(plan: Plan, place: Place, *, say: Say = print, finished: list[Found] | None = None) -> list[Found]:
    """Profile every model; `finished` grows as each ends, so that an interruption loses none of them."""
    done: list[Found] = [] if finished is None else finished
    for number, name in enumerate(plan.models):
        if number:
            time.sleep(plan.sleep_s)
        if place.interrupted():
            break
        what = f"{plan.nloops} iterations"
        if plan.choice.tool == "ncu":
            what = f"up to {plan.launches} kernels of one iteration"
        say(f"{name}: profiling with {plan.choice.tool}, {what} after {plan.warmup}")
        done.append(profile_model(plan, name, place))
        if done[-1].error:
            say(f"{name}: {done[-1].status}: {done[-1].error}")
    return done


def profile_model(plan: Plan, name: str, place: Place) -> Found:
    """One model; what goes wrong is in the result."""
    found = Found(name)
    try:
        (_torch if plan.choice.tool == "torch" else _external)(plan, found, place)
    except (
        reports.ReportError, external.ToolFailed, ChildDied, ChildSilent, Interrupted, OSError
    ) as error:  # fmt: skip
        found.fail("failed", str(error))
    return found


def _torch(plan: Plan, found: Found, place: Place) -> None:
    said: dict[str, dict[str, Any]] = {}
    with Child(WORKER, cpus=place.cpus) as child:
        if place.adopt is not None:
            place.adopt(child.pid)
        child.send(plan.job(found.model, str(place.folder)))
        for event in _events(child, place.interrupted):
            said[event["event"]] = event
            if event["event"] == "model_failed":
                found.fail(event["status"], event["error"])
    folder = place.folder
    found.hello = said.get("hello", {})
    found.backend = said.get("ready", {}).get("backend")
    found.lengths = said.get("ready", {}).get("lengths")
    found.counted = {
        key: value for key, value in said.get("counted", {}).items() if key not in {"event", "model"}
    } or None
    for key in ("forward_ms", "backward_ms", "started_ns"):
        setattr(found, key, said.get("iterations", {}).get(key, []))
    if found.error:
        return
    if "trace" not in said:
        raise reports.ReportError("the worker ended without a trace; run the profile again")
    trace = folder / said["trace"]["file"]
    memory_file = said.get("memory", {}).get("file")
    memory: list[reports.Event] = []
    if memory_file:
        memory = reports.read_chrome(folder / memory_file)
    steps = steps_of(lookup(found.model), plan.problem, found.lengths)
    found.phases = summary.summarise(reports.read_chrome(trace), steps=steps, memory=memory)
    for phase, peak in (said.get("memory", {}).get("peaks") or {}).items():
        if phase in found.phases:
            found.phases[phase]["memory_peak_bytes"] = peak
    if not found.phases:
        raise reports.ReportError("the trace names neither forward nor backward; run the profile again")
    found.files.append(trace)
    if "graph" in said:
        found.fused = said["graph"]["fused"]
        found.graph = folder / said["graph"]["file"]
        found.files.append(found.graph)


def _events(child: Child, interrupted: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """A worker's events until it ends; bounded silence, and an interruption is heard meanwhile."""
    heard = time.monotonic()
    while True:
        try:
            event = child.receive(POLL_S)
        except EOFError:
            return
        if event is not None:
            heard = time.monotonic()
            yield event
        elif interrupted():
            raise Interrupted(INTERRUPTED)
        elif time.monotonic() - heard > SILENCE_S:
            raise ChildSilent(f"the worker process said nothing for {SILENCE_S:g} s")


def _external(plan: Plan, found: Found, place: Place) -> None:
    program = [sys.executable, *plan.internal_run(found.model)]
    tool, path = plan.choice.tool, str(plan.choice.path)

    def run_tool(argv: Sequence[str]) -> external.Completed:
        return external.run(
            argv,
            adopt=place.adopt,
            cpus=place.cpus,
            timeout_s=plan.timeout_s,
            interrupted=place.interrupted,
        )

    if tool == "nsys":
        rows, found.files = nsys.profile(path, program, place.folder, name=found.model, run=run_tool)
        steps = steps_of(lookup(found.model), plan.problem, None)
        found.phases = summary.summarise(rows, steps=steps)
        if not found.phases:
            raise reports.ReportError("nsys's report names neither forward nor backward; profile again")
    elif tool == "ncu":
        found.phases, found.files = ncu.profile(
            path, program, place.folder, name=found.model, run=run_tool, launches=plan.launches
        )
    else:
        found.phases, found.files = nvprof.profile(
            path, program, place.folder, name=found.model, run=run_tool, iterations=plan.nloops
        )


def result(plan: Plan, found: Found, ceilings: dict[str, Any] | None) -> dict[str, Any]:
    """One model's entry of the record."""
    model = lookup(found.model)
    profile: dict[str, Any] = {"tool": plan.choice.tool}
    for phase, facts in found.phases.items():
        bench = _median(getattr(found, f"{phase}_ms", []))
        profile[phase] = trimmed(facts) | {
            "reading": reading.reading(facts, device_type=plan.device_type),
            "account": reading.account(facts, bench),
            "roofline": _roofline(plan, found, phase, bench, ceilings),
        }
    if found.fused is not None:
        profile["jit"] = found.fused
    phases = {phase: _samples(getattr(found, f"{phase}_ms")) for phase in summary.PHASES}
    return {
        "model": model.name,
        "group": model.group,
        "family": model.family,
        "dtype": plan.dtype,
        "status": found.status,
        "error": found.error,
        "backend": found.backend,
        "forward": phases["forward"],
        "backward": phases["backward"],
        "started_ns": [found.started_ns] if found.started_ns else None,
        "notes": found.notes,
        "profile": profile if found.phases else None,
    }


def trimmed(facts: dict[str, Any], rows: int = summary.ROWS) -> dict[str, Any]:
    """A phase with the largest kernels and operators only; the tables beside the record have all."""
    short = dict(facts)
    for key in ("operators", "kernels"):
        if short.get(key):
            short[key] = {**short[key], "rows": short[key]["rows"][:rows]}
    return short


def _roofline(
    plan: Plan, found: Found, phase: str, bench_ms: float | None, ceilings: dict[str, Any] | None
) -> dict[str, Any] | None:
    work = roofline.for_result(found.model, plan.problem, plan.rate, phase, lengths=found.lengths)
    counted = (found.counted or {}).get(phase)
    facts: dict[str, Any] = {
        "work": work,
        "counted_flops": counted,
        "counted_note": (found.counted or {}).get("note"),
    }
    if work is None and counted:  # no closed form: the count alone sets a limit
        work = {"flops_without_input_gradient": counted, "bytes": 0, "serial_steps": 0}
    if work is None:
        return facts if counted is not None else None
    if counted and facts["work"]:
        facts["counted_agrees"] = counted == facts["work"]["flops_done"]
    if ceilings:
        facts["limit"] = roofline.limit(work, ceilings, plan.rate, bench_ms)
    return facts


def _samples(times: list[float]) -> dict[str, Any] | None:
    if not times:
        return None
    return {"unit": "ms", "samples": [times], "warmup": [[]], **stats.summarise([times])}


def _median(times: list[float]) -> float | None:
    return statistics.median(times) if times else None
