"""What steps that are kernel files have in common: writing journalled values, and saying what stands in the way."""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from env.cpulist import format_list
from env.helper import RefusedError, check_write
from env.journal import Entry
from env.step import Change, Host, State, Status
from env.sysfs import Failure, Reading


class Knob:
    """A step whose setting is one or more kernel files; subclasses say which, and what they mean."""

    name = ""
    why = ""
    lasting = True

    def __init__(self, host: Host) -> None:
        self.host = host

    def probe(self) -> State:
        """Read only."""
        raise NotImplementedError

    def changes(self) -> list[Change]:
        """The writes that are missing; none for a step that only records."""
        return []

    def plan(self) -> list[str]:
        """One sentence a kind of write, not one a CPU."""
        kinds: Counter[tuple[str, str]] = Counter()
        folders: dict[tuple[str, str], str] = {}
        for change in self.changes():
            if change.new is not None and change.new != change.old:
                name = change.path.rpartition("/")[2]
                kinds[name, change.new] += 1
                folders.setdefault((name, change.new), change.path)
        return [
            f"write {new} to {folders[name, new]}" + (f" and {count - 1} more" if count > 1 else "")
            for (name, new), count in kinds.items()
        ]

    def apply(self) -> None:
        """Write what is missing, each value recorded before."""
        changes = reversible(self.changes())
        if self.host.journal is not None:
            self.host.journal.record(changes)
        for change in changes:
            if change.new is not None and self.host.files.read(change.path).word != change.new:
                self.host.write(change.path, change.new)

    def restore(self, before: Sequence[Entry]) -> list[str]:
        """Plain writes are put back for all steps alike; there is nothing else."""
        del before
        return []

    def state(
        self, status: Status, current: str | None, wanted: str | None, reason: str = "", source: str = ""
    ) -> State:
        """A state under this step's name."""
        return State(self.name, status, current, wanted, reason, source)

    def unmet(  # noqa: PLR0917 - a sentence's parts, in its order
        self, paths: Sequence[str], current: str, wanted: str, what: str, source: str, remedy: str
    ) -> State:
        """The state where `paths` do not hold what is wanted: ours to change, or why not."""
        failures = [failure for path in paths if (failure := self.host.unwritable(path))]
        if not failures:
            return self.state("unstable", current, wanted, what, source)
        return self.state(
            "locked", current, wanted, f"{what}; {blocked(failures, len(paths), remedy)}", source
        )

    def unreadable(self, failure: Failure, wanted: str | None, source: str) -> State:
        """The state where the files are there and will not be read."""
        return self.state("unknown", None, wanted, f"{failure.path} cannot be read: {failure.reason}", source)


def reversible(changes: Iterable[Change]) -> list[Change]:
    """The changes that can be undone: a value that may not be written back is not overwritten."""
    safe = []
    for change in changes:
        try:
            check_write(change.path, change.old)
        except RefusedError:
            continue
        safe.append(change)
    return safe


def blocked(failures: Sequence[Failure], of: int, remedy: str) -> str:
    """One sentence for all refusals of one step, with what an administrator would do."""
    first = failures[0]
    share = "" if len(failures) == of else f" ({len(failures)} of {of} files)"
    if (
        first.errno in {errno.EACCES, errno.EPERM}
        and "root" in first.reason
        and "although" not in first.reason
    ):
        return f"{first.reason}{share}: {remedy}"
    return f"{first.reason} ({first.code}){share}"


def summary(values: Mapping[int, str]) -> str:
    """What CPUs have, most common first: `powersave`, or `powersave (0-2), schedutil (3)`."""
    groups: dict[str, list[int]] = {}
    for cpu, value in values.items():
        groups.setdefault(value, []).append(cpu)
    if len(groups) == 1:
        return next(iter(groups))
    ordered = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return ", ".join(f"{value} ({format_list(cpus)})" for value, cpus in ordered)


def first_failure(readings: Iterable[Reading]) -> Failure | None:
    """The first reading that failed for another reason than a missing file."""
    return next((r.failure for r in readings if r.failure is not None and not r.missing), None)
