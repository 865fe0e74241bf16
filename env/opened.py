"""One machine opened for a command: its steps, applied where that is asked for, and put back at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from env.privilege import Privilege
from env.shield import ShieldStep
from env.step import Host, Wanted
from env.sysfs import Files


@dataclass
class Opened:
    """A host under a command, and afterwards what of it could not be put back, in sentences."""

    host: Host
    left: list[str] = field(default_factory=list)

    def states(self) -> list[dict[str, Any]]:
        """Every step as it reads now: the rows of `check --json`."""
        return [ShieldStep(self.host).probe().as_dict()]


@contextlib.contextmanager
def opened(root: str, wanted: Wanted, *, mode: str, command: str) -> Iterator[Opened]:
    """The machine, for the length of the body."""
    del mode, command
    files = Files(root)
    host = Host(files, Privilege(files), wanted)
    try:
        yield Opened(host)
    finally:
        host.privilege.close()
