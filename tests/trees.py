"""The machines of tests/trees/*.txt, in the notation of a bug report: `S/path=value !EPERM !EAGAIN(r)`.

`S/` is /sys/devices/system/cpu; a path that ends in a slash is an empty folder; `!NAME` is met by a write,
`!NAME(r)` by a read.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path

from env.sysfs import Failure, Files, Reading

TREES = Path(__file__).parent / "trees"
CPU = "/sys/devices/system/cpu"


@dataclass
class Faults:
    """What the kernel would refuse."""

    reads: dict[str, int] = field(default_factory=dict)
    writes: dict[str, int] = field(default_factory=dict)


def lay_out(folder: Path, name: str) -> Faults:
    """Write one machine below a folder; what cannot be files is returned."""
    faults = Faults()
    for line in (TREES / f"{name}.txt").read_text().splitlines():
        text, *marks = line.split(" !")
        where, _, value = text.partition("=")
        path = where.replace("S/", f"{CPU}/", 1) if where.startswith("S/") else f"/{where}"
        place = folder / path.lstrip("/")
        if where.endswith("/"):
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(value + "\n")
        for mark in marks:
            number = getattr(errno, mark.removesuffix("(r)"))
            (faults.reads if mark.endswith("(r)") else faults.writes)[path] = number
    for known, text in (("proc/sys/kernel/random/boot_id", "b007\n"), ("run/.keep", "")):
        (folder / known).parent.mkdir(parents=True, exist_ok=True)
        (folder / known).write_text(text)
    return faults


class FaultyFiles(Files):
    """The files of a tree, with the refusals of its kernel."""

    def __init__(self, root: str, faults: Faults) -> None:
        super().__init__(root, euid=0)
        self.faults = faults
        self.tried: list[str] = []

    def read(self, path: str) -> Reading:
        """Refused where the tree says so."""
        number = self.faults.reads.get(path)
        return super().read(path) if number is None else Reading(path, None, self.failure(path, number))

    def write(self, path: str, value: str) -> Failure | None:
        """Refused where the tree says so."""
        self.tried.append(path)
        number = self.faults.writes.get(path)
        return super().write(path, value) if number is None else self.failure(path, number, writing=True)

    def unwritable(self, path: str) -> Failure | None:
        """A read-only file system is known beforehand; other refusals are met."""
        number = self.faults.writes.get(path)
        if number == errno.EROFS:
            return self.failure(path, number, writing=True)
        return super().unwritable(path)
