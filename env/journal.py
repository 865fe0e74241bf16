"""The write-ahead journal: what we are about to change and what was there, on disk before the write."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from env.errors import EnvError
from env.step import Change

SCHEMA = 1
BOOT_ID = "/proc/sys/kernel/random/boot_id"

Kind = Literal["setup", "hold"]


class JournalError(EnvError):
    """The journal cannot be written or read, so the machine must not be touched."""


@dataclass(frozen=True)
class Owner:
    """Who holds the machine: a process, by pid and start time, the command and since when. No names."""

    pid: int
    starttime: int | None
    command: str
    since: float  # seconds since the epoch

    @staticmethod
    def me(command: str) -> Owner:
        """This process."""
        return Owner(os.getpid(), starttime(os.getpid()), command, time.time())

    @staticmethod
    def from_dict(facts: dict[str, Any]) -> Owner:
        """The owner that a header or a lock file names."""
        return Owner(
            int(facts["pid"]),
            facts.get("starttime"),
            str(facts.get("command", "?")),
            float(facts.get("since", 0.0)),
        )

    def as_dict(self) -> dict[str, Any]:
        """For a header or a lock file."""
        return {"pid": self.pid, "starttime": self.starttime, "command": self.command, "since": self.since}

    def alive(self) -> bool:
        """Whether that very process still runs (a reused pid has another start time)."""
        now = starttime(self.pid)
        return now is not None and (self.starttime is None or now == self.starttime)

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"pid {self.pid} ({self.command}), since {since}"


@dataclass(frozen=True)
class Entry:
    """One line of the journal: a plain write, or an operation of a step with its own `data`."""

    step: str
    op: str = "write"
    path: str = ""
    old: str = ""
    new: str | None = None
    rides_on: str | None = None
    data: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The JSON of the line."""
        if self.op == "write":
            line: dict[str, Any] = {"step": self.step, "op": self.op, "path": self.path, "old": self.old}
            line["new"] = self.new
            if self.rides_on:
                line["rides_on"] = self.rides_on
            return line
        return {"step": self.step, "op": self.op, "data": self.data}


def starttime(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone (or a zombie)."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in {"Z", "X"} else int(fields[19])


class Journal:
    """An append-only file of JSON lines: a header, then entries and marks, each on disk when the call returns."""

    def __init__(self, path: Path, kind: Kind, owner: Owner, boot_id: str) -> None:
        self.path = path
        self.kind: Kind = kind
        self.owner = owner
        self.boot_id = boot_id
        self.entries: list[Entry] = []
        self.applied = False  # an `apply` that ran to its end; its settings stand until `restore`
        self.refusals: dict[str, int] = {}  # writes that the machine refused, by path: the errno

    @classmethod
    def create(cls, path: Path, kind: Kind, owner: Owner, boot_id: str) -> Journal:
        """A new journal, its header on disk; there must be none yet."""
        journal = cls(path, kind, owner, boot_id)
        header = {"schema": SCHEMA, "kind": kind, "boot_id": boot_id, "owner": owner.as_dict()}
        try:
            path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise _refusal(path, error) from None
        os.close(fd)
        try:
            journal._append([header])
            _sync_folder(path.parent)
        except BaseException:
            journal.remove()
            raise
        return journal

    @classmethod
    def load(cls, path: Path) -> Journal | None:
        """The journal at `path`; None when there is none. A torn last line never had its write."""
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise JournalError(
                f"{path}: the journal cannot be read ({error.strerror}); see to its permissions"
            ) from None
        whole = lines[:-1]  # what follows the last newline is torn, or nothing
        try:
            rows = [json.loads(line) for line in whole]
            header = rows[0] if rows else None
            journal = cls(path, "hold", Owner(0, 0, "?", 0.0), "")
            if header is None:
                return journal
            if header["schema"] != SCHEMA:
                raise JournalError(
                    f"{path}: journal of schema {header['schema']}; restore it with the version that wrote it"
                )
            journal = cls(path, header["kind"], Owner.from_dict(header["owner"]), header["boot_id"])
            for row in rows[1:]:
                journal._replay(row)
        except (ValueError, KeyError, TypeError) as error:
            raise JournalError(
                f"{path}: the journal is damaged ({error}); compare it with the machine, then delete it"
            ) from None
        return journal

    def _replay(self, row: dict[str, Any]) -> None:
        if "mark" in row:
            self.applied = row["mark"] == "applied"
        elif "refused" in row:
            self.refusals.update(row["refused"])
        elif row["op"] == "write":
            self.entries.append(
                Entry(row["step"], "write", row["path"], row["old"], row["new"], row.get("rides_on"))
            )
        else:
            self.entries.append(Entry(row["step"], row["op"], data=row["data"]))

    def record(self, changes: Iterable[Change | Entry]) -> None:
        """Put what is about to be done on disk. A path already recorded keeps its first `old`."""
        known = {entry.path: entry for entry in self.entries if entry.op == "write"}
        fresh: list[Entry] = []
        for change in changes:
            entry = change
            if isinstance(entry, Change):
                entry = Entry(entry.step, "write", entry.path, entry.old, entry.new, entry.rides_on)
            if entry.op == "write" and entry.path in known:
                first = known[entry.path]
                if first.new == entry.new:
                    continue
                entry = Entry(entry.step, "write", entry.path, first.old, entry.new, entry.rides_on)
            known[entry.path] = entry
            fresh.append(entry)
        if fresh:
            self._append([entry.as_dict() for entry in fresh])
            self.entries.extend(fresh)

    def operation(self, step: str, op: str, **data: Any) -> None:
        """Put a step's own operation on disk before it is done; `restore` of the step gets it back."""
        self.record([Entry(step, op, data=data)])

    def mark(self, word: Literal["applied", "applying"]) -> None:
        """Say that an `apply` ran to its end, or that another begins."""
        self._append([{"mark": word}])
        self.applied = word == "applied"

    def refuse(self, refusals: dict[str, int]) -> None:
        """Keep which writes were refused: a later `check` need not try them to know."""
        if refusals and refusals != self.refusals:
            self._append([{"refused": refusals}])
            self.refusals.update(refusals)

    def of(self, step: str, *, operations: bool = False) -> list[Entry]:
        """The entries of one step, newest first; only its own operations when asked."""
        return [e for e in reversed(self.entries) if e.step == step and not (operations and e.op == "write")]

    def _append(self, rows: Sequence[dict[str, Any]]) -> None:
        data = b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)
        try:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                size = os.fstat(fd).st_size
                try:
                    view = memoryview(data)
                    while view:
                        view = view[os.write(fd, view) :]
                    os.fsync(fd)
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(fd, size)
                    raise
            finally:
                os.close(fd)
        except OSError as error:
            raise _refusal(self.path, error) from None

    def remove(self) -> None:
        """Delete the journal: the machine is as it was."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        with contextlib.suppress(OSError):
            _sync_folder(self.path.parent)
        with contextlib.suppress(OSError):  # the folder goes too when it is empty
            self.path.parent.rmdir()


def _refusal(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"the journal {path} cannot be written ({error.strerror}), so nothing more is changed; "
        "make room or see to its permissions, and run this again"
    )


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
