"""Bringing a fleet home: submit, watch, try again what was killed, and end it all in order when asked to."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fastrnns.archive.store import Entry
from fastrnns.errors import HarnessError
from fastrnns.fleet import job
from fastrnns.fleet.task import ENDED, PENDING, RUNNING, STOP, Cluster, Node, State, Task
from fastrnns.interrupts import Interrupts

POLL_S = 2.0  # between two questions to the scheduler; one question is for all jobs
TICK_S = 0.2  # between two looks at the signals and the display
SETTLE_S = 10.0  # for what a node wrote to be seen here: network file systems keep names for some seconds
STOP_S = 45.0  # for a bench to end its iteration and put its machine back
KILL_S = 45.0  # and for Slurm, after KillWait, to have killed what did not
PUT_BACK_S = 120.0  # for a node to undo what a killed bench left, once its job starts
NEVER_RAN = frozenset({"CANCELLED", "DEADLINE"})  # of a job that was last seen pending
CHECK = ("-m", "env", "check")  # undoes what a killed command left, and only that

SUBMITTED = State(PENDING)

DONE, BAD, USAGE, MACHINE, INTERRUPTED = 0, 1, 2, 3, 130


@dataclass
class Attempt:
    """One job at a node."""

    folder: Path
    job: str | None = None
    state: State = SUBMITTED
    since: float = 0.0  # when it was submitted
    began: bool = False  # whether it was seen running
    ended: float | None = None  # when the scheduler was first seen to say so
    outcome: dict[str, Any] | None = None
    entries: list[Entry] = field(default_factory=list)
    trouble: str = ""  # why it gave no whole record, in words

    @property
    def exit_code(self) -> int | None:
        """The command's; None where it never told."""
        return (self.outcome or {}).get("exit_code")

    @property
    def whole(self) -> Entry | None:
        """The bench's record, where the bench ended by itself."""
        benches = [entry for entry in self.entries if entry.record["kind"] == "bench"]
        return benches[-1] if benches and self.exit_code in {DONE, BAD} else None

    @property
    def torn_down(self) -> bool:
        """Whether the command was killed before it could put its machine back."""
        never = self.outcome is None and self.job is not None and (self.folder / job.PID).exists()
        return never or (self.exit_code or 0) < 0


@dataclass
class Seat:
    """A node and what became of it."""

    node: Node
    attempts: list[Attempt] = field(default_factory=list)
    status: str = "waiting"  # waiting, running, done, bad (a model failed), refused, failed
    reason: str = ""
    put_back: bool | None = None  # whether what a killed bench left was undone; None: there was nothing

    @property
    def last(self) -> Attempt:
        """The attempt that counts."""
        return self.attempts[-1]

    @property
    def entries(self) -> list[Entry]:
        """All records of this node, those of attempts that ended early too."""
        return [entry for attempt in self.attempts for entry in attempt.entries]

    @property
    def whole(self) -> Entry | None:
        """The record that stands for this node."""
        return next((each.whole for each in reversed(self.attempts) if each.whole is not None), None)


class Display(Protocol):
    """What a person sees meanwhile."""

    def said(self, text: str) -> None:
        """Something worth a line of its own."""

    def tick(self, seats: Sequence[Seat]) -> None:
        """Time has passed."""


@dataclass(frozen=True)
class Rules:
    """How a fleet is driven."""

    words: tuple[str, ...]  # the bench, after the interpreter
    folder: Path
    retries: int
    parallel: int  # jobs at once
    wait_s: float | None  # longest that a job may be pending
    strict: bool  # a machine that refuses does so on purpose
    applies: bool  # the bench changes its machine, so a killed one is put back


