"""Who holds the machine: a process by pid and start time, its command and since when. No names of people."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Owner:
    """A process, told from a later one of the same pid by its start time."""

    pid: int
    starttime: int | None  # clock ticks since boot; None when it could not be read
    command: str
    since: float  # seconds since the epoch

    @staticmethod
    def me(command: str) -> Owner:
        """This process."""
        return Owner(os.getpid(), starttime(os.getpid()), command, time.time())

    @staticmethod
    def of(pid: int) -> Owner:
        """Another process, by what the kernel says of it; for one that is gone only the pid is known."""
        import psutil

        try:
            process = psutil.Process(pid)
            return Owner(pid, starttime(pid), short(process.cmdline()), process.create_time())
        except psutil.Error:
            return Owner(pid, starttime(pid), "?", 0.0)

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Owner:
        """The owner that the header of a journal names; raises KeyError, TypeError, ValueError."""
        return Owner(
            int(facts["pid"]),
            facts.get("starttime"),
            str(facts.get("command", "?")),
            float(facts.get("since", 0.0)),
        )

    def as_dict(self) -> dict[str, Any]:
        """For the header of a journal."""
        return {"pid": self.pid, "starttime": self.starttime, "command": self.command, "since": self.since}

    def alive(self) -> bool:
        """Whether that very process still runs (a reused pid has another start time)."""
        now = starttime(self.pid)
        return now is not None and (self.starttime is None or now == self.starttime)

    def __str__(self) -> str:
        if not self.since:
            return f"pid {self.pid}"
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"pid {self.pid} ({self.command}), since {since}"


def short(argv: Sequence[str]) -> str:
    """A command line as one may show it to others: the module or program, without its arguments and paths."""
    words = list(argv)
    if "-m" in words[:-1]:
        module = words.index("-m") + 1
        if words[module] == "env":  # its first argument says what it does
            return " ".join(words[module : module + 2])
        return words[module]
    return Path(words[0]).name if words else "?"


def starttime(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])
