"""Keeping an index true: what lies in the archive is compared with what was indexed, and the difference is read.

A partition is written under its lock from three things: the rows that are there, the rows just made, and the
files' present size and time. So the order of writers does not matter, and one that is killed leaves either the
old partition or the new one.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastrnns.archive import store
from fastrnns.archive.index import tables
from fastrnns.archive.index.extract import Rows, add_damaged, add_record
from fastrnns.archive.index.layout import Partition, Stamp, partition
from fastrnns.archive.index.places import Place
from fastrnns.archive.record import RecordError
from fastrnns.errors import UsageError

CHUNK = 2_000  # files that are read between two writes: what a kill can cost
NOTHING = Stamp(-1, -1)
ROUNDS = 5  # looks at a place without locks, until nothing is missing there

Seen = dict[Partition, dict[str, Stamp]]


@dataclass
class Summary:
    """What an update did, in files; `unread` are those that no row could be made of, which readers read themselves."""

    read: int = 0
    kept: int = 0
    dropped: int = 0
    damaged: int = 0
    unread: int = 0
    written: int = 0  # partitions


def scan(archive: Path) -> Seen:
    """Every file that `Archive.files` names, by partition, with its size and time."""
    found: Seen = {}
    for machine in _folders(archive):
        with contextlib.suppress(PermissionError), os.scandir(machine.path) as inside:
            for item in inside:
                if item.name.endswith(".json") and not item.name.startswith("."):
                    where = partition(machine.name, item.name)
                    found.setdefault(where, {})[item.name] = _present(item)
    return found


def _present(item: os.DirEntry[str]) -> Stamp:
    try:
        return _stamp(item.stat())
    except OSError:  # a link to nothing: as a name it is there, and reading it will say why it is not
        return NOTHING


def _folders(archive: Path) -> Sequence[os.DirEntry[str]]:
    with os.scandir(archive) as inside:
        return [item for item in inside if item.is_dir()]


def update(
    archive: Path, place: Place, *, rebuild: bool = False, say: Callable[[str], None] = lambda _: None
) -> Summary:
    """Bring the index up to date with the archive; every file is read again where `rebuild`.

    Where writers cannot keep each other out, one may have put back a partition without what another added to
    it: there it is looked at again until nothing is missing.
    """
    total = Summary()
    for turn in range(1 if place.takes_turns else ROUNDS):
        seen = scan(archive)
        written = total.written
        total.kept = total.unread = 0
        for key in sorted(seen.keys() | place.partitions()):
            _update(archive, place, key, seen.get(key, {}), total, rebuild=rebuild and not turn, say=say)
        if total.written == written:
            break
    return total


def _update(
    archive: Path,
    place: Place,
    key: Partition,
    seen: Mapping[str, Stamp],
    total: Summary,
    *,
    rebuild: bool,
    say: Callable[[str], None],
) -> None:
    part = place.open(key)
    known = part.stamps() if part else {}
    wanted = sorted(name for name in seen if rebuild or known.get(name) != seen[name])
    gone = len(known.keys() - seen.keys())
    total.kept += len(seen) - len(wanted)
    total.dropped += gone
    if not wanted and not gone:
        return
    for start in range(0, max(1, len(wanted)), CHUNK):
        chunk = wanted[start : start + CHUNK]
        new, stamps = _read(archive, key, {name: seen[name] for name in chunk}, total)
        total.written += _commit(archive, place, key, seen=seen, new=new, stamps=stamps)
        if chunk:
            say(f"{key.machine} {key.month}: {start + len(chunk)} of {len(wanted)} files")


def _read(
    archive: Path, key: Partition, wanted: Mapping[str, Stamp], total: Summary
) -> tuple[tables.Tables, dict[str, Stamp]]:
    """The rows of so many files, and of which they are."""
    rows, taken = Rows(), dict(wanted)
    for name, stamp in wanted.items():
        if not _add(rows, archive, key, name, stamp):
            taken.pop(name)
    if not tables.holdable(rows):  # one record may say what no column holds: find it
        rows = Rows()
        for name, stamp in wanted.items():
            alone = Rows()
            if _add(alone, archive, key, name, stamp) and tables.holdable(alone):
                _add(rows, archive, key, name, stamp)
            else:
                taken.pop(name, None)
    total.read += len(taken)
    total.unread += len(wanted) - len(taken)
    total.damaged += len(rows.damaged)
    return tables.made(rows), taken


def _add(rows: Rows, archive: Path, key: Partition, name: str, stamp: Stamp) -> bool:
    """Add what a file holds; False where it cannot be read now, which is no fact about the file."""
    path = archive / key.machine / name
    try:
        add_record(rows, key, name, stamp, store.read(path).record)
    except RecordError as error:
        add_damaged(rows, key, name, stamp, str(error).removeprefix(str(path)))
    except UsageError:
        return False
    return True


def _commit(
    archive: Path,
    place: Place,
    key: Partition,
    *,
    seen: Mapping[str, Stamp],
    new: tables.Tables,
    stamps: Mapping[str, Stamp],
) -> bool:
    """Put new rows into a partition, beside those of it that are still true; False where nothing changes."""

    def true(name: str, stamp: Stamp) -> bool:
        try:
            return _stamp((archive / key.machine / name).stat()) == stamp
        except OSError:
            return False

    with place.locked(key):
        part = place.open(key)
        known = part.stamps() if part else {}
        taken = {name for name, stamp in stamps.items() if true(name, stamp)}
        kept = {
            name
            for name, stamp in known.items()
            if name not in taken and (seen.get(name) == stamp or true(name, stamp))
        }
        if not taken and kept == known.keys():
            return False
        old = part.tables() if part else None
        if len(taken) < len(stamps):  # written or removed since it was read: the next update sees to it
            new = tables.merged(new, taken, tables.made(Rows()))
        place.write(key, tables.merged(old, kept, new))
    return True


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns)
