"""Plain affinity: the worker is pinned to its CPUs, and everybody else may still run there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from env.errors import MachineError
from env.shields.backend import Plan, Present
from env.step import Host
from env.tasks import pin


class Affinity:
    """Pinned, not shielded, and called that. Needs no privilege and changes no machine."""

    name = "affinity"
    shields = False

    def __init__(self, host: Host) -> None:
        self.host = host
        self.notes = ["pinned, not shielded: others may still run on these CPUs"]

    def unusable(self) -> str | None:
        """It works wherever there are processes."""
        return None

    def obstacle(self, plan: Plan) -> str | None:
        """Nothing is in the way of a mask."""

    def present(self) -> Present | None:
        """There is never anything to find."""
        return None

    def build(self, plan: Plan) -> None:
        """Nothing to build."""

    def adopt(self, pid: int, plan: Plan) -> None:
        """Pin every thread of the process."""
        if not self.host.files.real:
            return  # a tree has no processes of its own
        problems = pin(pid, plan.cpus)
        if problems:
            raise MachineError(f"{problems[0]}; choose other CPUs with --cpus")

    def teardown(self, _data: Mapping[str, Any]) -> list[str]:
        """Nothing to undo: a mask ends with its process."""
        return []
