"""`python -m fastrnns.bench`: time the models; the command line in, the table or JSON out."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from env.command import framed
from env.lifeline import follow_parent
from fastrnns import options as command_line
from fastrnns.errors import SAID

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
    from fastrnns import session

    run = session.run(options)
    show(run, options)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
