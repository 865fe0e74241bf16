"""`python -m fastrnns.profile`: where the time of a model goes, by the best profiler that works here."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.errors import EnvError
from env.lifeline import follow_parent
from fastrnns.errors import HarnessError
from fastrnns.profiling import flags

if TYPE_CHECKING:
    from fastrnns.profiling.plan import Plan
    from fastrnns.profiling.session import Found

INTERRUPTED = 130


def profile(plan: Plan, args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run a plan on the machine as it is held, print what was found, keep it."""
    from env import fingerprint, hold
    from env.privilege import Privilege
    from env.sysfs import Files
    from fastrnns.archive.store import Archive
    from fastrnns.profiling import ceilings, keeping, sampling, session

    archive = Archive(args.archive) if args.archive else None
    base = Archive(args.archive or "results").load(args.against) if args.against else None
    if archive is not None:
        archive.preflight()
    started = time.monotonic()
    facts: dict[str, Any] = {}
    done: list[session.Found] = []
    known: dict[str, Any] | None = None
    notes: list[str] = []
    exit_code = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fastrnns-profile-")))
        gpu = int(plan.device.partition(":")[2] or 0) if plan.device_type == "cuda" else None
        try:
            with (
                hold.hold(args.env, cpus=args.cpus, strict=args.strict, gpu=gpu) as held,
                ExitStack() as raised,
            ):
                if args.env == "apply":
                    files = Files("/")
                    note = raised.enter_context(sampling.raised(files, Privilege(files)))
                    notes += [note] if note else []
                collecting = threading.Thread(
                    target=lambda: facts.update(fingerprint.collect(steps=held.before))
                )
                collecting.start()
                cpus = held.cpus or None
                session.run(plan, folder, adopt=held.adopt, cpus=cpus, say=_say, finished=done)
                collecting.join()
                known = keeping.ceilings_for(
                    plan,
                    wanted=args.roofline,
                    archive=archive,
                    complete=lambda software: fingerprint.complete(facts, software),
                    measure=lambda: ceilings.measure(
                        plan.device, threads=plan.threads, adopt=held.adopt, cpus=cpus
                    ),
                    threads=plan.threads or (len(cpus) if cpus else None),
                    say=_say,
                )
        except KeyboardInterrupt:
            exit_code = INTERRUPTED
            _say("interrupted: what was profiled by then is kept")
        exit_code = exit_code or int(any(one.status != "ok" for one in done))
        software = next((one.hello for one in done if one.hello), None)
        found = keeping.build(
            plan,
            ["fastrnns.profile", *argv],
            done,
            started=started,
            fingerprint=fingerprint.complete(facts or fingerprint.collect(steps=held.before), software),
            known=known,
            surroundings=keeping.environment(held, args.env, notes),
            exit_code=exit_code,
        )
        if archive is not None:
            _say(f"record: {keeping.write(archive, found, done, folder)}")
        show(found, done, base, args)
    return exit_code


def show(
    found: dict[str, Any], done: Sequence[Found], base: dict[str, Any] | None, args: argparse.Namespace
) -> None:
    """Print what was found: the record, or the lines that matter."""
    from fastrnns.archive.record import prepare
    from fastrnns.profiling import ceilings, changes, present

    if args.json:
        print(json.dumps(prepare(found), ensure_ascii=True, allow_nan=False))
        return
    for result in found["results"]:
        print("\n".join(present.lines(result)))
    for one in done:
        if args.verbose and one.graph is not None:
            graph = one.graph.read_text(encoding="utf-8", errors="replace")
            print(f"{one.model}: the graph that the JIT ran", graph, one.fused, sep="\n")
    if found["ceilings"]:
        print(f"ceilings: {ceilings.describe(found['ceilings'])}")
    if base is not None:
        print("\n".join([f"against {base['id']}:", *changes.against(base, found)]))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    argv = sys.argv[1:] if argv is None else list(argv)
    args = flags.parser().parse_args(argv)
    try:
        plan = flags.plan_from(args)
        if args.internal_run:
            from fastrnns.profiling.worker import run_plain

            for model in plan.models:
                run_plain(plan.job(model, ""))
            return 0
        _say(f"tool: {plan.choice.tool} ({plan.choice.why})")
        for tool, reason in plan.choice.refused.items():
            _say(f"  not {tool}: {reason}")
        return profile(plan, args, argv)
    except (HarnessError, EnvError) as error:
        _say(f"fastrnns.profile: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
