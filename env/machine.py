"""The machine as one thing: all steps in order, checked, applied for a command or until `restore`, and put back."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from env.errors import MachineError
from env.helper import RefusedError
from env.journal import BOOT_ID, Entry, Journal, JournalError, Kind
from env.knob import reversible
from env.lock import HeldError, holder, locked
from env.owner import Owner
from env.places import Place, places, writable
from env.privilege import Privilege
from env.shield import ShieldStep
from env.signals import signals_wait
from env.step import Host, Step, Wanted
from env.sysfs import Failure, Files

SETUP, HOLD = "setup.jsonl", "hold.jsonl"
# Without these three nothing is known of the clock and of who else runs: unavailable is as bad as unstable.
ESSENTIAL = frozenset({"governor", "turbo", "shield"})
# What lasts only as long as a process holds it, so that a machine that waits for one is not unstable for it.
HELD_ONLY = frozenset({"cstate"})
NAMES = (
    "governor",
    "turbo",
    "shield",
    "smt",
    "irq",
    "perf",
    "cstate",
    "power",
    "thp",
    "numa",
    "swap",
    "aslr",
    "gpu",
)


def steps(host: Host) -> list[Step]:
    """All steps in their order: some governors reset the turbo switch."""
    from env import aslr, cstate, governor, gpu_clocks, irq, numa, perf, power, smt, swap, thp, turbo

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
        gpu_clocks.GpuClocks(host),
    ]
    return [step for step in every if step.name not in host.wanted.skip]


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
    where = places(files, host.privilege)
    with contextlib.ExitStack() as stack:
        stack.callback(host.privilege.close)
        host.standing = _of_this_boot(files, where)
        if host.standing is not None:
            host.refused |= known_refusals(files, host.standing)
        if mode != "apply":
            held_by, left = recover_unless_held(host, where)
            yield Opened(host, steps(host), left, holder=held_by)
            return
        host.privilege.keep = (stack.enter_context(locked(files)),)
        signals = stack.enter_context(signals_wait())
        left = recover(host, where)
        host.holding = True
        found = Opened(host, steps(host), left)
        if host.standing is None or wanted.of_its_own:
            host.journal = _fresh(files, where, "hold", command)
        try:
            with signals.come():
                if host.standing is None:
                    apply(found)
                else:  # `env apply` did the lasting part
                    for step in found.steps:
                        if not step.lasting:
                            step.apply()
                yield found
        finally:
            if host.journal is not None:
                found.left += restore(host, found.steps, host.journal)
                host.journal = None


def apply(found: Opened) -> None:
    """Bring every step to what is wanted; all plain writes are on disk before the first of them."""
    journal = found.host.journal
    if journal is not None:
        journal.record(reversible(change for step in found.steps for change in step.changes()))
    for step in found.steps:
        step.apply()


def restore(host: Host, every: Sequence[Step], journal: Journal) -> list[str]:
    """Undo what a journal notes, newest first, only where ours still stands; then the journal goes."""
    host.files.sweep()
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
        try:
            failure = host.privilege.write(entry.path, entry.old)
        except RefusedError as error:
            left.append(f"{entry.path} could not be put back: {error}")
            continue
        if failure is not None:
            left.append(f"{entry.path} could not be put back to {entry.old}: {failure.reason}")
    journal.remove()
    return left


def recover(host: Host, where: Sequence[Place]) -> list[str]:
    """Undo what a killed command left; a machine that was rebooted has forgotten it by itself.

    A killed `env apply` (its journal is not marked applied) is undone as a whole, what an earlier one had set too.
    Returns what could not be put back, in sentences.
    """
    left: list[str] = []
    boot = boot_id(host.files)
    for place in where:
        for name in (HOLD, SETUP):
            journal = Journal.load(place.folder / name, place.disk)
            if journal is None or (name == SETUP and journal.applied and journal.boot_id == boot):
                continue
            if not place.disk.available():
                if journal.boot_id == boot:
                    undo = "`sudo python -m env restore` undoes it"
                    left.append(f"what {journal.owner} changed is still in force; {undo}")
                continue
            if journal.boot_id != boot:
                journal.remove()
                continue
            host.privilege.settle()
            left += restore(host, steps(host), journal)
        with contextlib.suppress(OSError):
            place.folder.rmdir()  # only when it is empty: a command was killed before its first word
    return left


def recover_unless_held(host: Host, where: Sequence[Place]) -> tuple[str | None, list[str]]:
    """Undo what a killed command left, unless another holds the machine now: then it is named."""
    now = holder(host.files)
    if now is not None:
        return now, []
    if not any(_unfinished(place) for place in where):
        return None, []
    try:
        with locked(host.files) as lock, signals_wait():
            host.privilege.keep = (lock,)
            return None, recover(host, where)
    except HeldError as error:
        return error.holder, []
    finally:
        host.privilege.keep = ()


def known_refusals(files: Files, journal: Journal) -> dict[str, Failure]:
    """The writes that the kernel refused when the settings that stand were applied."""
    return {path: files.failure(path, number, writing=True) for path, number in journal.refusals.items()}


def _unfinished(place: Place) -> bool:
    journal = Journal.load(place.folder / SETUP, place.disk)
    if journal is None:
        return place.folder.exists()  # with a journal of a held machine, or empty
    return not journal.applied or (place.folder / HOLD).exists()


def _of_this_boot(files: Files, where: Sequence[Place]) -> Journal | None:
    """The journal of an `env apply` whose settings stand."""
    boot = boot_id(files)
    for place in where:
        journal = Journal.load(place.folder / SETUP, place.disk)
        if journal is not None and journal.applied and journal.boot_id == boot:
            return journal
    return None


def _must_be_writable(journal: Journal) -> None:
    if not journal.disk.available():
        raise MachineError(
            f"{journal.owner} set this machine up as root, and only root can change that; "
            "run `sudo python -m env restore`"
        )


def _fresh(files: Files, where: Sequence[Place], kind: Kind, command: str) -> Journal:
    place = writable(where)
    path = place.folder / (HOLD if kind == "hold" else SETUP)
    return Journal.create(path, kind, Owner.me(command), boot_id(files), place.disk)


def boot_id(files: Files) -> str:
    """Tells this boot of the machine from every other."""
    return files.read(BOOT_ID).value or ""


def amiss(states: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps for which a machine cannot be called stable.

    The essential ones must be known and right; of the others, one that this machine does not have is no fault.
    """
    wrong = [
        row
        for row in states
        if row["status"] != "stable"
        and (row["name"] in ESSENTIAL or row["status"] != "unavailable")
        and row["name"] not in HELD_ONLY
    ]
    present = {row["name"] for row in states}
    skipped = [
        {
            "name": name,
            "status": "unknown",
            "current": None,
            "wanted": None,
            "reason": "left out",
            "source": "",
        }
        for name in sorted(ESSENTIAL - present)
    ]
    return wrong + skipped


