"""Progress on stderr: a live line on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import IO, Any, Protocol

from fastrnns import sweep

DRAWS_PER_SECOND = 4
PLAIN_SECONDS = 10.0  # between two plain lines about one model


class Progress(Protocol):
    """What the conductor tells."""

    def event(self, event: dict[str, Any]) -> None:
        """Take in one event of a worker or of the conductor."""

    def tick(self) -> None:
        """Time has passed."""

    def close(self) -> None:
        """Nothing more comes."""


class Story:
    """What is going on, in words; both displays tell the same."""

    def __init__(self, models: int, processes: int) -> None:
        self.models = models
        self.processes = processes
        self.process = 0
        self.position = 0
        self.todo = models
        self.model = ""
        self.phase = ""
        self.counts: dict[str, int] = {"warmup": 0, "timed": 0}
        self.last_ms: tuple[float, float | None] | None = None

    def take(self, event: dict[str, Any]) -> str | None:
        """Update; return a sentence worth a line of its own, or None."""
        kind = event["event"]
        if kind == "process_start":
            self.process, self.position, self.todo = event["process"] + 1, 0, len(event["models"])
            self.model, self.phase = "", "starting"
            extra = f" of {self.processes}" if self.process <= self.processes else ""
            return f"process {self.process}{extra}: {sweep.told(event['models'])}"
        if kind == "model_start":
            self.position += 1
            self.model, self.phase, self.last_ms = event["model"], "building", None
            self.counts = {"warmup": 0, "timed": 0}
        elif kind == "iterations":
            self.phase = event["phase"]
            self.counts[self.phase] += len(event["forward_ms"])
            backward = event["backward_ms"]
            self.last_ms = (event["forward_ms"][-1], backward[-1] if backward else None)
        elif kind == "model_done":
            return f"  {self.now()}"
        elif kind == "model_failed":
            return f"  {event['model']} {event['status']}: {event['error']}"
        return None

    def now(self) -> str:
        """One line: the model, how far it is, and its last iteration."""
        if not self.model:
            return f"process {self.process}: {self.phase}"
        text = f"{self.model} ({self.position}/{self.todo}) "
        if self.phase == "timed":
            text += f"{self.counts['timed']} timed after {self.counts['warmup']} warm-up"
        elif self.phase == "warmup":
            text += f"warm-up {self.counts['warmup']}"
        else:
            text += self.phase
        if self.last_ms is not None:
            forward, backward = self.last_ms
            text += f", last {forward:.4g}" + ("" if backward is None else f" + {backward:.4g}") + " ms"
        return text


class Plain:
    """Lines for a log: what ended, and a sign of life while a model takes long."""

    def __init__(self, story: Story, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._story = story
        self._stream = stream
        self._clock = clock
        self._said_at = clock()

    def event(self, event: dict[str, Any]) -> None:
        """Print what is worth a line."""
        line = self._story.take(event)
        if line is not None:
            self._say(line)
        else:
            self.tick()

    def tick(self) -> None:
        """Print a sign of life when nothing was said for long."""
        if self._clock() - self._said_at >= PLAIN_SECONDS:
            self._say(f"  {self._story.now()}")

    def close(self) -> None:
        """Leave what was said."""

    def _say(self, line: str) -> None:
        print(line, file=self._stream, flush=True)
        self._said_at = self._clock()


class Live:
    """One line that changes in place; what ended stays above it."""

    def __init__(self, story: Story, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive
        from rich.text import Text

        self._text = Text
        self._story = story
        self._clock = clock
        self._drawn_at = 0.0
        self._console = Console(file=stream, highlight=False)
        # Drawn from here and not from a thread of its own: nothing wakes up while nothing happens.
        self._live = RichLive(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def event(self, event: dict[str, Any]) -> None:
        """Print what ended, else redraw if it is time."""
        line = self._story.take(event)
        if line is not None:
            self._console.print(self._text(line))
        self.tick()

    def tick(self) -> None:
        """Redraw, a few times a second at most."""
        now = self._clock()
        if now - self._drawn_at >= 1 / DRAWS_PER_SECOND:
            self._drawn_at = now
            self._live.update(self._text(self._story.now(), style="cyan"), refresh=True)

    def close(self) -> None:
        """Take the line away."""
        self._live.stop()


def progress_on(stream: IO[str], models: int, processes: int) -> Progress:
    """The display that suits a stream."""
    story = Story(models, processes)
    return Live(story, stream) if stream.isatty() else Plain(story, stream)
