"""A fleet under way, on stderr: a table that changes in place on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import IO, Any

from fastrnns.fleet import job
from fastrnns.fleet.drive import Seat
from fastrnns.fleet.task import PENDING

DRAW_S = 1.0  # what a node does is read from its files, on a file system that all nodes share
PLAIN_S = 60.0  # between two plain lines when nothing happens
ROWS = 20  # nodes in the table at once


def counted(seats: Sequence[Seat]) -> str:
    """How many nodes stand where."""
    count = Counter(_stage(seat) for seat in seats)
    return ", ".join(f"{number} {stage}" for stage, number in count.items())


def _stage(seat: Seat) -> str:
    if seat.status == "running":
        return "pending" if seat.last.state.kind == PENDING else "running"
    return seat.status


def doing(seat: Seat) -> str:
    """What a node does now."""
    if seat.status != "running":
        return seat.reason
    if seat.last.state.kind == PENDING:
        return seat.last.state.reason
    return job.last_words(seat.last.folder / job.STORY)


class Plain:
    """Lines for a log."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._said_at = stream, clock, clock()

    def said(self, text: str) -> None:
        """Print it."""
        print(text, file=self._stream, flush=True)
        self._said_at = self._clock()

    def tick(self, seats: Sequence[Seat]) -> None:
        """Print a sign of life when nothing was said for long."""
        if self._clock() - self._said_at >= PLAIN_S:
            self.said(f"  {counted(seats)}")

    def close(self) -> None:
        """Leave what was said."""


class Live:
    """The nodes that run, or wait, in a table; what happened stays above it."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._clock, self._drawn_at, self._begun = clock, 0.0, clock()
        self._console = Console(file=stream, highlight=False)
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def said(self, text: str) -> None:
        """Print it above the table."""
        from rich.text import Text

        self._console.print(Text(text))

    def tick(self, seats: Sequence[Seat]) -> None:
        """Draw the table anew, once a second."""
        now = self._clock()
        if now - self._drawn_at >= DRAW_S:
            self._drawn_at = now
            self._live.update(self._table(seats), refresh=True)

    def _table(self, seats: Sequence[Seat]) -> Any:
        from rich.table import Table
        from rich.text import Text

        made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        made.title = f"{counted(seats)}, {self._clock() - self._begun:.0f} s"
        made.title_justify = "left"
        for heading in ("node", "stage", "attempt", "what it does"):
            made.add_column(heading, no_wrap=True, overflow="ellipsis")
        under_way = [seat for seat in seats if seat.status in {"running", "waiting"}]
        for seat in sorted(under_way, key=lambda each: _stage(each) != "running")[:ROWS]:
            cells = (seat.node.name, _stage(seat), str(len(seat.attempts)), doing(seat))
            made.add_row(*(Text(cell) for cell in cells))
        return made

    def close(self) -> None:
        """Take the table away."""
        self._live.stop()


def display_on(stream: IO[str]) -> Plain | Live:
    """The display that suits a stream."""
    return Live(stream) if stream.isatty() else Plain(stream)
