"""`python -m fastrnns.profile`: where the time of a model goes, by the best profiler that works here."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.command import framed
from env.lifeline import follow_parent
from fastrnns.errors import SAID
from fastrnns.machine_flags import machine_from
from fastrnns.profiling import flags

if TYPE_CHECKING:
    from fastrnns.profiling.plan import Plan
    from fastrnns.profiling.session import Found

INTERRUPTED = 130


def profile(plan: Plan, args: argparse.Namespace, argv: Sequence[str]) -> int:
    """Run a plan on the machine as it is held, print what was found, keep it."""
    from fastrnns.archive.store import Archive
    from fastrnns.interrupts import interruptible
    from fastrnns.profiling import keeping

    machine = machine_from(args, plan.device_type)
    archive = Archive(args.archive) if args.archive else None
    base = Archive(args.archive or "results").load(args.against) if args.against else None
    if archive is not None:
        archive.preflight()
    with tempfile.TemporaryDirectory(prefix="fastrnns-profile-") as folder, interruptible() as interrupts:
        run = keeping.Run(plan, machine, Path(folder), archive, _say, lambda: interrupts.requested)
        run.hold(roofline=args.roofline)
        exit_code = INTERRUPTED if interrupts.requested else run.exit_code
        found = run.record(["fastrnns.profile", *argv], exit_code)
        if base is not None:
            found["details"]["against"] = base["id"]
        if archive is not None:
            _say(f"record: {keeping.write(archive, found, run.done, run.folder)}")
        show(found, run.done, base, args)
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
    return framed("fastrnns.profile", lambda: answer(argv, args), SAID)


def answer(argv: Sequence[str], args: argparse.Namespace) -> int:
    """Be the profiled child, or choose a tool and profile."""
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


if __name__ == "__main__":
    sys.exit(main())
