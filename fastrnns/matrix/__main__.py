"""`python -m fastrnns.matrix`: many builds of PyTorch in turn on one machine; the command line in, the answer out."""

from __future__ import annotations

import itertools
import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from env.command import framed
from env.lifeline import follow_parent
from fastrnns.errors import SAID, HarnessError
from fastrnns.matrix import flags
from fastrnns.options import before_and_after

if TYPE_CHECKING:
    from fastrnns.archive.compare import Comparison
    from fastrnns.environments import Environment
    from fastrnns.matrix.flags import MatrixOptions
    from fastrnns.measure.plan import Plan
    from fastrnns.session import Run

FAILED, MACHINE, INTERRUPTED = 1, 3, 130


class Interrupted(HarnessError):  # noqa: N818 - it names what happened
    """A person ended the search; what was measured is kept."""

    exit_code = INTERRUPTED


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


@dataclass
class Progress:
    """What is known so far of the versions, by label: for the answer, whatever ends the command."""

    found: dict[str, Environment | str] = field(default_factory=dict)
    records: dict[str, dict[str, Any]] = field(default_factory=dict)  # the last of each version

    def obtain(self, options: MatrixOptions, labels: Sequence[str]) -> dict[str, Environment]:
        """The environments of some versions, made where they are missing; a failure is said once."""
        from fastrnns.matrix import cells

        new = [cell for cell in options.cells if cell.label in labels and cell.label not in self.found]
        self.found |= {cell.label: options.known[cell.label] for cell in new if cell.label in options.known}
        made = [cell for cell in new if cell.label not in options.known]
        answers = cells.obtain(made, replace(options.maker, say=say))
        for label, answer in answers.items():
            say(f"{label}: {answer}")
        order = [cell.label for cell in options.cells]
        self.found = dict(sorted({**self.found, **answers}.items(), key=lambda item: order.index(item[0])))
        named = {label: self.found[label] for label in labels}
        return {label: each for label, each in named.items() if not isinstance(each, str)}

    def measure(
        self, options: MatrixOptions, environments: Mapping[str, Environment], plan: Plan
    ) -> list[Run]:
        """Measure versions in turn on one shield, and tell of each record."""
        from fastrnns import session

        runs = session.run_sides(replace(options.bench, plan=plan), environments)
        for label, run in zip(environments, runs, strict=True):
            self.records[label] = run.record
            verdict = run.record["verdict"]
            say(
                f"{label}: {verdict['status']}"
                + (f" ({verdict['reasons'][0]})" if verdict["reasons"] else "")
            )
            if run.trouble:
                say(f"{label}: {run.trouble}")
            if run.path is not None:
                say(f"{label}: record {os.path.relpath(run.path)}")
        return runs

    def as_dict(self) -> list[dict[str, Any]]:
        """The versions as JSON: what each was, its record or why there is none."""
        return [
            {
                "version": label,
                "torch": None if isinstance(each, str) else each.torch,
                "python": None if isinstance(each, str) else each.facts["python"]["version"],
                "record": (self.records.get(label) or {}).get("id"),
                "error": each if isinstance(each, str) else None,
            }
            for label, each in self.found.items()
        ]


def side_by_side(options: MatrixOptions) -> int:
    """Measure all versions, show them, and judge each against the first."""
    progress = Progress()
    labels = [cell.label for cell in options.cells]
    able = progress.obtain(options, labels)
    if not able:
        raise HarnessError("no version could be measured, see above")
    runs = progress.measure(options, able, options.bench.plan)
    against = [judged(options, runs[0], run, options.margin) for run in runs[1:]]
    neighbours = [judged(options, base, new, options.margin) for base, new in itertools.pairwise(runs)]
    show(options, progress, list(able), against, neighbours)
    codes = [*(run.exit_code for run in runs), *(each.exit_code for each in against)]
    if len(able) < len(labels):
        say(f"not measured: {', '.join(label for label in labels if label not in able)}")
        codes.append(FAILED)
    return next((code for code in (INTERRUPTED, FAILED, MACHINE) if code in codes), 0)


