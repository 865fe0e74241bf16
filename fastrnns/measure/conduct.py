"""The conductor: fresh processes one after the other, models taking turns in them, samples gathered."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from fastrnns.measure import plan as planning
from fastrnns.measure import replicates, turns
from fastrnns.measure.plan import Plan, Spent
from fastrnns.measure.process import ChildDied
from fastrnns.measure.starting import ChildLike, Starters

TICK_SECONDS = 0.25  # how long a wait for events may hide a Ctrl-C, and how often progress is drawn


@dataclass
class Phase:
    """The samples of one phase, one list a process."""

    samples: list[list[float]] = field(default_factory=list)
    warmup: list[list[float]] = field(default_factory=list)


@dataclass
class ColdStart:
    """What came before the second iteration, in milliseconds, one a process: it was built, and ran once."""

    built: list[float] = field(default_factory=list)
    first_forward: list[float] = field(default_factory=list)  # with all that is compiled and loaded in it
    first_backward: list[float] = field(default_factory=list)

    def add(self, built_s: float, event: dict[str, Any]) -> None:
        """Take the first iteration of a process."""
        self.built.append(round(built_s * 1e3, 3))
        self.first_forward.append(event["forward_ms"][0])
        if event["backward_ms"]:
            self.first_backward.append(event["backward_ms"][0])

    @property
    def total(self) -> list[float]:
        """All of it."""
        backward = self.first_backward or [0.0] * len(self.built)
        return [round(sum(parts), 3) for parts in zip(self.built, self.first_forward, backward, strict=True)]


@dataclass
class Measured:
    """What the processes said about one model so far."""

    name: str
    status: str | None = None  # None while nothing is wrong: whoever writes the record decides on ok
    error: str | None = None
    backend: str | None = None
    lengths: list[int] | None = None  # of the sequences, where each has its own
    flushed_bytes: int | None = None  # written before each timed region, with cold caches
    forward: Phase = field(default_factory=Phase)
    backward: Phase = field(default_factory=Phase)
    forward_graph: Phase = field(default_factory=Phase)  # device time, where graphs are replayed
    backward_graph: Phase = field(default_factory=Phase)
    started_ns: list[list[int]] = field(default_factory=list)
    order: list[dict[str, int]] = field(default_factory=list)  # process and position, one a list of samples
    cold_start: ColdStart = field(default_factory=ColdStart)
    ended: list[dict[str, str]] = field(default_factory=list)  # why warm-up and sampling ended
    cold_s: list[float] = field(
        default_factory=list
    )  # of it, loading and compiling that no budget was charged
    notes: list[str] = field(default_factory=list)
    built_s: float = 0.0
    seconds: float = 0.0
    overhead_s: float = 0.0  # its share of what the processes took to start
    chosen: planning.Choice | None = None  # what the variance asked for at the last planned look
    left_out: str | None = None  # why it was not measured in a further process

    def begin(self, process: int, position: int) -> None:
        """Open the lists of one more process."""
        self.order.append({"process": process, "position": position})
        self.started_ns.append([])
        for phase in (self.forward, self.backward, self.forward_graph, self.backward_graph):
            phase.samples.append([])
            phase.warmup.append([])

    def add(self, event: dict[str, Any]) -> None:
        """Take in one batch of iterations."""
        timed = event["phase"] == "timed"
        for phase, values in ((self.forward, event["forward_ms"]), (self.backward, event["backward_ms"])):
            (phase.samples if timed else phase.warmup)[-1].extend(values)
        if timed:
            self.started_ns[-1].extend(event["started_ns"])
        if len(self.cold_start.built) < len(self.order):
            self.cold_start.add(self.built_s, event)

    def note(self, text: str) -> None:
        """Keep a remark, once."""
        if text not in self.notes:
            self.notes.append(text)

    def fail(self, status: str, error: str) -> None:
        """Record what went wrong; the first cause stays."""
        if self.status is None:
            self.status, self.error = status, error

    def spent(self, plan: Plan, *, torchscript: bool) -> Spent | None:
        """What the plan needs to know before one more process; None before the first."""
        if not self.forward.samples or not any(self.forward.samples):
            return None
        last = [phase.samples[-1][-1] for phase in (self.forward, self.backward) if phase.samples[-1]]
        done, iteration_s = len(self.forward.samples), sum(last) / 1e3
        seconds = self.seconds + self.overhead_s
        precise = False
        if not plan.fixed and done >= plan.processes and done in replicates.LOOKS:
            series = {
                name: phase.samples
                for name, phase in (("forward", self.forward), ("backward", self.backward))
                if any(phase.samples)
            }
            timed_s = iteration_s * sum(map(len, self.forward.samples))
            precise = replicates.precise_enough(series, done, plan.precision)
            self.chosen = replicates.choose(
                series,
                seconds_per_iteration=iteration_s,
                seconds_per_process=max(0.0, seconds - timed_s) / done,
                precision=plan.precision,
                budget_s=plan.budget_s,
                used_s=seconds,
                looks=[look for look in replicates.LOOKS if look <= plan.most_processes],
            )
        return Spent(
            processes=done,
            seconds=seconds,
            least_seconds=planning.least_seconds(self.built_s, sum(last), torchscript=torchscript)
            + self.overhead_s / done,
            precise=precise,
            chosen=self.chosen,
        )


@dataclass
class Outcome:
    """All models, what the processes said of themselves, and whether the run was cut off."""

    models: dict[str, Measured]
    hellos: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False

    @property
    def something(self) -> bool:
        """Whether anything was timed."""
        return any(any(model.forward.samples) for model in self.models.values())


@dataclass(frozen=True)
class Conductor:
    """Runs the processes that a plan asks for. Everything that touches the machine is given to it."""

    plan: Plan
    names: Sequence[str]
    torchscript: Collection[str]
    job: dict[str, Any]  # all of it but the models
    spawn: Callable[[], ChildLike]
    on_hello: Callable[[ChildLike, dict[str, Any]], None] = lambda _child, _hello: None
    on_process_end: Callable[[], None] = lambda: None
    on_event: Callable[[dict[str, Any]], None] = lambda _event: None
    on_tick: Callable[[], None] = lambda: None
    interrupted: Callable[[], bool] = lambda: False
    compiled: Collection[str] = ()  # by torch.compile: their first iteration is charged to no budget
    compile_limit_s: float = math.inf  # longest that a model may take to the end of its first iteration
    now: Callable[[], float] = time.monotonic
    beside: int = 1  # workers that may start at the same time, while none measures
    starters: Starters = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Have nothing started yet."""
        starters = Starters(self.spawn, self.job, self.beside, self._paused, TICK_SECONDS)
        object.__setattr__(self, "starters", starters)

    def _paused(self) -> bool:
        self.on_tick()
        return self.interrupted()

    def run(self, outcome: Outcome | None = None) -> Outcome:
        """Measure until nothing is due; what was measured is in `outcome` whatever happens later."""
        if outcome is None:
            outcome = Outcome({})
        self.begin(outcome)
        process = 0
        try:
            while not outcome.interrupted and (todo := self.due(process, outcome)):
                self.serve(process, todo, outcome)
                process += 1
        finally:
            self.starters.close()
        return outcome

    def begin(self, outcome: Outcome) -> None:
        """Make room for every model, so that one that is never reached is known too."""
        outcome.models |= {name: Measured(name) for name in self.names}

    def serve(self, process: int, todo: list[str], outcome: Outcome) -> None:
        """Measure models in one process, and after a death those that it did not reach in another."""
        self.on_event({"event": "process_start", "process": process, "models": todo})
        position = 0
        while todo and not outcome.interrupted:
            reached = self._one_process(process, position, todo, outcome)
            position += reached
            todo = todo[reached:]

    def due(self, process: int, outcome: Outcome) -> list[str]:
        """The models that one more process is to measure, in their turn."""
        due = []
        for name in planning.rotated(self.names, process, self.plan.processes):
            measured = outcome.models[name]
            if measured.status is not None or measured.left_out is not None:
                continue
            spent = measured.spent(self.plan, torchscript=name in self.torchscript)
            measured.left_out = planning.due(self.plan, process, spent)
            if measured.left_out is None:
                due.append(name)
        return due

    def _one_process(self, process: int, position: int, todo: list[str], outcome: Outcome) -> int:
        """Serve one child; return how many of its models were reached."""
        rules = []
        for name in todo:
            torchscript = name in self.torchscript
            spent = outcome.models[name].spent(self.plan, torchscript=torchscript)
            rule = planning.rule_for(
                self.plan,
                process,
                spent,
                torchscript=torchscript,
                cold_seconds=self._cold_seconds(name),
            )
            rules.append([name, rule.as_dict()])
        started = self.starters.next(self._certain(process))
        if started is None:
            outcome.interrupted = True
            return 0
        child = started.child
        reached = 0
        current: Measured | None = None
        limit = math.inf  # when the current model has to have run once
        try:
            if started.ending is not None:
                raise started.ending
            hello = started.hello or {}
            outcome.hellos.append({**hello, "beside": started.beside})
            for name in todo:
                outcome.models[name].overhead_s += hello.get("ready_s", 0.0) / started.beside / len(todo)
            self.on_hello(child, hello)
            child.send({"go": True, "models": rules})
            self.on_event(hello)
            while True:
                event = child.receive(TICK_SECONDS)
                if self.interrupted():
                    outcome.interrupted = True
                if event is None:
                    if outcome.interrupted:
                        return reached
                    self.on_tick()
                    if current is not None and self.now() > limit:
                        self._failed(current, "failed", over_limit(self.compile_limit_s))
                        return reached
                    continue
                kind = event["event"]
                if kind == "iterations":
                    limit = math.inf
                if kind == "model_start":
                    current = outcome.models[event["model"]]
                    limit = self.now() + self.compile_limit_s
                    reached += 1
                elif kind == "done":
                    return len(todo)
                elif current is not None and self._take(event, current, process, position + reached - 1):
                    current = None
                self.on_event(event)
                if outcome.interrupted:
                    return reached
        except (ChildDied, EOFError) as error:
            ending = str(error) or "the worker process ended before it was done"
            if current is not None:
                self._failed(current, "failed", ending)
            elif reached == 0:  # it never came to a model: another one would not either
                for name in todo:
                    self._failed(outcome.models[name], "failed", ending)
                return len(todo)
            return reached
        finally:
            child.stop()
            self.on_process_end()

    def _cold_seconds(self, name: str) -> float:
        """What loading and compiling may take on top of a model's budget."""
        if name in self.compiled:
            return self.compile_limit_s
        return 0.0 if self.job.get("device") == "cpu" else planning.COLD_SECONDS

    def _certain(self, process: int) -> int:
        """How many processes, this one included, are run whatever they show, as far as is known now."""
        if process < self.plan.processes:
            return self.plan.processes - process
        look = replicates.next_look(process) or process + 1
        return min(look, self.plan.most_processes) - process

    def _take(self, event: dict[str, Any], model: Measured, process: int, position: int) -> bool:
        """Take in one event of a model; true when the model is over in this process."""
        kind = event["event"]
        if kind == "ready":
            model.begin(process, position)
            model.backend = event.get("backend") or model.backend
            model.lengths = event.get("lengths")
            model.flushed_bytes = event.get("flushed_bytes")
            model.built_s = event.get("built_s", 0.0)
            for text in event.get("notes", ()):
                model.note(text)
        elif kind == "iterations":
            model.add(event)
        elif kind == "replayed":
            model.forward_graph.samples[-1] += event["forward_ms"]
            model.backward_graph.samples[-1] += event["backward_ms"]
        elif kind == "not_replayed":
            model.note(f"no graph replay: {event['reason']}")
        elif kind == "model_failed":
            model.fail(event["status"], event["error"])
            return True
        elif kind == "model_done":
            model.ended.append({"warmup": event["warmup_ended"], "timed": event["timed_ended"]})
            model.cold_s.append(event.get("cold_s", 0.0))
            model.seconds += event["spent_s"]
            return True
        return False

    def _failed(self, model: Measured, status: str, error: str) -> None:
        model.fail(status, error)
        self.on_event({"event": "model_failed", "model": model.name, "status": status, "error": error})


