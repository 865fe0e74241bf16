"""Files that are whole or not there: written aside, flushed to the disk, and linked to a name nobody has."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from fastrnns.archive.naming import HIDDEN, LOCK
from fastrnns.errors import HarnessError

LOCK_LIMIT_S = 60.0  # a writer holds the lock for milliseconds; a minute means a stopped process
NO_LOCKS_HERE = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
NO_LINKS_HERE = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, each flushed into its parent, owned by the person who called."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        if folder.parent == folder:
            break
        folder = folder.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        give_to_caller(path)
        flush_folder(path.parent)


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet; it appears whole or not at all. Raises FileExistsError."""
    aside = path.parent / f"{HIDDEN}{os.getpid()}-{secrets.token_hex(4)}.tmp"
    try:
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        finally:
            os.close(fd)
        give_to_caller(aside)
        _take_name(aside, path)
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut, where the file system can."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EIO, errno.EDQUOT}:
            raise
    finally:
        os.close(fd)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold the folder's lock, which a killed holder gives back; False where the file system has no locks."""
    fd = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        with contextlib.suppress(OSError):
            give_to_caller(folder / LOCK)
        yield _lock(fd, folder)
    finally:
        os.close(fd)


def clear_leftovers(folder: Path) -> None:
    """Remove what killed writers left aside. Only under the lock: no other writer is at work then."""
    for path in leftovers(folder):
        with contextlib.suppress(OSError):
            path.unlink()


def leftovers(folder: Path) -> list[Path]:
    """Files that a killed writer left aside."""
    return sorted(folder.glob(f"{HIDDEN}*.tmp"))


def give_to_caller(path: Path) -> None:
    """Under sudo, give a new file or folder to the person who called."""
    user, group = os.environ.get("SUDO_UID", ""), os.environ.get("SUDO_GID", "")
    if os.geteuid() == 0 and user.isdigit() and group.isdigit():
        os.chown(path, int(user), int(group), follow_symlinks=False)


def _take_name(aside: Path, path: Path) -> None:
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in NO_LINKS_HERE:
            raise
        # No hard links (exFAT, some network file systems): reserve the name, then move onto our reservation.
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
        aside.replace(path)


def _lock(fd: int, folder: Path) -> bool:
    deadline = time.monotonic() + LOCK_LIMIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"another program has held {folder} for {LOCK_LIMIT_S:g} s; end it and try again"
                ) from None
            time.sleep(0.005)
        except OSError as error:
            if error.errno in NO_LOCKS_HERE:
                return False
            raise
        else:
            return True
