"""The parent's end: one child process, its CPUs, its thread counts, its events and how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from fastrnns.errors import HarnessError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
STDERR_TAIL_BYTES = 16_384  # enough for a library's last words, bounded because it may enter a record
TERMINATE_SECONDS = 2.0  # between SIGTERM and SIGKILL

_END = object()


class ChildDied(HarnessError):  # noqa: N818 - it names what happened, as CommandFailed does elsewhere
    """A child ended before it said that it was done."""

    def __init__(self, returncode: int | None, stderr_tail: str) -> None:
        self.returncode = returncode
        self.signal = -returncode if returncode is not None and returncode < 0 else None
        self.stderr_tail = stderr_tail
        super().__init__(how_it_ended(returncode, stderr_tail))


class ChildSilent(HarnessError):  # noqa: N818 - as above
    """A child said nothing for longer than the caller was willing to wait."""


def how_it_ended(returncode: int | None, stderr_tail: str) -> str:
    """One sentence for a person: the signal or the status, and the last line that the child printed."""
    if returncode is None:
        ending = "closed its output"
    elif returncode < 0:
        try:
            name = signal.Signals(-returncode).name
        except ValueError:
            name = f"signal {-returncode}"
        hint = " (out of memory?)" if -returncode == signal.SIGKILL else ""
        ending = f"was killed by {name}{hint}"
    else:
        ending = f"ended with status {returncode}"
    lines = [line.strip() for line in stderr_tail.splitlines() if line.strip()]
    return f"the worker process {ending}" + (f": {lines[-1][:300]}" if lines else "")


def child_environment(
    cpus: Iterable[int] | None, extra: Mapping[str, str] | None = None, base: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Build a child's variables: this project importable, threads that fit unless the user chose them."""
    environment = dict(os.environ if base is None else base)
    if cpus is not None:
        for name in THREAD_VARIABLES:
            environment.setdefault(name, str(len(set(cpus))))
    root = Path(__file__).resolve().parents[2]
    if root.name not in ("site-packages", "dist-packages"):  # those must stay behind the standard library
        environment["PYTHONPATH"] = os.pathsep.join(
            [str(root), *filter(None, [environment.get("PYTHONPATH")])]
        )
    environment.update(extra or {})
    return environment


class Child:
    """`python -m module` in its own process group; it does nothing before it is sent its job."""

    def __init__(
        self,
        module: str,
        *,
        cpus: Iterable[int] | None = None,
        env: Mapping[str, str] | None = None,
        python: str | None = None,  # an interpreter other than this one
    ) -> None:
        self.cpus = tuple(sorted(set(cpus))) if cpus is not None else None
        self._process = subprocess.Popen(
            [python or sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(self.cpus, env),
            start_new_session=True,  # Ctrl-C reaches the parent alone, which decides
        )
        self.pid = self._process.pid
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._ended = False
        if self.cpus is not None:
            with contextlib.suppress(OSError):  # gone already, or CPUs that only the shield may give it
                os.sched_setaffinity(self.pid, self.cpus)
        self._readers = [
            threading.Thread(target=self._read_events, args=(self._process.stdout,), daemon=True),
            threading.Thread(target=self._read_stderr, args=(self._process.stderr,), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> Child:  # noqa: PYI034 - typing.Self came with 3.11
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, None while it runs."""
        return self._process.poll()

    @property
    def stderr_tail(self) -> str:
        """The last of what the child printed; bytes that are not UTF-8 are replaced."""
        return b"".join(self._tail).decode("utf-8", errors="replace")

    def send(self, message: dict[str, Any]) -> None:
        """Send one message; a child that is gone is noticed by `receive`, not here."""
        assert self._process.stdin is not None  # noqa: S101 - it was opened as a pipe above
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(message).encode("ascii") + b"\n")
            self._process.stdin.flush()

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """Return the next event, None after `timeout` seconds of silence.

        Raises:
            EOFError: the child ended well and has said everything.
            ChildDied: it ended badly; what it said before has been delivered first.
        """
        if self._ended:
            raise EOFError
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if event is not _END:
            delivered: dict[str, Any] = event
            return delivered
        self._ended = True
        returncode = self._wait(TERMINATE_SECONDS)
        self._readers[1].join(timeout=1.0)
        if returncode == 0:
            raise EOFError
        raise ChildDied(returncode, self.stderr_tail)

    def events(self, timeout: float | None = None) -> Iterator[dict[str, Any]]:
        """Yield events until the child ends well; `timeout` bounds the silence between two of them."""
        while True:
            try:
                event = self.receive(timeout)
            except EOFError:
                return
            if event is None:
                raise ChildSilent(f"the worker process said nothing for {timeout:g} s")
            yield event

    def stop(self, grace: float = TERMINATE_SECONDS) -> int | None:
        """End the child and its group if it still runs; safe to call twice."""
        if self._process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, number)
                if self._wait(grace) is not None:
                    break
        for reader in self._readers:
            reader.join(timeout=0.5)
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            with contextlib.suppress(BrokenPipeError, OSError, ValueError):
                if stream is not None and not (stream is not self._process.stdin and self._reading()):
                    stream.close()
        return self._process.poll()

    def _reading(self) -> bool:
        return any(reader.is_alive() for reader in self._readers)

    def _wait(self, seconds: float) -> int | None:
        deadline = time.monotonic() + seconds
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=max(0.0, deadline - time.monotonic()))
        return self._process.poll()

    def _read_events(self, stream: IO[bytes]) -> None:
        for line in stream:
            try:
                event = json.loads(line)
            except ValueError:
                event = None
            if isinstance(event, dict):
                self._events.put(event)
            else:  # printed before the wire opened (a start-up hook): keep it where a person would look
                self._keep(line)
        self._events.put(_END)

    def _read_stderr(self, stream: IO[bytes]) -> None:
        for line in stream:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._tail.append(line)
        self._tail_bytes += len(line)
        while self._tail_bytes > STDERR_TAIL_BYTES and len(self._tail) > 1:
            self._tail_bytes -= len(self._tail.popleft())


def start_inside(
    module: str, cpus: Sequence[int], adopt: Callable[[int], None], *, python: str | None = None
) -> Child:
    """Start a worker and have it put onto its CPUs before it does anything; what `adopt` raises ends it again."""
    child = Child(module, cpus=cpus or None, python=python)
    try:
        adopt(child.pid)
    except BaseException:
        child.stop()
        raise
    return child
