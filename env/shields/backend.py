"""What a way of shielding CPUs must offer, and the facts that pass between it and the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from env.cpulist import format_list

BENCH = "fastrnns-bench"  # our sets and groups bear these names, so that nobody takes them for another's
SYSTEM = "fastrnns-system"
STEP = "shield"  # the step's name in the journal; the operation is the backend's


@dataclass(frozen=True)
class Plan:
    """The shield that is wanted."""

    cpus: tuple[int, ...]
    housekeeping: tuple[int, ...]
    mems: tuple[int, ...] = (0,)
    kind: str = "root"  # of a cgroup v2 partition

    @property
    def text(self) -> str:
        """The bench CPUs as a kernel list."""
        return format_list(self.cpus)


@dataclass(frozen=True)
class Present:
    """A shield that stands, as the kernel describes it."""

    cpus: tuple[int, ...]
    detail: str = ""  # "partition root", "cpusets /fastrnns-bench and /fastrnns-system"
    problems: tuple[str, ...] = field(default_factory=tuple)  # what is not as it should be

    @property
    def text(self) -> str:
        """The CPUs as a kernel list."""
        return format_list(self.cpus)


class Backend(Protocol):
    """One way of keeping other work off the bench CPUs."""

    name: str
    shields: bool  # whether others are kept off, as against the worker being kept on
    notes: list[str]  # what is to be said about the shield that was built

    def unusable(self) -> str | None:
        """Why it cannot work on this machine, or None; reads only."""
        ...

    def obstacle(self, plan: Plan) -> str | None:
        """What of somebody else's stands in the way of this plan, or None; reads only."""
        ...

    def present(self) -> Present | None:
        """Our shield, if one stands; another's is never reported as ours."""
        ...

    def build(self, plan: Plan) -> None:
        """Build it, journalled; raises MachineError when the kernel does not confirm it."""
        ...

    def adopt(self, pid: int, plan: Plan) -> None:
        """Put a process with all its threads inside."""
        ...

    def teardown(self, data: Mapping[str, Any]) -> list[str]:
        """Take our shield down by what the journal noted; what could not be put back, in sentences."""
        ...
