"""The write-ahead journal: what we are about to change and what was there, on disk before the write."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from env import helper
from env.errors import EnvError
from env.owner import Owner
from env.step import Change

SCHEMA = 1
BOOT_ID = "/proc/sys/kernel/random/boot_id"

Kind = Literal["setup", "hold"]


class JournalError(EnvError):
    """The journal cannot be written or read, so the machine must not be touched."""


class Disk:
    """Where a journal is written: here, by ourselves. Its calls raise OSError and return when the disk has it."""

    def available(self) -> bool:
        """Whether we may write there at all."""
        return True

    def create(self, path: Path) -> None:
        """Make an empty file that must not be there yet, and its folder."""
        helper.create_file(str(path))

    def append(self, path: Path, data: bytes) -> None:
        """Add all of `data`, or nothing of it."""
        helper.append_file(str(path), data)

    def remove(self, path: Path) -> None:
        """Delete the file, and its folder when that is empty then."""
        helper.remove_file(str(path))


HERE = Disk()


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


class Journal:
    """An append-only file of JSON lines: a header, then entries and marks, each on disk when the call returns."""

    def __init__(self, path: Path, kind: Kind, owner: Owner, boot_id: str, disk: Disk = HERE) -> None:
        self.path = path
        self.disk = disk
        self.kind: Kind = kind
        self.owner = owner
        self.boot_id = boot_id
        self.entries: list[Entry] = []
        self.applied = False  # an `apply` that ran to its end; its settings stand until `restore`
        self.refusals: dict[str, int] = {}  # writes that the machine refused, by path: the errno

    @classmethod
    def create(cls, path: Path, kind: Kind, owner: Owner, boot_id: str, disk: Disk = HERE) -> Journal:
        """A new journal, its header on disk; there must be none yet."""
        journal = cls(path, kind, owner, boot_id, disk)
        header = {"schema": SCHEMA, "kind": kind, "boot_id": boot_id, "owner": owner.as_dict()}
        try:
            disk.create(path)
        except OSError as error:
            raise _refusal(path, error) from None
        try:
            journal._append([header])
        except BaseException:
            journal.remove()
            raise
        return journal

    @classmethod
    def load(cls, path: Path, disk: Disk = HERE) -> Journal | None:
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
            journal = cls(path, "hold", Owner(0, 0, "?", 0.0), "", disk)
            if header is None:
                return journal
            if header["schema"] != SCHEMA:
                raise JournalError(
                    f"{path}: journal of schema {header['schema']}; restore it with the version that wrote it"
                )
            owner = Owner.from_dict(header["owner"])
            journal = cls(path, header["kind"], owner, header["boot_id"], disk)
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
            self.disk.append(self.path, data)
        except OSError as error:
            raise _refusal(self.path, error) from None

    def remove(self) -> None:
        """Delete the journal: the machine is as it was."""
        with contextlib.suppress(OSError):
            self.disk.remove(self.path)


def _refusal(path: Path, error: OSError) -> JournalError:
    return JournalError(
        f"the journal {path} cannot be written ({error.strerror}), so nothing more is changed; "
        "make room or see to its permissions, and run this again"
    )