def show(
    options: MatrixOptions,
    progress: Progress,
    labels: Sequence[str],
    against: Sequence[Comparison],
    neighbours: Sequence[Comparison],
) -> None:
    """Print the table and the steps, or all of it as JSON."""
    from fastrnns.archive import history
    from fastrnns.matrix import table

    records = {label: progress.records[label] for label in labels}
    series = table.steps(records, neighbours)
    if options.json:
        answer = {
            "schema": 1,
            "versions": progress.as_dict(),
            "comparisons": [each.as_dict() for each in against],
            "history": [history.as_dict(each) for each in series],
        }
        print(json.dumps(answer, indent=1, allow_nan=False), flush=True)
    elif against:
        print(table.side_by_side(records, against))
        print("\nsteps from each version to the next:")
        print(history.text(series), flush=True)
    else:
        from fastrnns.present import table as single

        single.show(progress.records[labels[0]]["results"], sys.stdout)


def judged(options: MatrixOptions, base: Run, new: Run, margin: float | None) -> Comparison:
    """A version against another, as `bench --ab` judges."""
    from fastrnns import against

    return against.judged(base.record, new.record, options.bench, margin)


def bisect(options: MatrixOptions, ends: tuple[int, int]) -> int:
    """Search for the first bad version, and say what was found and what was not."""
    from fastrnns.matrix.hunt import Hunt, Undecided

    progress = Progress()
    labels = [cell.label for cell in options.cells][ends[0] : ends[1] + 1]

    def measure(good: str, version: str, plan: Plan, margin: float | None) -> Comparison | str:
        able = progress.obtain(options, [good, version])
        for label in (good, version):
            if label not in able:
                return f"{label}: {progress.found[label]}"
        runs = progress.measure(options, able, plan)
        if any(run.exit_code == INTERRUPTED for run in runs):
            known = ", ".join(f"{each['version']} is {each['answer']}" for each in hunt.asked) or "nothing"
            raise Interrupted(f"interrupted; known so far: {known}")
        return judged(options, runs[0], runs[1], margin)

    hunt = Hunt(labels, options.bench.plan, measure, options.margin, options.repeats, say)
    try:
        found = hunt.run()
    except Undecided as error:
        if options.json:
            print(json.dumps(_bisected(progress, hunt.asked, None, None), indent=1), flush=True)
        raise error from None
    first_bad, last_good = found.first_bad, labels[found.good]
    if options.json:
        answer = _bisected(progress, hunt.asked, None if first_bad is None else labels[first_bad], last_good)
        print(json.dumps(answer, indent=1), flush=True)
    else:
        print(_sentence(labels, found.good, found.bad), flush=True)
    _tell_changes(progress.records, last_good, labels[found.bad])
    return 0 if first_bad is not None else FAILED


def _bisected(
    progress: Progress, asked: list[dict[str, Any]], first_bad: str | None, last_good: str | None
) -> dict[str, Any]:
    return {
        "schema": 1,
        "versions": progress.as_dict(),
        "bisect": {"first_bad": first_bad, "last_good": last_good, "asked": asked},
    }


def _sentence(labels: Sequence[str], good: int, bad: int) -> str:
    if bad - good == 1:
        return f"{labels[bad]} is the first bad version; {labels[good]} is good"
    return (
        f"the first bad version is one of {', '.join(labels[good + 1 : bad + 1])}: {labels[good]} is good, "
        f"{labels[bad]} is bad, and what lies between could not be decided"
    )


def _tell_changes(records: Mapping[str, Mapping[str, Any]], good: str, bad: str) -> None:
    """Name the software that differs between the last good and the first bad version, where both were measured."""
    from fastrnns.archive.history import SHOWN
    from fastrnns.matrix import table

    changes = table.changed(records[good], records[bad])
    more = len(changes) - SHOWN
    named = ", ".join(map(str, changes[:SHOWN])) + (f" and {more} more" if more > 0 else "")
    say(f"changed from {good} to {bad}: {named or 'nothing in the software fingerprint'}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    argv = sys.argv[1:] if argv is None else list(argv)
    own, bench = before_and_after(argv)
    args = flags.parser().parse_args(own)
    return framed("fastrnns.matrix", lambda: answer(argv, args, bench), SAID)


def answer(argv: Sequence[str], args: Namespace, bench: Sequence[str]) -> int:
    """Check everything, then compare or search."""
    options = flags.matrix_options(argv, args, bench)
    return side_by_side(options) if options.ends is None else bisect(options, options.ends)


if __name__ == "__main__":
    sys.exit(main())
