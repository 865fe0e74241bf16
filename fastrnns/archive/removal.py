"""Taking records and their files out of an archive: exactly what was judged, beside writers, whole if killed.

A record is renamed to a hidden name, which takes it out of the archive at once; then its files go; then the hidden
name. What a kill leaves in between is ended by the next removal, and is a record no more.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fastrnns.archive import checking, durable, record, store
from fastrnns.archive.naming import PRUNED
from fastrnns.errors import HarnessError

LEFTOVERS = f"*/{PRUNED}*.json"


@dataclass(frozen=True)
class Judged:
    """A file, and what it held when it was judged."""

    path: Path
    sha256: str


def remove(folder: Path, judged: Sequence[Judged]) -> Iterator[tuple[Path, str]]:
    """Remove records of one machine's folder; yields each path, with the reason where it stayed."""
    with _said(folder), durable.locked(folder) as alone:
        count, last = store.counted(folder)
        gone = 0
        try:
            for one in judged:
                reason = _remove(one)
                gone += not reason
                yield one.path, reason
        finally:
            if alone:
                store.count(folder, count - gone, last)


def end_leftovers(archive: Path) -> None:
    """End what a killed removal began anywhere in an archive."""
    for folder in sorted({path.parent for path in archive.glob(LEFTOVERS)}):
        with _said(folder), durable.locked(folder):
            for tomb in sorted(folder.glob(f"{PRUNED}*.json")):
                _end(tomb)


@contextlib.contextmanager
def _said(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        why = (error.strerror or type(error).__name__).lower()
        raise HarnessError(f"{folder} cannot be changed ({why}); see who owns it, then prune again") from None


def _remove(judged: Judged) -> str:
    path = judged.path
    if checking.unlike_a_file(path):
        return "it was replaced after it was judged"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return "another removed it"
    if hashlib.sha256(data).hexdigest() != judged.sha256:
        return "it was changed after it was judged"
    if any(checking.companions(path, json.loads(data))):
        return "its files were changed after it was judged"
    tomb = path.with_name(f"{PRUNED}{path.name}")
    path.rename(tomb)
    durable.flush_folder(path.parent)
    _end(tomb)
    return ""


def _end(tomb: Path) -> None:
    """Remove the files of a record that is out of the archive, and then its hidden name."""
    path = tomb.with_name(tomb.name.removeprefix(PRUNED))
    folder = path.with_suffix("")
    if not path.exists() and folder.is_dir() and not folder.is_symlink():  # else it was brought back since
        try:
            found = record.parse(tomb.read_bytes(), str(tomb))
        except (HarnessError, OSError):
            return  # no record: nothing says which files were its own
        for named in found.get("files") or ():
            (folder / named["name"]).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what somebody put there since stays, and `check` names it
            folder.rmdir()
    tomb.unlink(missing_ok=True)
    durable.flush_folder(tomb.parent)
