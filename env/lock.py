"""One owner at a time: the lock on the machine, who holds it, and signals while it is put back."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

from env.errors import MachineError
from env.journal import Owner

LOCK = "lock"
TOOL_SECONDS = 30.0  # longest that a tool takes: it is stopped then
PAUSE_S = 0.02
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class HeldError(MachineError):
    """Another command holds the machine."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the machine is held by {holder}; wait for it to end")
        self.holder = holder


@contextlib.contextmanager
def locked(folder: Path, command: str) -> Iterator[int]:
    """One owner at a time; the kernel lets go when the owner and its tools end, however they end."""
    with _lock_file(folder) as file:
        file.truncate(0)
        file.write(json.dumps(Owner.me(command).as_dict()))
        file.flush()
        try:
            yield file.fileno()
        finally:
            with contextlib.suppress(OSError):
                (folder / LOCK).unlink()  # while it is ours; who waits with it open sees that it is gone
                folder.rmdir()


def _lock_file(folder: Path) -> IO[str]:
    """The lock file, locked; raises HeldError that names who holds it."""
    deadline = time.monotonic() + TOOL_SECONDS
    while True:
        try:
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            if folder.stat().st_uid != os.geteuid():
                raise MachineError(f"{folder} belongs to somebody else; have it removed")
            file = (folder / LOCK).open("a+")
        except FileNotFoundError:
            continue  # the last owner removed the folder at this moment
        except OSError as error:
            raise MachineError(
                f"{folder} cannot be used ({error.strerror}), and without it nothing is changed"
            ) from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            holder = _holder(file.read())
            file.close()
            if (holder is None or holder.alive()) and (folder / LOCK).exists():
                raise HeldError(str(holder or "another command")) from None
            if time.monotonic() > deadline:
                raise HeldError(f"a tool that {holder} had started") from None
            time.sleep(PAUSE_S)  # its owner was killed; what it had started, cset say, is about to end
            continue
        if _still_there(folder / LOCK, file):
            return file
        file.close()  # the last owner removed it between our opening and our locking: it locks nothing now


def _still_there(path: Path, file: IO[str]) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except OSError:
        return False


def _holder(text: str) -> Owner | None:
    try:
        return Owner.from_dict(json.loads(text))
    except (ValueError, KeyError, TypeError):
        return None  # it has only just begun


@contextlib.contextmanager
def ending_by_signal() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end us as an exception does, so that the machine is put back."""
    before: dict[signal.Signals, Any] = {}

    def end(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # not the main thread
            if signal.getsignal(number) is signal.SIG_DFL:
                before[number] = signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def signals_wait() -> Iterator[None]:
    """Hold signals back while the machine is put back; a second Ctrl-C is answered when that is done."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
