"""`python -m fastrnns.test`: check the models; the command line in, the table of errors or JSON out."""

from __future__ import annotations

import argparse
import json
import os
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from env.command import framed
from env.lifeline import follow_parent
from fastrnns.errors import SAID
from fastrnns.verify import flags, report

if TYPE_CHECKING:
    from fastrnns.verify.session import Run

INTERRUPTED = 130


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def show(run: Run, *, as_json: bool) -> None:
    """Print the answer: the table and the mismatches, or the record."""
    results = run.record["results"]
    stream = sys.stderr if as_json else sys.stdout
    print("\n".join(report.table(results)), file=stream)
    for line in [*report.tolerances(results), *report.problems(results)]:
        print(textwrap.fill(line, report.WIDTH, subsequent_indent="  "), file=stream)
    if as_json:
        from fastrnns.archive.record import prepare

        print(json.dumps(prepare(run.record), ensure_ascii=True, allow_nan=False))
    sys.stdout.flush()
    for result in results:
        for note in result["notes"]:
            say(f"{result['model']}: {note}")
    checked = sum(result["status"] == "ok" for result in results)
    say(f"{checked} of {len(results)} models passed; verdict: {run.record['verdict']['status']}")
    for reason in run.record["verdict"]["reasons"]:
        say(f"  - {reason}")
    if run.trouble:
        say(f"fastrnns.test: {run.trouble}")
    if run.path is not None:
        say(f"record: {os.path.relpath(run.path)}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    argv = sys.argv[1:] if argv is None else list(argv)
    args = flags.parser().parse_args(argv)
    return framed("fastrnns.test", lambda: answer(argv, args), SAID)


def answer(argv: Sequence[str], args: argparse.Namespace) -> int:
    """Check the models and show."""
    options = flags.verify_options(argv, args)
    from fastrnns.verify import session

    run = session.run(options, report.Story(len(options.models)))
    show(run, as_json=options.json)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
