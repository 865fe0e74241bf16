"""Which CPUs the machine has and runs, and which of them share a core or a frequency policy."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from env.cpulist import format_list, parse_list
from env.errors import UsageError
from env.sysfs import CPU, Files


def numbered(files: Files) -> list[int]:
    """The cpuN folders there are, in order; `cpufreq` and `cpuidle` are none."""
    names = (name[3:] for name in files.names(CPU) if name.startswith("cpu"))
    return sorted(int(name) for name in names if name.isdigit())


def listed(files: Files, name: str) -> frozenset[int] | None:
    """The CPUs of one of the kernel's lists (`online`, `present`, ...); None when it cannot be read."""
    text = files.read(f"{CPU}/{name}").text
    if text is None:
        return None
    try:
        return parse_list(text)
    except ValueError:
        return None


def online(files: Files) -> frozenset[int]:
    """The CPUs that run. Without the kernel's list: those not switched off (cpu0 has no switch)."""
    known = listed(files, "online")
    if known:
        return known
    return frozenset(n for n in numbered(files) if files.read(f"{CPU}/cpu{n}/online").value != "0")


def siblings(files: Files, cpu: int) -> frozenset[int]:
    """The CPUs of one core, as far as they run; the CPU alone when the kernel does not say."""
    for name in ("core_cpus_list", "thread_siblings_list"):
        text = files.read(f"{CPU}/cpu{cpu}/topology/{name}").text
        if text:
            try:
                group = parse_list(text)
            except ValueError:
                continue
            if cpu in group:
                return group
    return frozenset({cpu})


def whole_cores(files: Files, cpus: Iterable[int]) -> frozenset[int]:
    """These CPUs with the running siblings of their cores."""
    wanted = frozenset(cpus)
    every = frozenset().union(*(siblings(files, cpu) for cpu in wanted)) if wanted else frozenset()
    return (every & online(files)) | wanted


def check_leaves_a_core(bench: Collection[int], running: Collection[int], cores: Iterable[Collection[int]]) -> None:
    """Refuse a choice of bench CPUs that leaves the system no whole core."""
    if any(core and not set(core) & set(bench) for core in (set(c) & set(running) for c in cores)):
        return
    raise UsageError(
        f"CPUs {format_list(bench)} leave the system no whole core of {format_list(running)}; "
        "choose fewer, or pin only with --shield affinity"
    )


@dataclass(frozen=True)
class Policy:
    """One cpufreq policy: CPUs whose frequency is set together."""

    path: str
    cpus: frozenset[int]


def policies(files: Files, running: frozenset[int]) -> list[Policy]:
    """The policies of the CPUs that run; by `cpufreq/policyN`, else by `cpuN/cpufreq` (the older layout)."""
    found = []
    for path in files.glob(f"{CPU}/cpufreq", "policy[0-9]*"):
        number = path.rpartition("policy")[2]
        members = _members(files, path) or frozenset({int(number)} if number.isdigit() else ())
        if members & running:
            found.append(Policy(path, members & running))
    if found:
        return found
    return [Policy(path, frozenset({n})) for n in sorted(running) if files.is_dir(path := f"{CPU}/cpu{n}/cpufreq")]


def _members(files: Files, path: str) -> frozenset[int]:
    text = files.read(f"{path}/affected_cpus").text
    return frozenset(int(word) for word in text.split() if word.isdigit()) if text else frozenset()
