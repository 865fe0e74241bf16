"""One bench run, in order: hold the machine, measure, put it back, say what was found."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.errors import EnvError
from env.hold import Held
from env.watch import Watch
from fastrnns import runner, sweep
from fastrnns.errors import HarnessError
from fastrnns.interrupts import Interrupts, interruptible
from fastrnns.measure.conduct import Conductor, Outcome, interleave
from fastrnns.measure.process import Child, start_inside
from fastrnns.options import BenchOptions

if TYPE_CHECKING:
    from fastrnns.environments import Environment
    from fastrnns.present.progress import Progress

WORKER = "fastrnns.measure.worker"
SAME_WORK = "same forward and backward work"  # what the registry says of models that need no caution
FAILED, INTERRUPTED = 1, 130
MOST_STARTED = 10  # workers of all sides that wait for their turn, each with torch in its memory
FACTS_SECONDS = 30.0  # longest wait for the fingerprint before the first iteration


@dataclass
class Run:
    """What one run found; `record` is what the archive gets."""

    record: dict[str, Any]
    exit_code: int = 0
    trouble: str = ""  # what ended the run before its time, or spoilt it afterwards
    path: Path | None = None


@dataclass
class Watched:
    """What the watch of each process saw."""

    facts: list[dict[str, Any]] = field(default_factory=list)
    disturbances: list[dict[str, Any]] = field(default_factory=list)
    current: Watch | None = None

    def begin(self, held: Held, pid: int) -> None:
        """Watch one process from now on."""
        self.end()
        if held.mode != "ignore":
            self.current = held.watch(pid).start()

    def end(self) -> None:
        """Stop watching, and keep what was seen."""
        if self.current is None:
            return
        self.current.stop()
        facts = self.current.facts()
        self.disturbances += facts.pop("disturbances")  # the record keeps them once, for all processes
        self.facts.append(facts)
        self.current = None


class Background:
    """The parent's own slow work, done while the first worker imports torch."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._answer: Any = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name="facts", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with contextlib.suppress(Exception):  # each probe reports its own failure; a missing answer is None
            self._answer = self._work()

    def wait(self, seconds: float | None = None) -> Any:
        """Return the answer, or None where there is none in time."""
        self._thread.join(seconds)
        return self._answer


@dataclass
class Side:
    """One record in the making: of the only side, or of one of several environments measured in turn."""

    record: dict[str, Any]
    environment: Environment | None = None  # None: this interpreter
    watched: Watched = field(default_factory=Watched)
    outcome: Outcome = field(default_factory=lambda: Outcome({}))


def run(options: BenchOptions, kind: str = "bench", against: str | None = None) -> Run:
    """Do what the options ask for. What was measured is kept whatever happens after it.

    `against` is the id of the record that it will be compared with: the archive then keeps that one.
    """
    from fastrnns.archive import record as records

    record = records.new(kind, options.argv, options.problem.as_dict(), options.recorded())
    if against is not None:
        record["details"] = {"against": against}
    return _run(options, [Side(record)])[0]


def run_sides(options: BenchOptions, environments: Mapping[str, Environment]) -> list[Run]:
    """Measure environments, by name, on one held machine, process by process; their records name each other."""
    from fastrnns.archive import record as records

    sides = [
        Side(records.new("bench", options.argv, options.problem.as_dict(), options.recorded()), environment)
        for environment in environments.values()
    ]
    for side, name in zip(sides, environments, strict=True):
        side.record["options"] |= {"pair": sides[0].record["id"], "side": name}
    return _run(options, sides)


def _run(options: BenchOptions, sides: Sequence[Side]) -> list[Run]:
    started = time.monotonic()
    trouble: HarnessError | EnvError | None = None
    with interruptible() as interrupts:
        try:
            gpu = options.device.nvml_index()
            with options.machine.held(gpu=gpu, command="bench") as held:
                wanted = options.archive is not None or options.against is not None or len(sides) > 1
                background = Background(lambda: slow_work(held.before, fingerprint=wanted))
                measure(options, held, sides, background, interrupts=interrupts)
                if options.roofline and not interrupts.requested:
                    sides[0].record["ceilings"] = ceilings_of(options, held, background)
        except (HarnessError, EnvError) as error:  # the machine moved under --strict, say
            if not any(side.outcome.something for side in sides):
                raise
            trouble = error  # what was measured is kept all the same
        for side in sides:
            side.record["ceilings"] = sides[0].record.get("ceilings")
        facts = background.wait(FACTS_SECONDS)
        done = [_finished(options, side, held, interrupts, trouble, facts) for side in sides]
        for one in done:
            one.record["duration_s"] = round(time.monotonic() - started, 3)
            if options.archive is not None:
                from fastrnns.archive.store import Archive

                one.path = Archive(options.archive).write(one.record)
    return done


