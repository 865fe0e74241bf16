"""Which CPUs run, and which of them share a frequency policy."""

from __future__ import annotations

from dataclasses import dataclass

from env.cpulist import parse_list
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
    return [
        Policy(path, frozenset({n})) for n in sorted(running) if files.is_dir(path := f"{CPU}/cpu{n}/cpufreq")
    ]


def _members(files: Files, path: str) -> frozenset[int]:
    text = files.read(f"{path}/affected_cpus").text
    return frozenset(int(word) for word in text.split() if word.isdigit()) if text else frozenset()
