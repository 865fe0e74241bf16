"""The watch: a thread of the parent that looks at the machine while a worker measures."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from env.samplers import Sampler
from env.suspicion import Disturbance, judge, merge, share_disturbed

INTERVAL_S = 0.15
# The watch must not be what it looks for: it looks more rarely rather than cost more than this of one CPU.
COST_LIMIT = 0.008
LONGEST_INTERVAL_S = 2.0
# A longer timeline is halved by adding neighbours, so that a record stays small however long the run.
MAX_POINTS = 400


class Timeline:
    """Amounts over time, at a resolution that coarsens as it grows."""

    def __init__(self, started_ns: int) -> None:
        self.started_ns = started_ns
        self.at_ms: list[float] = []
        self.columns: dict[str, list[float]] = {}

    def add(self, at_ns: int, amounts: dict[str, float]) -> None:
        """One look."""
        self.at_ms.append(round((at_ns - self.started_ns) / 1e6, 1))
        for name in amounts.keys() - self.columns.keys():
            self.columns[name] = [0.0] * (len(self.at_ms) - 1)
        for name, column in self.columns.items():
            column.append(round(amounts.get(name, 0.0), 2))
        if len(self.at_ms) > MAX_POINTS:
            self._halve()

    def _halve(self) -> None:
        even = len(self.at_ms) // 2 * 2
        self.at_ms = self.at_ms[1:even:2] + self.at_ms[even:]
        for name, column in self.columns.items():
            join = min if name == "mhz" else _add
            pairs = zip(column[0:even:2], column[1:even:2], strict=True)
            self.columns[name] = [join(first, second) for first, second in pairs] + column[even:]

    def facts(self) -> dict[str, list[float]]:
        """Columns of equal length; those that never left zero are left out."""
        return {"t_ms": self.at_ms, **{name: column for name, column in self.columns.items() if any(column)}}


def _add(first: float, second: float) -> float:
    return round(first + second, 2)


class Watch:
    """Looks at regular times from start to stop; usable as a context manager."""

    def __init__(
        self,
        samplers: Sequence[Sampler],
        *,
        cpus: Iterable[int] = (),
        interval_s: float = INTERVAL_S,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.samplers = list(samplers)
        self.cpus = tuple(cpus)  # where the watch itself runs; empty leaves it where it is
        self.interval_s = interval_s
        self.clock = clock
        self.looks = 0
        self.cost_s = 0.0
        self.errors: dict[str, str] = {}
        self.started_ns = clock()
        self.stopped_ns: int | None = None
        self._timeline = Timeline(self.started_ns)
        self._last: dict[str, int] = {}
        self._seen: list[Disturbance] = []
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> Watch:
        """Begin to look, in a thread of its own."""
        if self._thread is None and self.samplers:
            self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
            self._thread.start()
        return self

    def stop(self) -> Watch:
        """Look a last time and end; safe to call twice."""
        if self.stopped_ns is not None:
            return self
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=LONGEST_INTERVAL_S + 1)
        with contextlib.suppress(OSError):
            self.look(last=True)
        self.stopped_ns = self.clock()
        for sampler in self.samplers:
            sampler.close()
        return self

    def __enter__(self) -> Watch:  # noqa: PYI034 - typing.Self came with 3.11
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        if self.cpus:
            with contextlib.suppress(OSError):  # a shield may have moved us already
                os.sched_setaffinity(0, self.cpus)
        pause = self.interval_s
        while not self._end.wait(pause):
            before = time.thread_time()
            self.look()
            cost = time.thread_time() - before
            self.cost_s += cost
            pause = min(LONGEST_INTERVAL_S, max(self.interval_s, cost / COST_LIMIT))

    def look(self, *, last: bool = False) -> None:
        """Look once at everything that is due."""
        with self._lock:
            now = self.clock()
            amounts: dict[str, float] = {}
            for sampler in self.samplers:
                since = self._last.get(sampler.name)
                if since is not None and not last and (now - since) / 1e9 < sampler.every_s:
                    continue
                self._last[sampler.name] = now
                try:
                    seen = sampler.look(0.0 if since is None else (now - since) / 1e9)
                except Exception as error:  # one that fails leaves the others their sight
                    self.errors[sampler.name] = str(error) or type(error).__name__
                    continue
                for name, value in seen.amounts.items():
                    amounts[name] = amounts.get(name, 0.0) + value
                for cause in seen.causes:
                    self._seen.append(Disturbance(self.started_ns if since is None else since, now, cause))
                for cause, window_s in seen.longer.items():
                    start = max(self.started_ns, now - int(window_s * 1e9))
                    self._seen.append(Disturbance(start, now, cause))
            self._timeline.add(now, amounts)
            self.looks += 1

    def disturbances(self) -> list[dict[str, Any]]:
        """[{from_ns, to_ns, cause}] on CLOCK_MONOTONIC, neighbours of one cause joined."""
        with self._lock:
            seen = list(self._seen)
        return [item.as_dict() for item in merge(seen)]

    def facts(self) -> dict[str, Any]:
        """What the record keeps under environment.watch."""
        with self._lock:
            seen = merge(self._seen)
            end = self.stopped_ns or self.clock()
            length_s = (end - self.started_ns) / 1e9
            status, reasons = judge(seen, [(self.started_ns, end)])
            return {
                "status": "watched" if self.samplers else "off",
                "clock": "CLOCK_MONOTONIC",
                "started_ns": self.started_ns,
                "stopped_ns": end,
                "interval_s": self.interval_s,
                "looks": self.looks,
                "cost_share": round(self.cost_s / length_s, 5) if length_s > 0 else None,
                "timeline": self._timeline.facts(),
                "seen": {sampler.name: sampler.facts() for sampler in self.samplers},
                "disturbances": [item.as_dict() for item in seen],
                "disturbed_share": round(share_disturbed(seen, [(self.started_ns, end)]), 4),
                "judgement": {"status": status, "reasons": reasons},
                "errors": dict(self.errors),
            }
