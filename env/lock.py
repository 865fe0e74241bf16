"""One owner of the machine at a time, whoever the user: a lock that the kernel keeps, and who has it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from env.errors import MachineError
from env.owner import Owner
from env.sysfs import Files

# What is locked is the kernel's own folder of CPUs: every user can open it, nobody can delete or replace it, and
# nothing has to be made that another user could own. flock(2) asks for no right to write.
OBJECT = "/sys/devices/system/cpu"
TOOL_SECONDS = 30.0  # longest that a tool takes: it is stopped then
TABLE = Path("/proc/locks")
GRACE_S = 0.5  # a command that only looks whether the lock is free has it for less than that
PAUSE_S = 0.02
GONE = Owner(0, None, "?", 0.0)


class HeldError(MachineError):
    """Another command holds the machine."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the machine is held by {holder}; wait for it to end")
        self.holder = holder


@contextlib.contextmanager
def locked(files: Files) -> Iterator[int]:
    """Own the machine for the body; gives the lock's descriptor, which a tool that is started may hold too.

    The kernel lets go when the owner and its tools have ended, however they end. Raises HeldError, which names
    who holds it, and MachineError where the folder cannot be locked.
    """
    fd = _open(files)
    try:
        _wait(fd)
        yield fd
    finally:
        os.close(fd)


def holder(files: Files) -> str | None:
    """Who holds the machine now, as one may show it; None when nobody does that still runs."""
    fd = _open(files)
    try:
        if _take(fd):
            return None
        owner = _owner(fd)
        return "another command" if owner is None else str(owner) if owner.alive() else None
    finally:
        os.close(fd)


def _open(files: Files) -> int:
    """What is locked: on the real machine the kernel's folder, of a tree its top."""
    path = OBJECT if files.real else files.root
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _refusal(path, error) from None


def _wait(fd: int) -> None:
    started = time.monotonic()
    while not _take(fd):
        owner, waited = _owner(fd), time.monotonic() - started
        if (owner is None or owner.alive()) and waited > GRACE_S:
            raise HeldError(str(owner or "another command"))
        if waited > TOOL_SECONDS:
            raise HeldError("what a command that was killed had started")
        time.sleep(PAUSE_S)  # its owner was killed; what it had started, cset say, is about to end


def _take(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _refusal("the machine's lock", error) from None
    return True


def _owner(fd: int) -> Owner | None:
    """The process that took the lock, by the kernel's table of locks; None where that cannot be read.

    The kernel leaves out of the table what a process took that is gone: then it is GONE.
    """
    seen = os.fstat(fd)
    device = f"{os.major(seen.st_dev):02x}:{os.minor(seen.st_dev):02x}"
    try:
        rows = [row.split() for row in TABLE.read_text(encoding="ascii", errors="replace").splitlines()]
    except OSError:
        return None
    # "1: FLOCK  ADVISORY  WRITE 4711 00:16:3562 0 EOF"; a file system with sub-volumes shows another device there.
    takers = {row[5]: int(row[4]) for row in rows if len(row) == 8 and row[1] == "FLOCK"}
    same = [pid for place, pid in takers.items() if place.rpartition(":")[2] == str(seen.st_ino)]
    pid = takers.get(f"{device}:{seen.st_ino}", same[0] if len(same) == 1 else None)
    return Owner.of(pid) if pid is not None and pid > 0 else GONE


def _refusal(what: str, error: OSError) -> MachineError:
    return MachineError(f"{what} cannot be locked ({error.strerror}), and without a lock nothing is changed")