@dataclass
class Drive:
    """One fleet under way."""

    cluster: Cluster
    seats: list[Seat]
    rules: Rules
    gather: Callable[[Attempt], list[str]]  # takes an attempt's records in; sentences on what could not be
    display: Display
    interrupts: Interrupts
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _polled: float = float("-inf")
    _silent: bool = False

    def run(self) -> None:
        """Until every node gave its record, or has no retry left, or a person ends it."""
        while not self.interrupts.requested and any(
            seat.status in {"waiting", "running"} for seat in self.seats
        ):
            self._submit()
            self._poll()
            self._pause()
        if self.interrupts.requested:
            self._cancel()
        self._put_back()

    def _pause(self) -> None:
        self.display.tick(self.seats)
        self.sleep(TICK_S)

    def _submit(self) -> None:
        """Submit what waits, as many as may be under way at once."""
        for seat in self.seats:
            if self.interrupts.requested or len(self._running()) >= self.rules.parallel:
                return
            if seat.status == "waiting":
                self._begin(seat)

    def _begin(self, seat: Seat) -> None:
        number = len(seat.attempts) + 1
        folder = self.rules.folder / seat.node.label / f"attempt-{number}"
        folder.mkdir(parents=True, exist_ok=True)
        attempt = Attempt(folder, since=self.clock())
        seat.attempts.append(attempt)
        try:
            attempt.job = self.cluster.submit(
                Task(seat.node, (*self.rules.words, "--archive", job.RECORDS), folder, f"attempt {number}")
            )
        except HarnessError as error:
            attempt.trouble = str(error)
            self._finish(seat)
            return
        seat.status = "running"

    def _running(self) -> list[Seat]:
        return [seat for seat in self.seats if seat.status == "running"]

    def _poll(self) -> None:
        """Ask where the jobs stand, and finish those that ended."""
        running = self._running()
        now = self.clock()
        # One question lists all our jobs; of a thousand it is asked every twenty seconds.
        if not running or now - self._polled < max(POLL_S, len(running) / 50):
            return
        self._polled = now
        try:
            states = self.cluster.states([str(seat.last.job) for seat in running])
        except HarnessError as error:
            if not self._silent:
                self.display.said(f"no word of the jobs: {error}; asking again")
            self._silent = True
            return
        self._silent = False
        for seat in running:
            # Forgotten by the scheduler: it ended longer ago than that remembers.
            self._take(seat, states.get(str(seat.last.job), State(ENDED, "gone")), now)

    def _take(self, seat: Seat, state: State, now: float) -> None:
        attempt = seat.last
        if state.kind == RUNNING and attempt.state.kind != RUNNING:
            self.display.said(f"{seat.node.name}: job {attempt.job} runs")
        attempt.began = attempt.began or state.kind == RUNNING
        attempt.state = state
        if state.kind == PENDING:
            waited = now - attempt.since
            if self.rules.wait_s is not None and waited > self.rules.wait_s:
                self.cluster.kill([str(attempt.job)])
                attempt.trouble = f"did not begin in {waited / 60:.0f} min ({state.reason or 'pending'})"
                self._finish(seat)
        elif state.kind == ENDED:
            attempt.ended = now if attempt.ended is None else attempt.ended
            attempt.outcome = job.outcome(attempt.folder)
            settle = SETTLE_S if attempt.began or state.word not in NEVER_RAN else 0.0
            if attempt.outcome is not None or now - attempt.ended >= settle:
                self._finish(seat)

    def _finish(self, seat: Seat) -> None:
        """Take the records of an attempt in, and decide what comes of its node."""
        attempt = seat.last
        faults = self.gather(attempt)
        seat.status, seat.reason = self._judge(attempt)
        for entry in attempt.entries:
            verdict = entry.record["verdict"]["status"]
            self.display.said(f"{seat.node.name}: record {entry.id}, {verdict}")
        for fault in faults:
            self.display.said(f"{seat.node.name}: {fault}")
        if seat.status == "failed" and self._may_retry(seat):
            again = f"trying again, {len(seat.attempts)} of {self.rules.retries}"
            self.display.said(f"{seat.node.name}: {seat.reason}; {again}")
            seat.status = "waiting"
        elif seat.reason:
            self.display.said(f"{seat.node.name}: {seat.reason}")

    def _may_retry(self, seat: Seat) -> bool:
        """Whether another attempt can end otherwise: not where the command line cannot be met on that node."""
        return (
            not self.interrupts.requested
            and len(seat.attempts) <= self.rules.retries
            and seat.last.exit_code != USAGE
        )

    def _judge(self, attempt: Attempt) -> tuple[str, str]:
        """What an attempt makes of its node, and why it is no success."""
        code, words = attempt.exit_code, job.last_words(attempt.folder / job.STORY)
        if attempt.trouble:
            return "failed", attempt.trouble
        if attempt.whole is not None:
            if code == DONE:
                return "done", ""
            wrong = [row["model"] for row in attempt.whole.record["results"] if row["status"] != "ok"]
            return "bad", f"measured, but failed: {', '.join(wrong) or words}"
        signals = (attempt.outcome or {}).get("signals") or ()
        if signals:
            return "failed", f"job {attempt.job} was stopped by {signals[0]} ({attempt.state.word})"
        if code is None:
            words = job.last_words(self.rules.folder / "jobs" / f"{attempt.job}_0_log.err")
            said = f": {words}" if words and not attempt.torn_down else ""
            return "failed", f"job {attempt.job} was killed ({attempt.state.word}){said}"
        if code < 0:
            return "failed", f"the bench of job {attempt.job} was killed by {signal.Signals(-code).name}"
        if code == MACHINE and self.rules.strict:
            return "refused", f"refused by the machine: {words}"
        return "failed", f"job {attempt.job} ended with {code}: {words}"

    def _cancel(self) -> None:
        """End all jobs, each after it put its machine back; what they measured is kept."""
        self.display.said("ending the jobs: each puts its machine back first")
        (self.rules.folder / STOP).touch()
        running = self._running()
        jobs = [str(seat.last.job) for seat in running]
        if jobs:
            self.cluster.stop(jobs)
            if not self._wait(running, STOP_S):
                late = [str(seat.last.job) for seat in self._running()]
                self.display.said(f"still there after {STOP_S:g} s: killing job {', '.join(late)}")
                self.cluster.kill(late)
                self._wait(running, KILL_S)
        for seat in self._running():
            seat.last.trouble = f"job {seat.last.job} does not end"
            self._finish(seat)
        for seat in self.seats:
            if seat.status == "waiting":
                seat.status, seat.reason = "failed", seat.reason or "not begun"

    def _wait(self, seats: Sequence[Seat], seconds: float) -> bool:
        """Until these have ended; False where they have not in time."""
        until = self.clock() + seconds
        while any(seat.status == "running" for seat in seats):
            if self.clock() > until:
                return False
            self._poll()
            self._pause()
        return True

    def _put_back(self) -> None:
        """Have the nodes on which a bench was killed outright undo what it had changed.

        A later attempt there has done that already: a bench that applies the environment begins with it.
        """
        attempted = [seat for seat in self.seats if self.rules.applies and seat.attempts]
        killed = [seat for seat in attempted if seat.last.torn_down]
        tasks: dict[str, tuple[Seat, Path]] = {}
        (self.rules.folder / STOP).unlink(missing_ok=True)
        for seat in killed:
            folder = self.rules.folder / seat.node.label / "put-back"
            folder.mkdir(exist_ok=True)
            seat.put_back = False
            try:
                tasks[self.cluster.submit(Task(seat.node, CHECK, folder, "put back"))] = (seat, folder)
            except HarnessError as error:
                self.display.said(f"{seat.node.name}: cannot be put back: {error}")
        until = self.clock() + PUT_BACK_S
        while tasks and self.clock() < until:
            for name, (seat, folder) in list(tasks.items()):
                found = job.outcome(folder)
                if found is not None:
                    seat.put_back = found["exit_code"] == DONE
                    del tasks[name]
            self._pause()
        for seat in killed:
            word = "put back" if seat.put_back else "NOT put back: run `python -m env restore` there"
            self.display.said(f"{seat.node.name}: {word}")
