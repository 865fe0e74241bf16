"""Fresh workers on their way: several import torch beside one another, then wait for their turn to measure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from fastrnns.measure.process import ChildDied

MOST_BESIDE = (
    5  # at the same time: each holds torch in memory, and a context on a GPU, until its turn is over
)


class ChildLike(Protocol):
    """A process that measures; `fastrnns.measure.process.Child`, or a test's."""

    pid: int

    def send(self, message: dict[str, Any]) -> None:
        """Send one message."""

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the next event, or None; see `Child.receive`."""

    def stop(self) -> int | None:
        """End it."""


@dataclass
class Started:
    """A worker that has said hello, or how it ended before it could."""

    child: ChildLike
    beside: int  # workers that started at the same time, itself included
    hello: dict[str, Any] | None = None
    ending: ChildDied | EOFError | None = None


@dataclass
class Starters:
    """Starts workers ahead of their turn, and lets none measure while another one still starts.

    A start takes seconds of one CPU, and a worker that waits is asleep: so those that are certain to be needed
    start together while nothing is measured. Each is a process of its own, with its own memory layout.
    """

    spawn: Callable[[], ChildLike]
    job: dict[str, Any]
    beside: int
    pause: Callable[[], bool]  # called while nothing is heard; true: give up
    tick_s: float
    _waiting: deque[Started] = field(default_factory=deque)

    def next(self, needed: int) -> Started | None:
        """The next worker in turn, `needed` more being certain; None when waiting for it was given up.

        One that could not start beside others (a GPU for one process at a time, too little memory) gets another
        try alone, when its turn has come.
        """
        if not self._waiting and not self._start(max(1, min(self.beside, needed, MOST_BESIDE))):
            return None
        if self._waiting[0].ending is not None and self._waiting[0].beside > 1:
            others = list(self._waiting)
            self._waiting.clear()
            others.pop(0).child.stop()
            heard = self._start(1)
            self._waiting.extend(others)
            if not heard:
                return None
        return self._waiting.popleft()

    def _start(self, count: int) -> bool:
        for _ in range(count):
            self._waiting.append(Started(self.spawn(), count))
            self._waiting[-1].child.send(self.job)
        return all(self._heard(started) for started in self._waiting)

    def close(self) -> None:
        """End those whose turn did not come."""
        while self._waiting:
            self._waiting.popleft().child.stop()

    def _heard(self, started: Started) -> bool:
        while started.hello is None and started.ending is None:
            try:
                started.hello = started.child.receive(self.tick_s)
            except (ChildDied, EOFError) as error:
                started.ending = error
                return True
            if started.hello is None and self.pause():
                return False
        return True