def overall(states: Sequence[dict[str, Any]]) -> str:
    """`stable` only where every essential step is known to be right and no other is wrong."""
    return "unstable" if amiss(states) else "stable"


@dataclass(frozen=True)
class Outcome:
    """What `apply` or `restore` did: the steps before and after, and in sentences what could not be done."""

    before: list[dict[str, Any]]
    after: list[dict[str, Any]]
    left: list[str]
    notes: list[str] = field(default_factory=list)


def check(root: str = "/", wanted: Wanted | None = None) -> Outcome:
    """Every step as it reads now. What a killed command left is repaired first; nothing else is written."""
    with opened(root, wanted or Wanted(), mode="check", command="env check") as found:
        states = found.states()
        notes = [f"the machine is held by {found.holder}"] if found.holder is not None else []
        if found.host.privilege.denied and any(row["status"] == "locked" for row in states):
            notes.append(f"what is locked {found.host.privilege.denied}")
        return Outcome(states, states, found.left, notes)


def setup(root: str = "/", wanted: Wanted | None = None) -> Outcome:
    """Bring the machine into its stable state until `put_back` or a reboot. Idempotent: the first `old` is kept.

    Raises MachineError when another command holds the machine, JournalError when the journal cannot be written;
    then nothing (more) is changed. An interruption puts everything back.
    """
    files = Files(root)
    host = Host(files, Privilege(files), wanted or Wanted())
    where = places(files, host.privilege)
    with contextlib.ExitStack() as stack:
        stack.callback(host.privilege.close)
        host.privilege.keep = (stack.enter_context(locked(files)),)
        signals = stack.enter_context(signals_wait())
        left = recover(host, where)
        every = steps(host)
        journal = _of_this_boot(files, where)
        if journal is None:
            journal = _fresh(files, where, "setup", "env apply")
        else:
            _must_be_writable(journal)
            journal.mark("applying")
        host.standing = host.journal = journal
        try:
            with signals.come():
                before = [step.probe().as_dict() for step in every]
                apply(Opened(host, every))
                after = [step.probe().as_dict() for step in every]
            journal.refuse({path: failure.errno for path, failure in host.refused.items()})
            journal.mark("applied")
        except BaseException:
            restore(host, every, journal)
            raise
        if not journal.entries:
            journal.remove()  # there was nothing that we may change, so there is nothing to put back
    return Outcome(before, after, left)


def intentions(root: str = "/", wanted: Wanted | None = None) -> list[tuple[str, str]]:
    """What `setup` would do, as (step, sentence); nothing is changed."""
    with opened(root, wanted or Wanted(), mode="check", command="env apply --dry-run") as found:
        return [(step.name, sentence) for step in found.steps for sentence in step.plan()]


def put_back(root: str = "/") -> Outcome:
    """Undo `setup`, and whatever a killed command left. Nothing to undo is no error."""
    files = Files(root)
    host = Host(files, Privilege(files), Wanted())
    where = places(files, host.privilege)
    notes: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.callback(host.privilege.close)
        host.privilege.keep = (stack.enter_context(locked(files)),)
        stack.enter_context(signals_wait())
        for path in (place.folder / name for place in where for name in (HOLD, SETUP)):
            stale = Journal.load(path)
            if stale is not None and stale.boot_id != boot_id(files):
                notes.append("the machine was rebooted since, which put everything back by itself")
        left = recover(host, where)
        host.standing = _of_this_boot(files, where)
        before = [step.probe().as_dict() for step in steps(host)]
        if host.standing is not None:
            _must_be_writable(host.standing)
            journal, host.journal = host.standing, host.standing
            with contextlib.suppress(JournalError):  # a full disk is no reason to leave the machine as it is
                journal.mark("applying")  # killed from here on, the next command goes on with it
            left += restore(host, steps(host), journal)
            host.journal = host.standing = None
        else:
            notes.append("there is nothing of ours to put back")
        afterwards = Host(files, host.privilege, Wanted())
        after = [step.probe().as_dict() for step in steps(afterwards)]
    return Outcome(before, after, left, notes)
