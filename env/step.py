"""What a step of the machine is: its state, the changes it would make, and the host that it works on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from env.sysfs import Failure, Files

if TYPE_CHECKING:
    from env.journal import Entry, Journal
    from env.privilege import Privilege
    from env.topology import Choice, Topology

Status = Literal["stable", "unstable", "locked", "unavailable", "unknown"]


@dataclass(frozen=True)
class State:
    """What one step found: the row of `check --json`. Everything but `stable` carries a reason."""

    name: str
    status: Status
    current: str | None = None
    wanted: str | None = None
    reason: str = ""
    source: str = ""

    def __post_init__(self) -> None:
        if self.status != "stable" and not self.reason:
            raise ValueError(f"step {self.name} is {self.status} without a reason")

    def as_dict(self) -> dict[str, Any]:
        """The JSON of one step, exactly DESIGN's keys."""
        return {
            "name": self.name,
            "status": self.status,
            "current": self.current,
            "wanted": self.wanted,
            "reason": self.reason,
            "source": self.source,
        }


@dataclass(frozen=True)
class Change:
    """One write that a step would make. `old` is the file's chosen word as read, never a guess.

    `new` None marks a value that is not written but may be dragged along by the write to `rides_on`;
    it is put back after that one is.
    """

    step: str
    path: str
    old: str
    new: str | None
    rides_on: str | None = None


@dataclass(frozen=True)
class Wanted:
    """What the caller asks of the machine."""

    cpus: str | None = None  # bench CPUs as typed; None lets the topology choose
    skip: frozenset[str] = frozenset()  # steps left alone
    gpu: int | None = None
    shield: str | None = None  # backend by name; None takes the best that the machine has
    partition: str = "root"  # kind of cgroup v2 partition: root | isolated
    thp: str | None = None  # these are recorded only, unless asked
    numa_balancing: str | None = None
    swappiness: str | None = None
    sampling: bool = False  # a profiler is to sample: the perf limit is raised, not lowered
    gpu_clocks: str | None = None  # `base` or MHz to lock the GPU's clocks at; None leaves them to the driver
    cap_frequency: bool = False  # where there is no turbo switch
    latency_us: int = 0  # the wake-up latency that C-states may cost while the machine is held

    @property
    def of_its_own(self) -> bool:
        """Whether a command asks for something beside what an `env apply` may have set, to be undone at its end."""
        return self.sampling or self.gpu_clocks is not None


@dataclass
class Host:
    """One machine under our hands: its files, what may be done as root, what was asked, who records it."""

    files: Files
    privilege: Privilege
    wanted: Wanted = field(default_factory=Wanted)
    journal: Journal | None = None  # set while applying; steps record in it before they touch anything
    standing: Journal | None = None  # of an `env apply` whose settings stand; ours to rely on, not to undo
    holding: bool = False  # a living process holds the machine (bench, run), as against `apply` that ends
    refused: dict[str, Failure] = field(default_factory=dict)  # writes that failed, by path

    @cached_property
    def topology(self) -> Topology:
        """The CPUs of the machine; read once."""
        from env import topology  # it stands above this module

        return topology.read(self.files)

    @cached_property
    def choice(self) -> Choice:
        """The bench CPUs: of a shield of ours, those asked for, or the best. UsageError for impossible ones."""
        from env import shield  # it stands above this module

        return shield.choose(self)

    @property
    def bench(self) -> tuple[int, ...]:
        """The CPUs that will be measured on."""
        return self.choice.cpus

    def write(self, path: str, value: str) -> Failure | None:
        """Write a value, through the privileged helper where we are not root; remembers refusals."""
        failure = self.privilege.write(path, value)
        if failure is None:
            self.refused.pop(path, None)
        else:
            self.refused[path] = failure
        return failure

    def unwritable(self, path: str) -> Failure | None:
        """Why a write will fail: known beforehand, or met before."""
        return self.refused.get(path) or self.privilege.unwritable(path)


class Step(Protocol):
    """One knob of the machine."""

    name: str

    @property
    def why(self) -> str:
        """One line: what it does to the numbers."""
        ...

    @property
    def lasting(self) -> bool:
        """Whether `apply` outlives the process that applied (else only a held machine has it)."""
        ...

    def probe(self) -> State:
        """Read only."""
        ...

    def changes(self) -> list[Change]:
        """What `apply` would write now, with the values to come back to; empty when nothing is to do.

        Asked of every step before the first write, because one write may drag another file along.
        Values that are already right are listed too (old == new) where another step may disturb them.
        """
        ...

    def plan(self) -> list[str]:
        """What `apply` would do, in sentences, for --dry-run."""
        ...

    def apply(self) -> None:
        """Idempotent. Failures show in the next probe; only a broken journal raises."""
        ...

    def restore(self, before: Sequence[Entry]) -> list[str]:
        """Put back what this step's own journal entries (other than plain writes) say was there.

        Called with the entries newest first. Returns what could not be put back (drift), in sentences.
        """
        ...