def _finished(  # noqa: PLR0917 - all that a record is made of
    options: BenchOptions,
    side: Side,
    held: Held,
    interrupts: Interrupts,
    trouble: HarnessError | EnvError | None,
    facts: dict[str, Any] | None,
) -> Run:
    """One side's record, whole but for its place in the archive."""
    from fastrnns.archive import record as records

    record = side.record
    fill(record, options, side.outcome, held, side.watched)
    if record.get("ceilings"):
        add_limits(record, options)
    exit_code = code_of(record, options, interrupts, trouble)
    record["exit_code"] = exit_code
    record["verdict"] = records.verdict(
        record["environment"], record["results"], record["options"], kind=record["kind"], exit_code=exit_code
    )
    if facts is not None:
        from env import fingerprint

        if side.environment is not None:
            facts = {**facts, "software": {**facts["software"], **side.environment.facts}}
        hellos = side.outcome.hellos
        record["fingerprint"] = fingerprint.complete(facts, hellos[0] if hellos else None)
    return Run(record, exit_code, str(trouble or ""))


def ceilings_of(options: BenchOptions, held: Held, background: Background) -> dict[str, Any] | None:
    """What the machine does at best, for --roofline: kept, or measured now inside the same shield."""
    from env import fingerprint
    from fastrnns.archive.store import Archive
    from fastrnns.profiling import ceilings

    facts = background.wait(FACTS_SECONDS)
    archive = Archive(options.archive) if options.archive is not None and facts is not None else None
    try:
        return ceilings.of_machine(
            str(options.device),
            wanted=None if archive is not None else True,
            archive=archive,
            complete=lambda hello: fingerprint.complete(facts or {}, hello),
            measure=lambda: ceilings.measure(str(options.device), adopt=held.adopt, cpus=held.cpus or None),
            threads=len(held.cpus) or None,
            say=lambda text: print(text, file=sys.stderr, flush=True),
        )
    except HarnessError as error:  # a bench without a roofline is a bench
        print(f"no ceilings: {error}", file=sys.stderr, flush=True)
        return None


def slow_work(steps: list[dict[str, Any]], *, fingerprint: bool) -> dict[str, Any] | None:
    """Collect the fingerprint, for a record that is kept or compared, and import what the end of the run needs."""
    facts: dict[str, Any] | None = None
    if fingerprint:
        from env.fingerprint import collect

        facts = collect(steps=steps)
        from fastrnns.archive import record as records

        with contextlib.suppress(Exception):
            records.validate({"schema": records.SCHEMA})  # builds the validator; the refusal is expected
    import scipy.special  # noqa: F401

    return facts