def over_limit(seconds: float) -> str:
    """Why a model was given up whose worker had to be ended: it cannot be asked to stop while it compiles."""
    return (
        f"given up: not built, compiled and run once within {seconds:g} s; allow more with --compile-limit,"
        " or choose fewer steps (--seqLength)"
    )


def interleave(conductors: Sequence[Conductor], outcomes: Sequence[Outcome]) -> None:
    """Several runs as one: process by process, each side first in turn, so that drift hits all alike.

    A model is measured on all sides as long as one of them wants it; on none of its own once it failed there, and
    on none at all once fewer than two sides are left to compare. The n-th process of a side is the pair of the
    n-th of any other.
    """
    for conductor, outcome in zip(conductors, outcomes, strict=True):
        conductor.begin(outcome)
    process = 0
    try:
        while not any(outcome.interrupted for outcome in outcomes):
            todo = _turn(conductors, outcomes, process)
            if not any(todo):
                break
            for side in turns.order(len(conductors), process):
                if todo[side]:
                    conductors[side].serve(process, todo[side], outcomes[side])
                if outcomes[side].interrupted:
                    break
            process += 1
    finally:
        for conductor in conductors:
            conductor.starters.close()
    if any(outcome.interrupted for outcome in outcomes):
        for outcome in outcomes:
            outcome.interrupted = True


def _turn(conductors: Sequence[Conductor], outcomes: Sequence[Outcome], process: int) -> list[list[str]]:
    """The models that each side measures in one round, in their turn."""
    wanted = {
        name
        for conductor, outcome in zip(conductors, outcomes, strict=True)
        for name in conductor.due(process, outcome)
    }
    failed = [{name for name, model in outcome.models.items() if model.status} for outcome in outcomes]
    able = {name for name in wanted if sum(name not in names for names in failed) > 1}
    names = planning.rotated(conductors[0].names, process, conductors[0].plan.processes)
    return [[name for name in names if name in able - left_out] for left_out in failed]
