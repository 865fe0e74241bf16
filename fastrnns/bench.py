"""`python -m fastrnns.bench`: time the models; the command line in, the table or JSON out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from env.command import framed
from env.lifeline import follow_parent
from fastrnns import options as command_line
from fastrnns.errors import SAID, MachineError

if TYPE_CHECKING:
    from fastrnns.options import BenchOptions
    from fastrnns.session import Run

INTERRUPTED = 130


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def show(run: Run, options: BenchOptions) -> None:
    """Print the answer: the table on stdout, or JSON there and the table on stderr; then the verdict."""
    from fastrnns import session
    from fastrnns.present import table

    results = run.record["results"]
    if options.print_json:
        table.show(results, sys.stderr, options.sep)
        for line in session.exported(run.record, options.print_json):
            print(line)
    else:
        table.show(results, sys.stdout, options.sep)
    if options.sweep and options.sep == " ":
        from fastrnns.present import winners

        print(f"\n{winners.text(results)}", file=sys.stderr if options.print_json else sys.stdout)
    sys.stdout.flush()
    if run.record.get("ceilings"):
        from fastrnns.profiling import ceilings

        say(f"limit: {ceilings.describe(run.record['ceilings'])}")
    for result in results:
        for note in result["notes"]:
            say(f"{result['model']}: {note}")
    verdict = run.record["verdict"]
    say(f"verdict: {verdict['status']}")
    for reason in verdict["reasons"]:
        say(f"  - {reason}")
    if run.trouble:
        say(f"fastrnns.bench: {run.trouble}")
    if run.path is not None:
        say(f"record: {os.path.relpath(run.path)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    argv = sys.argv[1:] if argv is None else list(argv)
    args = command_line.parser().parse_args(argv)
    return framed("fastrnns.bench", lambda: answer(argv, args), SAID)


def answer(argv: Sequence[str], args: argparse.Namespace) -> int:
    """List the models, or measure and show."""
    if args.list:
        from fastrnns.present import table

        table.models(sys.stdout)
        return 0
    options = command_line.bench_options(argv, args)
    if options.sweep:
        from fastrnns import sweep

        plan = options.plan
        say(sweep.announcement(options.models, plan.budget_s, counted=plan.nloops is not None))
    if options.ab is not None:
        return answer_pair(options)
    base = None
    if options.against is not None:
        from fastrnns import against

        base = against.base_for(options)
    from fastrnns import session

    run = session.run(options, against=None if base is None else base["id"])
    show(run, options)
    return run.exit_code if base is None else verdict_on(base, run, options)


def answer_pair(options: BenchOptions) -> int:
    """Measure two environments in turn, show both, and judge the second against the first."""
    from fastrnns import environments, session

    pair = dict(zip(("base", "new"), environments.ask(options.ab or ()), strict=True))
    for name, environment in pair.items():
        say(f"{name}: {environment}")
    base, new = session.run_sides(options, pair)
    for name, run in (("base", base), ("new", new)):
        say(f"{name}:")
        show(run, options)
    if base.exit_code != 0:
        return base.exit_code
    return verdict_on(base.record, new, options)


def verdict_on(base: dict[str, Any], run: Run, options: BenchOptions) -> int:
    """Print how a run compares; its own failure or interruption goes before any comparison."""
    from fastrnns import against
    from fastrnns.archive.comparable import sentence
    from fastrnns.present import comparison as present

    if run.exit_code != 0:
        return run.exit_code
    comparison = against.judged(base, run.record, options)
    print(present.text(comparison), file=sys.stderr if options.print_json else sys.stdout, flush=True)
    if comparison.refusals:
        raise MachineError(
            f"not comparable: {sentence(list(comparison.refusals))}; both records are kept as they are"
        )
    say(f"{comparison.new_id} against {comparison.base_id}: {comparison.overall}")
    return comparison.exit_code


if __name__ == "__main__":
    sys.exit(main())
