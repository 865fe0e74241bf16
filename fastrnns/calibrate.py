"""`python -m fastrnns.calibrate`: compare this machine with itself, and keep what it shows in the archive.

Fresh processes of one and the same software, labelled in turns as two sides (ABBA). The record that is left
holds their raw samples; the noise floor of each model and phase is derived from them whenever a comparison
asks.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.command import framed
from env.lifeline import follow_parent
from fastrnns import options as command_line
from fastrnns.errors import SAID, UsageError
from fastrnns.measure import plan as planning
from fastrnns.phases import ALL as PHASES

if TYPE_CHECKING:
    pass

PROCESSES = 20  # ten pairs, four runs of five: less gives a floor so uncertain that it forbids everything
SIDES = (3, 5, 10)  # processes a side that floors are printed for
CHECKED = 5  # processes a side that false alarms are counted for
INTERRUPTED = 130


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def parser() -> ArgumentParser:
    """The flags of bench, and --json; the archive is `results` unless another is named."""
    made = command_line.parser()
    made.prog = "python -m fastrnns.calibrate"
    made.description = __doc__
    made.add_argument("--json", action="store_true", help="the floors as JSON on stdout")
    made.set_defaults(archive=Path("results"))
    return made


def options_of(argv: Sequence[str], args: Namespace) -> command_line.BenchOptions:
    """Bench options with the number of processes fixed, each with as much time as a bench gives it."""
    from fastrnns.archive.calibration import MIN_CALIBRATION

    processes = PROCESSES if args.processes is None else args.processes
    if processes < MIN_CALIBRATION:
        raise UsageError(
            f"--processes is {processes}; a calibration needs at least {MIN_CALIBRATION} "
            f"(the default is {PROCESSES})"
        )
    args.processes = processes
    if args.budget == planning.BUDGET_SECONDS:
        args.budget = planning.BUDGET_SECONDS / planning.PROCESSES * processes
    found = command_line.bench_options(argv, args)
    return replace(found, argv=("python", "-m", "fastrnns.calibrate", *argv))


def report(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One entry a model and phase: deviations, floors, false alarms."""
    from fastrnns.archive import calibration, selfcheck
    from fastrnns.measure import stats

    known = calibration.from_record(record)
    found: list[dict[str, Any]] = []
    for result in record.get("results") or ():
        for phase in PHASES:
            part = result.get(phase) or {}
            noise = None if known is None else known.by_phase.get((result["model"], phase))
            if noise is None:
                continue
            logs = stats.log_medians(stats.measured(part.get("samples") or (), part.get("excluded")))
            alarms = selfcheck.false_alarms(logs, CHECKED, noise)
            found.append(
                {
                    "model": result["model"],
                    "phase": phase,
                    "processes": len(logs),
                    "process_deviation": noise.deviation,
                    "run_deviation": noise.run_deviation,
                    "pair_deviation": noise.pair_deviation,
                    "floors": {str(count): noise.floor(count, count) for count in SIDES},
                    "paired_floors": {str(count): noise.floor(count, count, paired=True) for count in SIDES},
                    "false_alarms": [asdict(alarm) for alarm in alarms],
                }
            )
    return found


def text(entries: Sequence[Mapping[str, Any]]) -> str:
    """The report for people."""
    head = f"{'model':20} {'phase':8} {'process':>8} {'run':>8}"
    head += "".join(f"{f'floor {count}+{count}':>12}" for count in SIDES)
    lines = [f"{head}  false alarms of 5+5 processes at margins 0 / 1 / 2 %, and with the floor"]
    for entry in entries:
        line = f"{entry['model']:20} {entry['phase']:8}"
        line += f"{entry['process_deviation']:9.2%}{entry['run_deviation']:9.2%}"
        line += "".join(f"{entry['floors'][str(count)]:12.2%}" for count in SIDES)
        rates = {alarm["margin"]: alarm for alarm in entry["false_alarms"]}
        cells = [_rate(rates[margin]["apart"]) for margin in (0.0, 0.01, 0.02)]
        lines.append(f"{line}  {' / '.join(cells)}, {_rate(rates[0.01]['with_floor'])}")
    return "\n".join(lines)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    argv = sys.argv[1:] if argv is None else list(argv)
    args = parser().parse_args(argv)
    return framed("fastrnns.calibrate", lambda: answer(argv, args), SAID)


def answer(argv: Sequence[str], args: Namespace) -> int:
    """Measure the machine against itself, and show its floor."""
    options = options_of(argv, args)
    from fastrnns import session
    from fastrnns.archive import calibration

    done = session.run(options, kind=calibration.KIND)
    entries = report(done.record)
    print(json.dumps(entries, indent=1, allow_nan=False) if args.json else text(entries), flush=True)
    if not entries:
        say("fastrnns.calibrate: too few processes measured anything; no floor is known")
    verdict = done.record["verdict"]
    say(f"verdict: {verdict['status']}")
    for reason in verdict["reasons"]:
        say(f"  - {reason}")
    if done.path is not None:
        say(f"record: {os.path.relpath(done.path)}; compare uses it from now on")
    return done.exit_code


if __name__ == "__main__":
    sys.exit(main())
