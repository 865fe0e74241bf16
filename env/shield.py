"""The shield step: which CPUs are kept for the benchmark, by which of the backends, and whether they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from env import topology
from env.cpulist import format_list, parse_request
from env.errors import MachineError, UsageError
from env.journal import Entry
from env.shields.affinity import Affinity
from env.shields.backend import STEP, Backend, Plan, Present
from env.shields.cgroup2 import KINDS, Cgroup2
from env.shields.cset import Cset
from env.shields.systemd import Systemd
from env.step import Change, Host, State
from env.topology import Choice

# By preference: what the kernel guarantees, what a manager arranges, what is only asked.
BACKENDS: tuple[type[Cset | Cgroup2 | Systemd | Affinity], ...] = (
    Cset,
    Cgroup2,
    Systemd,
    Affinity,
)
NAMES = tuple(backend.name for backend in BACKENDS)


def choose(host: Host) -> Choice:
    """The bench CPUs: those of a shield of ours that stands, else those asked for or the best by topology."""
    wanted = host.wanted.cpus
    standing = _standing(backend(host) for backend in BACKENDS)
    if standing is not None and not _is_ours(host):  # another command measures there
        free = host.topology.allowed - frozenset(standing[1].cpus)
        return topology.choose(topology.with_allowed(host.topology, free or host.topology.allowed), wanted)
    if standing is not None and standing[1].cpus:
        present = standing[1]
        # The shell that calls us lives outside that shield, so its affinity no longer says what is allowed.
        whole = topology.with_allowed(host.topology, host.topology.online)
        if wanted is not None and topology.choose(whole, wanted).cpus != present.cpus:
            raise UsageError(
                f"--cpus {wanted}: CPU {present.text} is shielded already; run `python -m env restore` first,"
                " or leave --cpus out"
            )
        return topology.choose(whole, present.text)
    if wanted is not None:
        _refuse_taken(host, wanted)
    near = None
    if host.wanted.gpu is not None and wanted is None:
        near = topology.gpu_node(host.files, gpu_address(host.wanted.gpu, host.files.root))
    return topology.choose(host.topology, wanted, near=near)


def _refuse_taken(host: Host, wanted: str) -> None:
    """Name who holds CPUs that were asked for, where the kernel has taken them from everybody else."""
    asked = frozenset(parse_request(wanted))
    if asked <= host.topology.allowed or not asked <= host.topology.online:
        return
    obstacle = Cgroup2(host).obstacle(Plan(tuple(sorted(asked)), (), (), host.wanted.partition))
    if obstacle is not None:
        raise MachineError(f"--cpus {wanted}: {obstacle}")


def _is_ours(host: Host) -> bool:
    """Whether a shield that stands is for us: built by this command, or by `env apply` for all."""
    return host.journal is not None or host.standing is not None


def _standing(backends: Iterable[Backend]) -> tuple[Backend, Present] | None:
    for backend in backends:
        present = backend.present()
        if present is not None:
            return backend, present
    return None


class ShieldStep:
    """Keeps other work off the bench CPUs."""

    name = STEP
    lasting = True
    why = "other work on the same CPUs interrupts an iteration, and its cost lands in the measured time"

    def __init__(self, host: Host) -> None:
        self.host = host
        self.backends: dict[str, Backend] = {backend.name: backend(host) for backend in BACKENDS}
        self._unusable: dict[str, str | None] = {}
        self.refusal: str | None = None  # why the last `apply` did not build a shield
        if host.wanted.shield is not None and host.wanted.shield not in NAMES:
            raise UsageError(f"--shield {host.wanted.shield}: there is {', '.join(NAMES)}")
        if host.wanted.partition not in KINDS:
            raise UsageError(f"--partition {host.wanted.partition}: there is {' and '.join(KINDS)}")

    def plan_of(self, choice: Choice) -> Plan:
        """What a backend is asked to build."""
        return Plan(choice.cpus, choice.housekeeping, choice.mems, self.host.wanted.partition)

    def unusable(self, name: str) -> str | None:
        """Why a backend does not work here, asked once."""
        if name not in self._unusable:
            self._unusable[name] = self.backends[name].unusable()
        return self._unusable[name]

    def backend(self) -> Backend:
        """The backend that this machine gets: the one asked for, or the first that works."""
        if self.host.wanted.shield is not None:
            return self.backends[self.host.wanted.shield]
        standing = self.standing()
        if standing is not None:
            return standing[0]
        return next(self.backends[name] for name in NAMES if self.unusable(name) is None)

    def standing(self) -> tuple[Backend, Present] | None:
        """A shield of this program that stands, and whose it is."""
        return _standing(self.backends.values())

    def usable(self) -> tuple[Backend, Present] | None:
        """The standing shield if a worker of this command belongs inside: it is whole, and for us."""
        standing = self.standing()
        return standing if standing and not standing[1].problems and _is_ours(self.host) else None

    def probe(self) -> State:
        """What the kernel says of our shield; without one, whether one could be built."""
        choice = self.host.choice
        backend = self.backend()
        wanted = (
            f"CPU {choice.text} shielded ({backend.name})" if backend.shields else f"CPU {choice.text} pinned"
        )
        present = backend.present()
        source = present.detail if present else backend.name
        if present is not None and not present.problems and present.cpus == choice.cpus:
            return State(
                self.name, "stable", f"CPU {present.text} shielded ({backend.name})", wanted, source=source
            )
        current = "no shield" if present is None else f"CPU {present.text or 'none'}, {present.detail}"
        if present is not None and not _is_ours(self.host):
            held = f"another command holds CPU {present.text}; wait for it to end"
            return State(self.name, "locked", current, wanted, held, source)
        reason = self.refusal or choice.refusal or self._why_not(backend)
        if reason is not None:
            return State(self.name, "locked", current, wanted, reason, source)
        plan = self.plan_of(choice)
        obstacle = backend.obstacle(plan)
        if obstacle is not None:
            return State(self.name, "locked", current, wanted, obstacle, source)
        if present is not None and present.problems:
            return State(self.name, "unstable", current, wanted, "; ".join(present.problems), source)
        why = "other work may run on the bench CPUs; `apply` shields them while it holds"
        return State(self.name, "unstable", current, wanted, why, source)

    def _why_not(self, backend: Backend) -> str | None:
        if not backend.shields:
            reasons = [f"{name}: {why}" for name in NAMES if (why := self.unusable(name)) is not None]
            if self.host.wanted.shield == backend.name:
                return "pinned, not shielded, as asked: others may still run on these CPUs"
            return "pinned, not shielded: " + "; ".join(reasons)
        why = self.unusable(backend.name)
        if why is not None:
            return f"{backend.name}: {why}"
        if not self.host.privilege.available():
            return f"needs root; an administrator runs `python -m env apply --cpus {self.host.choice.text}`"
        return None

    def changes(self) -> list[Change]:
        """None: a shield is no plain write; it is journalled as an operation."""
        return []

    def plan(self) -> list[str]:
        """What `apply` would do, in a sentence."""
        state = self.probe()
        if state.status != "unstable":
            return []
        choice, backend = self.host.choice, self.backend()
        kind = f", a {self.host.wanted.partition} partition" if backend.name == Cgroup2.name else ""
        rest = format_list(choice.housekeeping)
        return [f"shield CPU {choice.text} by {backend.name}{kind}; the system keeps CPU {rest}"]

    def apply(self) -> None:
        """Build the shield unless it stands; what was half built is taken down again at once."""
        self.refusal = None
        if self.probe().status != "unstable":
            return
        backend = self.backend()
        noted = len(self._operations())
        try:
            backend.build(self.plan_of(self.host.choice))
        except MachineError as error:
            self.refusal = str(error)
            fresh = self._operations()[: len(self._operations()) - noted]
            problems = [problem for entry in fresh for problem in backend.teardown(entry.data)]
            if problems:
                self.refusal += f" ({'; '.join(problems)})"

    def _operations(self) -> list[Entry]:
        return self.host.journal.of(self.name, operations=True) if self.host.journal is not None else []

    def restore(self, before: Sequence[Entry]) -> list[str]:
        """Take down every shield that the journal notes, newest first."""
        drift: list[str] = []
        for entry in before:
            backend = self.backends.get(entry.op)
            if backend is not None:
                drift += backend.teardown(entry.data)
        return drift

    def adopt(self, pid: int) -> None:
        """Put a process with all its threads onto the bench CPUs, inside the shield where one stands."""
        plan = self.plan_of(self.host.choice)
        inside = self.usable()
        if inside is not None:
            inside[0].adopt(pid, plan)
        # The child comes with the mask of its parent, who stays off these CPUs.
        self.backends[Affinity.name].adopt(pid, plan)


def gpu_address(index: int, root: str = "/") -> str | None:
    """The PCI address of a GPU, as far as driver or bus tell it."""
    from env import gpu  # NVML takes its time to start; only those who name a GPU wait for it

    found = gpu.gpus(root).value or []
    return next((card.pci_bus_id for card in found if card.index == index), None)
