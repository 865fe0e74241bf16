"""Ctrl-C, SIGTERM and a closed terminal as a request that is looked at, so that nothing is left half done."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INSIST = 3  # the Ctrl-C that is no longer a request


class Interrupts:
    """Whether somebody asked this process to end."""

    def __init__(self) -> None:
        self.count = 0

    @property
    def requested(self) -> bool:
        """True from the first signal on."""
        return self.count > 0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Count a signal; a person who insists is obeyed at once."""
        self.count += 1
        if number == signal.SIGINT and self.count >= INSIST:
            raise KeyboardInterrupt
        if self.count == 1:
            print("interrupted: keeping what was measured", file=sys.stderr, flush=True)


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Turn the signals into a request inside the block; the handlers are afterwards as they were."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    before: dict[signal.Signals, Any] = {}
    try:
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a background job of a shell
                before[number] = signal.signal(number, interrupts.handle)
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
