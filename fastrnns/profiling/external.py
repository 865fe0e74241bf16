"""Running a profiler that is a program: by argument list, bounded, on the bench CPUs, its words kept."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastrnns.errors import HarnessError
from fastrnns.measure.process import child_environment

TIMEOUT_S = 600.0
POLL_S = 0.25  # how long a wait may hide a Ctrl-C
# Waits until it has been put on its CPUs, then becomes the tool: what the tool starts inherits them.
GATE = "import os, sys; sys.stdin.readline(); os.execvp(sys.argv[1], sys.argv[1:])"


class ToolFailed(HarnessError):  # noqa: N818 - it names what happened, as ChildDied does
    """A profiler that ended without a report that can be read."""


@dataclass(frozen=True)
class Completed:
    """What a program did and said."""

    returncode: int
    output: str  # stdout and stderr together, bytes that are no UTF-8 replaced

    @property
    def last_words(self) -> str:
        """The last line that may say why: a tool's marked error if there is one."""
        lines = [line.strip() for line in self.output.splitlines() if line.strip()]
        marked = [line for line in lines if line.startswith("==ERROR==") or "error" in line.lower()]
        return (marked or lines or [f"it ended with status {self.returncode} and said nothing"])[-1][:300]


def run(
    argv: Sequence[str],
    *,
    adopt: Callable[[int], None] | None = None,
    cpus: Sequence[int] | None = None,
    environ: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    interrupted: Callable[[], bool] = lambda: False,
) -> Completed:
    """Run a program to its end; its process group is killed when it takes too long or we are interrupted."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", GATE, *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=child_environment(cpus, environ),
        start_new_session=True,
    )
    try:
        if adopt is not None:
            adopt(process.pid)
        output = _output(process, Path(argv[0]).name, timeout_s, interrupted)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # also what the tool left behind
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
    return Completed(process.returncode, output.decode("utf-8", "replace"))


def _output(
    process: subprocess.Popen[bytes], name: str, timeout_s: float, interrupted: Callable[[], bool]
) -> bytes:
    deadline = time.monotonic() + timeout_s
    go: bytes | None = b"\n"
    while True:
        try:
            return process.communicate(go, timeout=min(POLL_S, timeout_s))[0]
        except subprocess.TimeoutExpired:
            go = None
        if interrupted():
            raise ToolFailed(f"interrupted before {name} was done")
        if time.monotonic() > deadline:
            fewer = (
                "look at fewer kernels with --launches" if name == "ncu" else "profile fewer with --nloops"
            )
            raise ToolFailed(
                f"{name} did not end within {timeout_s:g} s; {fewer}, or allow more with --timeout"
            )


def report(path: Path, tool: str, done: Completed) -> Path:
    """The report that a tool was to leave, if there is something in it: an exit status proves nothing."""
    try:
        size = path.stat().st_size
    except OSError:
        size = 0
    if size > 0:
        return path
    raise ToolFailed(f"{tool} left no report (status {done.returncode}): {done.last_words}")
