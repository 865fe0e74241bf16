"""Signals around a machine that has to be put back: they end the work, and nothing between the work and its undoing."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Handler = Callable[[int, FrameType | None], object]


class Signals:
    """The signals of one command: taken note of, and let through only while `come` runs.

    One that is let through and raises shuts the door behind itself, so that a second Ctrl-C cannot interrupt
    what the first one set going.
    """

    def __init__(self) -> None:
        self._open = False
        self._noted: list[int] = []
        self._before: dict[int, Handler | signal.Handlers | int] = {}

    @contextlib.contextmanager
    def come(self) -> Iterator[None]:
        """Let signals through for the body: one that was noted before it ends it at once."""
        try:
            self._open = True
            self._deliver()
            yield
        finally:
            self._open = False

    def _deliver(self) -> None:
        while self._noted:
            self._handle(self._noted.pop(0), None)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self._open:
            self._noted.append(number)
            return
        self._open = False
        self._end(number, frame)
        self._open = True  # the caller's own handler took it as a request, and the work goes on

    def _end(self, number: int, frame: FrameType | None) -> None:
        handler = self._before[number]
        if callable(handler):
            handler(number, frame)
        else:
            raise SystemExit(128 + number)  # as a shell says it; what is left to undo is undone on the way

    def install(self) -> None:
        """Take the signals over, except where they are ignored (nohup) or this is not the main thread."""
        for number in SIGNALS:
            handler = signal.getsignal(number)
            if handler is None or handler is signal.SIG_IGN:
                continue
            self._before[number] = handler
            try:
                signal.signal(number, self._handle)
            except ValueError:
                del self._before[number]
                return

    def uninstall(self) -> None:
        """Give the signals back to who had them."""
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def answer(self) -> None:
        """Now that all is done, answer the first of those that had to wait."""
        if self._noted:
            self._end(self._noted[0], None)


@contextlib.contextmanager
def signals_wait() -> Iterator[Signals]:
    """Hold signals back for the body, except where it lets them `come`; what waited is answered at its end."""
    signals = Signals()
    signals.install()
    try:
        yield signals
    finally:
        signals.uninstall()
        if sys.exc_info()[0] is None:
            signals.answer()
