"""`python -m fastrnns.fleet`: the same bench on many nodes; the command line in, the nodes side by side out."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from env.command import framed
from env.lifeline import follow_parent
from fastrnns.errors import SAID
from fastrnns.fleet import flags
from fastrnns.options import before_and_after

if TYPE_CHECKING:
    from fastrnns.fleet.drive import Attempt, Seat
    from fastrnns.fleet.flags import FleetOptions

FAILED, MACHINE, INTERRUPTED = 1, 3, 130


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    follow_parent()
    own, bench = before_and_after(sys.argv[1:] if argv is None else argv)
    args = flags.parser().parse_args(own)
    return framed("fastrnns.fleet", lambda: answer(flags.fleet_options(args, bench)), SAID)


def answer(options: FleetOptions) -> int:
    """Drive the fleet home, and show what it brought."""
    from fastrnns.fleet import gather, odd, table
    from fastrnns.fleet.drive import Drive, Seat
    from fastrnns.fleet.progress import display_on
    from fastrnns.interrupts import interruptible

    for node in options.left_out:
        say(f"left out: {node}")
    seats = [Seat(node) for node in options.nodes]

    def take_in(attempt: Attempt) -> list[str]:
        attempt.entries, faults = gather.take_in(options.archive, attempt.folder)
        return faults

    display = display_on(sys.stderr)
    try:
        with interruptible() as interrupts:
            Drive(options.cluster, seats, options.rules, take_in, display, interrupts).run()
    finally:
        display.close()
    code = INTERRUPTED if interrupts.requested else code_of(seats)
    judged = odd.groups({seat.node.number: seat.whole.record for seat in seats if seat.whole is not None})
    if options.json:
        print(json.dumps(table.as_dict(seats, judged, code), indent=1, allow_nan=False))
    else:
        table.show(seats, judged, sys.stdout, hosts=sys.stdout.isatty())
    sys.stdout.flush()
    close(options, seats, code)
    return code


def close(options: FleetOptions, seats: Sequence[Seat], code: int) -> None:
    """Say what failed, by name, and leave the jobs' files only where somebody will want to read them."""
    for seat in seats:
        if seat.status != "done":
            say(f"fastrnns.fleet: node {seat.node.number}, {seat.node.name}: {seat.status}: {seat.reason}")
    count = sum(len(seat.entries) for seat in seats)
    say(f"records: {count} in {os.path.relpath(options.archive.folder)}")
    if code == 0:
        shutil.rmtree(options.rules.folder, ignore_errors=True)
    else:
        say(f"what the jobs said: {os.path.relpath(options.rules.folder)}")


def code_of(seats: Sequence[Seat]) -> int:
    """0 where every node gave its record; 3 where those that did not refused on purpose; else 1."""
    missing = {seat.status for seat in seats} - {"done"}
    if not missing:
        return 0
    return MACHINE if missing == {"refused"} else FAILED


if __name__ == "__main__":
    sys.exit(main())
