"""Where the journals of a machine lie: one folder that root keeps for all, one of a user who may not write there."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from env import helper
from env.errors import MachineError
from env.journal import HERE, Disk
from env.privilege import Privilege, RootsDisk
from env.sysfs import Files


@dataclass(frozen=True)
class Place:
    """A folder with journals, and who writes them."""

    folder: Path
    disk: Disk


def places(files: Files, privilege: Privilege) -> tuple[Place, ...]:
    """The folders in which this caller's commands may have left a journal, the one for all first.

    Raises MachineError where the user's own folder belongs to somebody else: its journals say what root shall write.
    """
    shared = Path(files.path(helper.JOURNALS))
    if privilege.direct:
        return (Place(shared, HERE),)
    return (Place(shared, RootsDisk(privilege)), Place(own(files.euid), HERE))


def writable(where: Sequence[Place]) -> Place:
    """The folder to begin a journal in: the one for all where we may, else the user's own."""
    return next((place for place in where if place.disk.available()), where[-1])


def own(uid: int) -> Path:
    """A user's own folder, below the one that the login made for them, else in the common scratch folder."""
    home = Path(f"/run/user/{uid}")
    folder = home / "fastrnns" if _is_theirs(home, uid) else Path(f"/tmp/fastrnns-{uid}")  # noqa: S108 - checked
    if os.path.lexists(folder) and not _is_theirs(folder, uid):
        raise MachineError(f"{folder} does not belong to you alone; have it removed")
    return folder


def _is_theirs(folder: Path, uid: int) -> bool:
    """Whether it is a folder, no link, of theirs, in which nobody else may write."""
    try:
        seen = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(seen.st_mode) and seen.st_uid == uid and not seen.st_mode & 0o022
