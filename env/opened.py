"""One machine opened for a command: its steps, applied where that is asked for, and put back at the end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import IO, Any

from env.errors import MachineError
from env.journal import BOOT_ID, Entry, Journal, Owner
from env.privilege import Privilege
from env.shield import ShieldStep
from env.step import Host, Step, Wanted
from env.sysfs import Files

SETUP, HOLD, LOCK = "setup.jsonl", "hold.jsonl", "lock"
TOOL_SECONDS = 30.0  # longest that a tool takes: it is stopped then
PAUSE_S = 0.02
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def steps(host: Host) -> list[Step]:
    """All steps in their order: some governors reset the turbo switch."""
    from env import aslr, cstate, governor, irq, numa, perf, power, smt, swap, thp, turbo

    every: list[Step] = [
        governor.Governor(host),
        turbo.Turbo(host),
        ShieldStep(host),
        smt.Smt(host),
        irq.Irq(host),
        perf.Perf(host),
        cstate.CState(host),
        power.Power(host),
        thp.Thp(host),
        numa.NumaBalancing(host),
        swap.Swap(host),
        aslr.Aslr(host),
    ]
    return [step for step in every if step.name not in host.wanted.skip]


def state_folder(files: Files) -> Path:
    """Where lock and journal are: one place a machine for root, one a user for everybody else."""
    if not files.real:
        return Path(files.path("/run/fastrnns"))
    return Path("/run/fastrnns") if files.euid == 0 else Path(f"/tmp/fastrnns-{files.euid}")  # noqa: S108 - owner checked


class HeldError(MachineError):
    """Another command holds the machine."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"the machine is held by {holder}; wait for it to end")
        self.holder = holder


@dataclass
class Opened:
    """A host under a command, and afterwards what of it could not be put back, in sentences."""

    host: Host
    steps: list[Step]
    left: list[str] = field(default_factory=list)
    holder: str | None = None  # another command that holds the machine, where we only look

    def shield(self) -> ShieldStep:
        """The shield step; where it is left out, one that only finds and pins."""
        return next((step for step in self.steps if isinstance(step, ShieldStep)), None) or ShieldStep(
            self.host
        )

    def states(self) -> list[dict[str, Any]]:
        """Every step as it reads now: the rows of `check --json`."""
        return [step.probe().as_dict() for step in self.steps]


@contextlib.contextmanager
def opened(root: str, wanted: Wanted, *, mode: str, command: str) -> Iterator[Opened]:
    """The machine, for the length of the body; in mode `apply` stable meanwhile, and as before afterwards."""
    files = Files(root)
    host = Host(files, Privilege(files), wanted)
    folder = state_folder(files)
    with contextlib.ExitStack() as stack:
        stack.callback(host.privilege.close)
        host.standing = _of_this_boot(files, folder / SETUP)
        if mode != "apply":
            holder = recover_unless_held(host, folder, command)
            yield Opened(host, steps(host), holder=holder)
            return
        host.privilege.keep = (stack.enter_context(locked(folder, command)),)
        stack.enter_context(ending_by_signal())
        recover(host, folder)
        host.holding = True
        found = Opened(host, steps(host))
        if host.standing is None:
            host.journal = Journal.create(folder / HOLD, "hold", Owner.me(command), boot_id(files))
        try:
            if host.journal is not None:
                apply(found)
            yield found
        finally:
            with signals_wait():
                if host.journal is not None:
                    found.left = restore(host, found.steps, host.journal)
                    host.journal = None


def apply(found: Opened) -> None:
    """Bring every step to what is wanted; all plain writes are on disk before the first of them."""
    journal = found.host.journal
    if journal is not None:
        journal.record([change for step in found.steps for change in step.changes()])
    for step in found.steps:
        step.apply()


def restore(host: Host, every: Sequence[Step], journal: Journal) -> list[str]:
    """Undo what a journal notes, newest first, only where ours still stands; then the journal goes."""
    left: list[str] = []
    for step in reversed(every):
        left += step.restore(journal.of(step.name, operations=True))
    newest: dict[str, Entry] = {}
    for entry in journal.entries:
        if entry.op == "write":
            newest[entry.path] = entry
    writes = sorted(newest.values(), key=journal.entries.index, reverse=True)
    for entry in [e for e in writes if e.rides_on is None] + [e for e in writes if e.rides_on is not None]:
        now = host.files.read(entry.path).word
        if now == entry.old or now is None:
            continue
        if entry.new is not None and now != entry.new:
            left.append(f"{entry.path} was set to {now} by somebody else meanwhile; left so")
            continue
        failure = host.privilege.write(entry.path, entry.old)
        if failure is not None:
            left.append(f"{entry.path} could not be put back to {entry.old}: {failure.reason}")
    journal.remove()
    return left


def recover(host: Host, folder: Path) -> list[str]:
    """Undo what a killed command left; a machine that was rebooted has forgotten it by itself."""
    host.files.sweep()
    journal = Journal.load(folder / HOLD)
    if journal is None:
        return []
    if journal.boot_id != boot_id(host.files):
        journal.remove()
        return []
    return restore(host, steps(host), journal)


def recover_unless_held(host: Host, folder: Path, command: str) -> str | None:
    """Undo what a killed command left, unless another holds the machine now: then it is named."""
    if not (folder / LOCK).exists() and not (folder / HOLD).exists():
        with contextlib.suppress(OSError):
            folder.rmdir()  # only when it is empty: a command was killed before its first word
        return None
    try:
        with locked(folder, command) as lock, signals_wait():
            host.privilege.keep = (lock,)
            recover(host, folder)
    except HeldError as error:
        return error.holder
    except MachineError:
        return None  # the folder is not ours to use
    finally:
        host.privilege.keep = ()
    return None


def _of_this_boot(files: Files, path: Path) -> Journal | None:
    journal = Journal.load(path)
    return journal if journal is not None and journal.applied and journal.boot_id == boot_id(files) else None


def boot_id(files: Files) -> str:
    """Tells this boot of the machine from every other."""
    return files.read(BOOT_ID).value or ""


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
