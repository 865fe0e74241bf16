"""The worker's end of the pipe to its parent: one JSON object a line, on private copies of stdin and stdout.

File descriptor 1 is pointed at stderr and 0 at nothing as soon as the wire opens, so that what a library
prints cannot corrupt an event and a debugger cannot eat a message. A worker whose parent is gone ends.
"""

from __future__ import annotations

import json
import os
import select
import threading
from typing import Any

ORPHANED = 113  # exit status of a worker whose parent went away


class Wire:
    """Lines of JSON over two file descriptors; reads are buffered here and may be polled."""

    def __init__(self, read_fd: int, write_fd: int) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._pending = b""
        self._closed = False
        self._lock = threading.Lock()

    def emit(self, event: dict[str, Any]) -> None:
        """Send one event; what JSON cannot say (a tensor, a path) goes as its text."""
        line = json.dumps(event, default=str).encode("ascii") + b"\n"
        with self._lock:
            while line:
                line = line[os.write(self._write_fd, line) :]

    def receive(self, timeout: float | None) -> dict[str, Any] | None:
        """Return the next message, or None when none comes within `timeout` seconds (None: wait for ever)."""
        while b"\n" not in self._pending:
            if self._closed:
                return {"stop": True}
            ready, _, _ = select.select([self._read_fd], [], [], timeout)
            if not ready:
                return None
            chunk = os.read(self._read_fd, 65536)
            self._pending += chunk
            self._closed = not chunk
        line, _, self._pending = self._pending.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def end_with_the_parent(self) -> None:
        """End this process when the other end of stdin closes: a worker never outlives its parent."""

        def watch() -> None:
            poller = select.poll()
            poller.register(self._read_fd, 0)  # no data events: only the hang-up wakes this thread
            poller.poll()
            os._exit(ORPHANED)

        threading.Thread(target=watch, name="parent-watch", daemon=True).start()


_wire: Wire | None = None


def _opened() -> Wire:
    global _wire  # noqa: PLW0603 - one process has one stdin and one stdout
    if _wire is None:
        _wire = Wire(os.dup(0), os.dup(1))
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
    return _wire


def read_job() -> dict[str, Any]:
    """Wait for the job: the first message, without which a worker does nothing.

    Until it arrives the worker is one thread, so that its parent can move it as a whole.
    """
    job = wait_message()
    _opened().end_with_the_parent()
    return job


def wait_message() -> dict[str, Any]:
    """Wait for the parent's next message; a closed pipe reads as a request to stop."""
    message = _opened().receive(None)
    return {"stop": True} if message is None else message


def read_message() -> dict[str, Any] | None:
    """Return a message that has already arrived, else None at once."""
    return _opened().receive(0)


def emit(event: dict[str, Any]) -> None:
    """Send one event to the parent."""
    _opened().emit(event)
