"""`python -m fastrnns.compare BASE NEW`: is the new record faster, slower or the same, model by model."""

from __future__ import annotations

import argparse
import glob
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.command import framed
from fastrnns.errors import SAID, HarnessError, MachineError, UsageError

if TYPE_CHECKING:
    from fastrnns.archive.compare import Comparison

EPILOG = (
    "exit codes: 0 nothing is slower (faster, the same, or inconclusive, and it says which); "
    "1 a model is slower, or failed in the new record; 2 the command line; "
    "3 the records, or some of their models, are not comparable."
)


COMPARED = frozenset({"bench", "reproduce"})  # what latest counts


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.compare", description=__doc__, epilog=EPILOG, allow_abbrev=False
    )
    refs = "a path, a glob, an id or its beginning, latest or latest~N (of the records that hold times)"
    made.add_argument("base", metavar="BASE", help=refs)
    made.add_argument("new", metavar="NEW", help="likewise")
    shape = made.add_mutually_exclusive_group()
    shape.add_argument("--json", action="store_true", help="as JSON")
    shape.add_argument("--markdown", action="store_true", help="as a table for a pull request")
    made.add_argument(
        "--margin",
        type=float,
        default=1.0,
        metavar="PCT",
        help="differences below it do not matter (default: 1)",
    )
    made.add_argument(
        "--within-machine", metavar="MODEL", help="compare ratios to this model, as between two machines"
    )
    made.add_argument("--force", action="store_true", help="compare what is not comparable, and label it so")
    made.add_argument("--archive", default="results", metavar="DIR", help="the archive's folder (results)")
    return made


def load(ref: str, archive: Any) -> list[dict[str, Any]]:
    """The records that one argument names: one, or those of a glob."""
    from fastrnns.archive import store

    if any(mark in ref for mark in "*?[") and not Path(ref).exists():
        paths = sorted(glob.glob(ref, recursive=True))  # noqa: PTH207 - the pattern may be absolute
        if not paths:
            raise UsageError(f"no file matches {ref}; quote it, and check it with ls")
        return [dict(store.read(Path(path)).record) for path in paths]
    latest = store.LATEST.match(ref)
    if not latest:
        return [archive.load(ref)]
    survey = archive.overview()
    timed = [entry for entry in survey.entries if entry.record["kind"] in COMPARED]
    back = int(latest[1] or 0)
    if back >= len(timed):
        raise UsageError(
            f"{ref}: {archive.folder} holds {len(timed)} bench records; see python -m fastrnns.archive list"
        )
    found = timed[-1 - back]
    doubt = [text for path, text in survey.damaged if path.name >= found.path.name[: len("20000101T000000Z")]]
    if doubt:
        raise HarnessError(f"{ref} is not certain, because {doubt[0]}; give the record's id")
    return [dict(store.read(found.path).record)]


def run(args: argparse.Namespace) -> Comparison:
    """Load, pool, find the calibration, judge."""
    from fastrnns.archive import calibration, compare, pool, store

    if not 0 <= args.margin < 100:
        raise UsageError(f"--margin is {args.margin:g}; give a percentage from 0 up to 100, such as 1")
    archive = store.Archive(args.archive)
    base, new = (pool.pooled(load(ref, archive)) for ref in (args.base, args.new))
    found = None
    if args.within_machine is None and archive.folder.is_dir():
        found = calibration.find((entry.record for entry in archive.list(calibration.KIND)), new)
    return compare.compare(
        base,
        new,
        margin=args.margin / 100,
        reference=args.within_machine,
        force=args.force,
        calibration=found,
    )


def show(comparison: Comparison, args: argparse.Namespace) -> None:
    """Print the answer on stdout, and a refusal on stderr."""
    from fastrnns.present import comparison as present

    if args.json:
        print(json.dumps(comparison.as_dict(), indent=1, allow_nan=False))
    elif args.markdown:
        print(present.markdown(comparison))
    else:
        print(present.text(comparison))
    sys.stdout.flush()
    if comparison.refusals and not comparison.forced:
        from fastrnns.archive.comparable import sentence

        elsewhere = all(each.field.startswith("hardware") for each in comparison.refusals)
        hint = "--within-machine MODEL compares ratios, " if elsewhere and not args.within_machine else ""
        raise MachineError(
            f"not comparable: {sentence(list(comparison.refusals))}; {hint}--force compares anyway"
        )
    say(f"{comparison.new_id} against {comparison.base_id}: {comparison.overall}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    args = parser().parse_args(argv)
    return framed("fastrnns.compare", lambda: answer(args), SAID)


def answer(args: argparse.Namespace) -> int:
    """Compare and show."""
    comparison = run(args)
    show(comparison, args)
    return comparison.exit_code


if __name__ == "__main__":
    sys.exit(main())
