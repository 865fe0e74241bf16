"""One verification, in order: hold the machine, check models in fresh processes, keep the record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env.errors import EnvError
from env.hold import Held
from fastrnns import runner
from fastrnns.errors import HarnessError
from fastrnns.interrupts import Interrupts, interruptible
from fastrnns.measure.conduct import TICK_SECONDS
from fastrnns.measure.process import ChildDied, start_inside
from fastrnns.measure.starting import ChildLike
from fastrnns.verify.flags import VerifyOptions
from fastrnns.verify.report import Story
from fastrnns.verify.tolerance import tolerance_for

WORKER = "fastrnns.verify.worker"
SILENCE_SECONDS = 900.0  # longest that one model may take; a model that hangs is failed, and the rest go on
FAILED, MACHINE, INTERRUPTED = 1, 3, 130


@dataclass
class Run:
    """What one verification found; `record` is what the archive gets."""

    record: dict[str, Any]
    exit_code: int = 0
    trouble: str = ""
    path: Path | None = None


@dataclass
class Found:
    """What the workers said so far."""

    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    hello: dict[str, Any] | None = None

    def add(self, options: VerifyOptions, name: str, **facts: Any) -> None:
        """Keep what is known of one model; the first that is said of it counts."""
        self.results.setdefault(name, result_of(options, name, **facts))


def run(options: VerifyOptions, story: Story) -> Run:
    """Check what the options ask for. What was checked is kept whatever happens after it."""
    from fastrnns.archive import record as records

    started = time.monotonic()
    record = records.new("verify", options.argv, options.problem.as_dict(), options.recorded())
    found = Found()
    trouble: HarnessError | EnvError | None = None
    with interruptible() as interrupts:
        try:
            gpu = options.device.nvml_index()
            with options.machine.held(gpu=gpu, command="verify") as held:
                check_all(
                    options, found, story, interrupts, lambda: start_inside(WORKER, held.cpus, held.adopt)
                )
        except (HarnessError, EnvError) as error:
            if not found.results:
                raise
            trouble = error
        fill(record, options, found, held)
        exit_code = code_of(options, found, interrupts, trouble, held)
        record["options"]["interrupted"] = interrupts.requested
        record["exit_code"] = exit_code
        record["verdict"] = records.verdict(
            record["environment"], record["results"], record["options"], kind="verify", exit_code=exit_code
        )
        if options.archive is not None or options.json:
            from env import fingerprint

            record["fingerprint"] = fingerprint.fingerprint(software=found.hello, steps=held.before)
        record["duration_s"] = round(time.monotonic() - started, 3)
        done = Run(record, exit_code, str(trouble or ""))
        if options.archive is not None:
            from fastrnns.archive.store import Archive

            done.path = Archive(options.archive).write(record)
    return done


def check_all(
    options: VerifyOptions,
    found: Found,
    story: Story,
    interrupts: Interrupts,
    start: Callable[[], ChildLike],
) -> None:
    """Check every model; a worker that dies costs the model it was at, and a fresh one goes on."""
    waiting = list(options.models)
    while waiting and not interrupts.requested:
        child = start()
        try:
            child.send({**options.job(), "models": waiting})
            _listen(child, options, found, story, interrupts)
        finally:
            child.stop()
        waiting = [name for name in waiting if name not in found.results]


def _listen(
    child: ChildLike,
    options: VerifyOptions,
    found: Found,
    story: Story,
    interrupts: Interrupts,
) -> None:
    """Take one worker's events until it ends, dies, falls silent or is no longer wanted."""
    at: str | None = None  # the model being checked
    heard = time.monotonic()
    ending: str | None = None
    while not interrupts.requested:
        try:
            event = child.receive(TICK_SECONDS)
        except EOFError:
            ending = "the worker process ended without an answer"
            break
        except ChildDied as error:
            ending = str(error)
            break
        if event is None:
            if time.monotonic() - heard > SILENCE_SECONDS:
                ending = f"no answer within {SILENCE_SECONDS:g} s"
                break
            continue
        heard = time.monotonic()
        name = event.get("model", "")
        match event["event"]:
            case "hello":
                found.hello = event
            case "model_start":
                at = name
                story.begin(name)
            case "checked":
                found.add(options, name, status="ok" if event["ok"] else "failed", **_of_checked(event))
            case "model_failed":
                found.add(options, name, status=event["status"], error=event["error"])
            case "graph":
                story.graph(name, event["graph"])
            case "done":
                at = None
                return
        if name in found.results and event["event"] in ("checked", "model_failed"):
            story.end(found.results[name])
            at = None
    if ending is None:
        return  # interrupted: what was not checked is not in the record
    # A worker that ends outside any model cannot check the others either.
    for name in [at] if at is not None else [name for name in options.models if name not in found.results]:
        found.add(options, name, status="failed", error=ending)
        story.end(found.results[name])


def _of_checked(event: dict[str, Any]) -> dict[str, Any]:
    wrong = [check for check in event["checks"] if not check["ok"]]
    error = None
    if not event["ok"]:
        error = f"{wrong[0]['tensor']}: {wrong[0]['problem']}" if wrong else "nothing was compared"
    return {
        "error": error,
        "backend": event["backend"],
        "checks": event["checks"],
        "notes": event["notes"],
    }


def result_of(
    options: VerifyOptions,
    name: str,
    *,
    status: str,
    error: str | None = None,
    backend: str | None = None,
    checks: Sequence[dict[str, Any]] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """One model's result as the record holds it."""
    model = runner.lookup(name)
    return {
        "model": name,
        "group": model.group,
        "family": model.family,
        "dtype": options.dtype,
        "status": status,
        "error": error,
        "backend": backend,
        "forward": None,
        "backward": None,
        "notes": list(notes),
        "checks": list(checks),
        "details": {
            "control": model.control,
            "tolerance": str(tolerance_for(model.verify, options.dtype)),
        },
    }


def fill(record: dict[str, Any], options: VerifyOptions, found: Found, held: Held) -> None:
    """Put what was found into the record."""
    record["results"] = [found.results[name] for name in options.models if name in found.results]
    record["results"] += [
        result_of(options, name, status="unsupported", error=reason) for name, reason in options.unsupported
    ]
    hello = found.hello or {}
    record["options"] |= {
        "threads": hello.get("threads"),
        "products": hello.get("precision"),
        "deterministic": hello.get("deterministic"),
        "cudnn_deterministic": hello.get("cudnn_deterministic"),
        "cublas_workspace_config": os.environ.get("CUBLAS_WORKSPACE_CONFIG"),
        "torch": (hello.get("torch") or {}).get("version"),
    }
    record["environment"] = {
        "mode": options.machine.env,
        "before": held.before,
        "after": held.after,
        "shield": held.shield or None,
        "watch": None,
        "drift": held.drift,
        "reasons": list(held.reasons),
    }


def code_of(
    options: VerifyOptions,
    found: Found,
    interrupts: Interrupts,
    trouble: HarnessError | EnvError | None,
    held: Held,
) -> int:
    """The exit code that the verification earned; a model that this software cannot run is no mismatch."""
    if interrupts.requested:
        return INTERRUPTED
    if trouble is not None:
        return trouble.exit_code
    if any(result["status"] == "failed" for result in found.results.values()):
        return FAILED
    if all(result["status"] == "unsupported" for result in found.results.values()):
        return FAILED  # nothing was checked
    return MACHINE if options.machine.strict and held.drift else 0