def measure(
    options: BenchOptions,
    held: Held,
    sides: Sequence[Side],
    background: Background,
    *,
    interrupts: Interrupts,
) -> None:
    """Run the processes inside the held machine, with progress on stderr."""
    from fastrnns.present.progress import progress_on

    shown = progress_on(sys.stderr, len(options.models) * len(sides), options.plan.processes)
    beside = min(len(held.cpus or os.sched_getaffinity(0)), max(1, MOST_STARTED // len(sides)))
    with contextlib.ExitStack() as stack:
        stack.callback(shown.close)
        conductors = [
            _conductor(
                options, held, side, background, interrupts, shown, beside, compile_cache(options, stack)
            )
            for side in sides
        ]
        if len(sides) == 1:
            conductors[0].run(sides[0].outcome)
        else:
            interleave(conductors, [side.outcome for side in sides])


def compile_cache(options: BenchOptions, stack: contextlib.ExitStack) -> str | None:
    """An empty folder for what one side compiles, gone afterwards: its first process compiles all there is."""
    if not any(runner.of_series(name).compiled for name in options.models):
        return None
    return stack.enter_context(tempfile.TemporaryDirectory(prefix="fastrnns-", ignore_cleanup_errors=True))


def _conductor(  # noqa: PLR0917 - all that a process meets
    options: BenchOptions,
    held: Held,
    side: Side,
    background: Background,
    interrupts: Interrupts,
    shown: Progress,
    beside: int,
    cache: str | None,
) -> Conductor:
    def hello(child: Child, _event: dict[str, Any]) -> None:
        background.wait(FACTS_SECONDS)  # nothing of ours runs beside the iterations
        if options.machine.env != "ignore":
            place = held.verify(child.pid)  # again: importing torch starts threads and may move them
            held.shield["verified"] = place["ok"]
            held.reasons += [text for text in place["problems"] if text not in held.reasons]
        side.watched.begin(held, child.pid)

    python = None if side.environment is None else side.environment.python
    return Conductor(
        plan=options.plan,
        names=options.models,
        torchscript={name for name in options.models if runner.of_series(name).legacy},
        compiled={name for name in options.models if runner.of_series(name).compiled},
        compile_limit_s=options.compile_limit_s,
        job={
            "problem": options.problem.as_dict(),
            "device": str(options.device),
            "dtype": options.dtype,
            "seed": options.seed,
            "tf32": options.tf32,
            "fuser": options.fuser,
            "executor": options.executor,
            "cuda_pointwise": options.cuda_pointwise,
            "cache": options.cache,
            "compile_cache": cache,
            "graph_replay": options.graph_replay,
        },
        spawn=lambda: start_inside(WORKER, held.cpus, held.adopt, python=python),
        beside=beside,
        on_hello=hello,  # type: ignore[arg-type]  # it is given what spawn made
        on_process_end=side.watched.end,
        on_event=shown.event,
        on_tick=shown.tick,
        interrupted=lambda: interrupts.requested,
    )


def fill(
    record: dict[str, Any], options: BenchOptions, outcome: Outcome, held: Held, watched: Watched
) -> None:
    """Put what was found into the record."""
    from fastrnns.measure.result import result_of, unsupported

    for name, measured in outcome.models.items():
        model = runner.of_series(name)
        record["results"].append(
            result_of(
                measured,
                group=model.group,
                family=model.family,
                dtype=options.dtype,
                plan=options.plan,
                torchscript=model.legacy,
                has_backward=model.has_backward,
                comparable_note=caution(model),
                disturbances=watched.disturbances,
                interrupted=outcome.interrupted,
            )
        )
    for name, reason in options.unsupported:
        model = runner.of_series(name)
        record["results"].append(
            unsupported(name, reason, group=model.group, family=model.family, dtype=options.dtype)
        )
    if options.sweep:
        from fastrnns.archive import winners

        for result in record["results"]:
            result["problem"] = sweep.problem_at(result["model"], options.problem).as_dict()
        found = winners.cells(record["results"])
        record["details"] = {**(record.get("details") or {}), "winners": winners.as_details(found)}
    hello = outcome.hellos[0] if outcome.hellos else {}
    record["options"] |= {
        "processes_run": len(outcome.hellos),
        "threads": hello.get("threads"),
        "interop_threads": hello.get("interop_threads"),
        "affinity": hello.get("affinity"),
        "products": hello.get("precision"),
        "deterministic": hello.get("deterministic"),
        "cudnn_benchmark": hello.get("cudnn_benchmark"),
        "torch": (hello.get("torch") or {}).get("version"),
        "cold_start_s": [
            {"import_torch": each["import_s"], "ready": each["ready_s"], "beside": each["beside"]}
            for each in outcome.hellos
        ],
        "interrupted": outcome.interrupted,
    }
    reasons = list(held.reasons)
    if hello and options.machine.env != "ignore" and hello["threads"] > len(hello["affinity"]):
        reasons.append(f"{hello['threads']} threads computed on {len(hello['affinity'])} CPUs")
    record["environment"] = {
        "mode": options.machine.env,
        "before": held.before,
        "after": held.after,
        "shield": held.shield or None,
        "watch": {"processes": watched.facts} if watched.facts else None,
        "drift": held.drift,
        "disturbances": watched.disturbances,
        "reasons": reasons,
    }


def add_limits(record: dict[str, Any], options: BenchOptions) -> None:
    """The operations, bytes and limit of each result, from the ceilings of its machine."""
    from fastrnns.profiling import roofline

    for result in record["results"]:
        result["roofline"] = roofline.of_result(
            result,
            sweep.problem_at(result["model"], options.problem),
            record["ceilings"],
            tf32=options.tf32 and options.device.type == "cuda",
            lengths=(result.get("details") or {}).get("lengths"),
        )


def caution(model: runner.Model) -> str:
    """What to keep in mind when this time is set beside another's; empty where it is the same work."""
    note = model.comparable_note
    return "" if note == SAME_WORK or "yardstick" in note else note


def code_of(
    record: dict[str, Any],
    options: BenchOptions,
    interrupts: Interrupts,
    trouble: HarnessError | EnvError | None,
) -> int:
    """The exit code that the run earned."""
    if record["options"]["interrupted"] or interrupts.requested:
        return INTERRUPTED
    if trouble is not None:
        return trouble.exit_code
    chosen = [result for result in record["results"] if result["model"] in options.models]
    return FAILED if any(result["status"] != "ok" for result in chosen) else 0


def exported(record: dict[str, Any], form: str) -> Iterator[str]:
    """The lines of upstream's JSON, in milliseconds; a model that failed is null, not absent."""
    import json

    groups: dict[str, dict[str, Any]] = {}
    for result in record["results"]:
        for phase, suffix in (("forward", ""), ("backward", "-backward")):
            if runner.of_series(result["model"]).has_backward or phase == "forward":
                groups.setdefault(f"{result['family']}{suffix}", {})[result["model"]] = (
                    result[phase] if result["status"] == "ok" else None
                )
    if form == "oss":
        means = {
            group: {model: None if phase is None else phase["mean"] for model, phase in models.items()}
            for group, models in groups.items()
        }
        yield json.dumps(means, allow_nan=False)
        return
    for group, models in groups.items():
        for model, phase in models.items():
            for series in [] if phase is None else phase["samples"]:
                for value in series:
                    line = {"type": "NET", "metric": f"{group}-{model}", "unit": "ms", "value": str(value)}
                    yield f"Caffe2Observer {json.dumps(line)}"
