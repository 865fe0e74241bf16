"""Which CPUs the machine has, how they belong together, and which of them a benchmark may have."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from env.cpulist import format_list, parse_list, parse_request
from env.sysfs import CPU, Files

NODES = "/sys/devices/system/node"

# The system keeps one core in eight, and one at least: parent, watch, interrupts and daemons live there.
CORES_PER_HOUSEKEEPING_CORE = 8

# An efficiency core of a hybrid ARM machine has about half the capacity of the large one; boards with
# several bins of the same core differ by a few per cent.
SAME_CLASS_CAPACITY = 0.85


@dataclass(frozen=True)
class Topology:
    """The CPUs of one machine, as its kernel describes them."""

    online: frozenset[int]
    allowed: frozenset[int]  # what this process may use: its affinity, which no cpuset of ours may exceed
    siblings: Mapping[int, frozenset[int]]  # cpu -> the online threads of its core, itself included
    nodes: Mapping[int, frozenset[int]]  # NUMA node -> its online CPUs; empty where the kernel has no NUMA
    classes: Mapping[int, str]  # cpu -> "performance" | "efficiency" | "uniform" | "unknown"
    isolated: frozenset[int] = field(default_factory=frozenset)  # isolcpus= of the kernel command line

    @property
    def cores(self) -> tuple[frozenset[int], ...]:
        """The cores in the order of their first CPU."""
        return tuple(sorted(set(self.siblings.values()), key=min))

    def node_of(self, cpu: int) -> int | None:
        """The NUMA node of a CPU, or None."""
        return next((node for node, cpus in self.nodes.items() if cpu in cpus), None)

    def nodes_of(self, cpus: Iterable[int]) -> tuple[int, ...]:
        """The NUMA nodes that a set of CPUs touches; node 0 where the kernel has no NUMA."""
        found = {self.node_of(cpu) for cpu in cpus} - {None}
        return tuple(sorted(node for node in found if node is not None)) or (0,)


@dataclass(frozen=True)
class Choice:
    """The CPUs a benchmark gets, those the rest of the system keeps, and what is to be said about them."""

    cpus: tuple[int, ...]
    housekeeping: tuple[int, ...]
    mems: tuple[int, ...]
    classes: tuple[str, ...] = ()  # the class of each of `cpus`, in order
    warnings: tuple[str, ...] = ()
    refusal: str | None = None  # why no shield is possible here; `cpus` may still serve for pinning

    @property
    def text(self) -> str:
        """The CPUs as a kernel list."""
        return format_list(self.cpus)


def _cpus(files: Files, path: str) -> frozenset[int]:
    text = files.read(path).value
    try:
        return parse_list(text or "")
    except ValueError:
        return frozenset()


def _online(files: Files) -> frozenset[int]:
    listed = _cpus(files, f"{CPU}/online")
    if listed:
        return listed
    folders = [path for path in files.glob(CPU, "cpu[0-9]*") if path[len(CPU) + 4 :].isdigit()]
    found = frozenset(
        int(path[len(CPU) + 4 :]) for path in folders if files.read(f"{path}/online").value != "0"
    )
    if found:
        return found
    return frozenset(os.sched_getaffinity(0)) if files.real else frozenset({0})


def _allowed(files: Files, online: frozenset[int]) -> frozenset[int]:
    if files.real:
        return frozenset(os.sched_getaffinity(0)) & online or online
    for line in (files.read("/proc/self/status").text or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            try:
                return parse_list(line.partition(":")[2]) & online or online
            except ValueError:
                break
    return online


def _classes(files: Files, online: frozenset[int]) -> dict[int, str]:
    """The class of every CPU; what the kernel does not say is "unknown", never guessed from a frequency."""
    fast = _cpus(files, "/sys/devices/cpu_core/cpus") & online
    slow = _cpus(files, "/sys/devices/cpu_atom/cpus") & online
    if fast and slow:
        return {
            cpu: "performance" if cpu in fast else "efficiency" if cpu in slow else "unknown"
            for cpu in online
        }
    capacity = {cpu: files.read(f"{CPU}/cpu{cpu}/cpu_capacity").number for cpu in online}
    known = [value for value in capacity.values() if value is not None]
    if known and len(known) == len(online):
        edge = max(known) * SAME_CLASS_CAPACITY
        if min(known) >= edge:
            return dict.fromkeys(online, "uniform")
        return {
            cpu: "performance" if (value or 0) >= edge else "efficiency" for cpu, value in capacity.items()
        }
    limits = {files.read(f"{CPU}/cpu{cpu}/cpufreq/cpuinfo_max_freq").value for cpu in online}
    return dict.fromkeys(online, "uniform" if len(limits) == 1 else "unknown")


def read(files: Files) -> Topology:
    """Describe the machine."""
    online = _online(files)
    siblings: dict[int, frozenset[int]] = {}
    for cpu in sorted(online):
        if cpu in siblings:
            continue
        listed = _cpus(files, f"{CPU}/cpu{cpu}/topology/thread_siblings_list")
        group = (listed & online) | {cpu}
        for member in group:
            siblings.setdefault(member, group)
    nodes = {
        int(path[len(NODES) + 5 :]): _cpus(files, f"{path}/cpulist") & online
        for path in files.glob(NODES, "node[0-9]*")
        if path[len(NODES) + 5 :].isdigit()
    }
    return Topology(
        online=online,
        allowed=_allowed(files, online),
        siblings=siblings,
        nodes={node: cpus for node, cpus in nodes.items() if cpus},
        classes=_classes(files, online),
        isolated=_cpus(files, f"{CPU}/isolated"),
    )


def with_allowed(topology: Topology, cpus: frozenset[int]) -> Topology:
    """The same machine, with other CPUs allowed."""
    return replace(topology, allowed=cpus)


def gpu_node(files: Files, pci_address: str | None) -> int | None:
    """The NUMA node near a GPU, by its PCI address; None where the machine does not say."""
    if not pci_address:
        return None
    # NVML writes the domain with eight digits, sysfs with four.
    domain, _, rest = pci_address.lower().partition(":")
    address = f"{domain[-4:]}:{rest}"
    node = files.read(f"/sys/bus/pci/devices/{address}/numa_node").number
    return node if node is not None and node >= 0 else None  # -1: the firmware does not say


def choose(topology: Topology, cpus: str | None = None, *, near: int | None = None) -> Choice:
    """The CPUs for a benchmark: those asked for, validated, or the best by topology."""
    return _asked(topology, cpus) if cpus is not None else _best(topology, near)


def _asked(topology: Topology, text: str) -> Choice:
    wanted = frozenset(parse_request(text, topology.allowed))
    warnings = []
    for core in topology.cores:
        missing = core - wanted
        if missing and core & wanted:
            warnings.append(
                f"core {format_list(core)} is split: CPU {format_list(missing)} stays outside and shares"
                f" its execution units with CPU {format_list(core & wanted)}"
            )
    rest = topology.allowed - wanted
    refusal = None
    if not any(core <= rest for core in topology.cores):
        refusal = (
            f"CPU {format_list(wanted)} would leave no whole core for the rest of the system;"
            " leave one core out of --cpus, or pin only, with `taskset`"
        )
    return _finish(topology, wanted, warnings, refusal)


def _best(topology: Topology, near: int | None) -> Choice:
    whole = [core for core in topology.cores if core <= topology.allowed]
    free = [core for core in whole if not core & topology.isolated] or whole
    warnings: list[str] = []
    if not whole:
        return _finish(topology, topology.allowed, ["no whole core is allowed to this process"], _ONE_CORE)
    if len(whole) == 1:
        return _finish(topology, whole[0], [], _ONE_CORE)
    fast = [core for core in free if all(topology.classes.get(cpu) == "performance" for cpu in core)]
    candidates = fast or free
    by_node: dict[int | None, list[frozenset[int]]] = {}
    for core in candidates:
        by_node.setdefault(topology.node_of(min(core)), []).append(core)
    if near is not None and near not in by_node:
        warnings.append(f"no free core is on NUMA node {near}, the one near the GPU")
    # Most cores first; on equal terms the later node, because the boot CPU's node carries the system's work.
    node = (
        near
        if near in by_node
        else max(by_node, key=lambda key: (len(by_node[key]), -1 if key is None else key))
    )
    chosen = by_node[node]
    keep = max(1, len(whole) // CORES_PER_HOUSEKEEPING_CORE)
    spare = len(whole) - len(chosen)
    if spare < keep:  # the lowest cores stay with the system: the boot CPU cannot give up all of its work
        chosen = chosen[min(keep - spare, len(chosen) - 1) :]
    return _finish(topology, frozenset().union(*chosen), warnings, None)


_ONE_CORE = (
    "only one whole core is free: none would be left for the rest of the system; pin only, with `taskset`"
)


def _finish(topology: Topology, cpus: frozenset[int], warnings: list[str], refusal: str | None) -> Choice:
    ordered = tuple(sorted(cpus))
    classes = tuple(topology.classes.get(cpu, "unknown") for cpu in ordered)
    if len(set(classes)) > 1:
        warnings.append(f"CPU {format_list(ordered)} mixes core classes ({', '.join(sorted(set(classes)))})")
    nodes = topology.nodes_of(ordered)
    if len(nodes) > 1:
        warnings.append(f"CPU {format_list(ordered)} spans NUMA nodes {format_list(nodes)}")
    held = cpus & topology.isolated
    if held:
        warnings.append(
            f"CPU {format_list(held)} is in isolcpus=: the kernel does not balance threads there,"
            " so bind each thread or use one"
        )
    return Choice(
        cpus=ordered,
        housekeeping=tuple(sorted(topology.allowed - cpus)),
        mems=nodes,
        classes=classes,
        warnings=tuple(warnings),
        refusal=refusal,
    )


def sibling_closure(topology: Topology, cpus: Iterable[int]) -> frozenset[int]:
    """The CPUs together with every online thread of their cores: what a frequency setting must cover."""
    chosen = frozenset(cpus)
    return chosen.union(*(topology.siblings.get(cpu, frozenset()) for cpu in chosen))
