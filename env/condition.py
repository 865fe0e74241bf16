"""How the machine stands now: its settings, which count, and what wanders, which is only written down."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from env import probes
from env.cpulist import format_list, parse_list
from env.hardware import meminfo_kib
from env.sysfs import CPU, Files

# Boot parameters that change timings. An allow-list: command lines also hold addresses and names.
_BOOT = """
    isolcpus nohz_full rcu_nocbs mitigations nosmt maxcpus nr_cpus intel_pstate amd_pstate
    cpufreq.default_governor processor.max_cstate intel_idle.max_cstate idle cpuidle.off
    transparent_hugepage hugepages hugepagesz default_hugepagesz
    numa_balancing preempt clocksource tsc skew_tick pti nopti spectre_v2
    spec_store_bypass_disable retbleed irqaffinity kthread_cpus threadirqs
    cgroup_no_v1 systemd.unified_cgroup_hierarchy"""
BOOT_PARAMETERS = frozenset(_BOOT.split())
SETTINGS = {
    "transparent_hugepage": "/sys/kernel/mm/transparent_hugepage/enabled",
    "transparent_hugepage_defrag": "/sys/kernel/mm/transparent_hugepage/defrag",
    "numa_balancing": "/proc/sys/kernel/numa_balancing",
    "randomize_va_space": "/proc/sys/kernel/randomize_va_space",
    "clocksource": "/sys/devices/system/clocksource/clocksource0/current_clocksource",
    "smt": f"{CPU}/smt/control",
    "cpus_online": f"{CPU}/online",
    "cpus_isolated": f"{CPU}/isolated",
    "swappiness": "/proc/sys/vm/swappiness",
    "cpuidle_driver": f"{CPU}/cpuidle/current_driver",
}
POLICY_FILES = ("scaling_driver", "scaling_governor", "energy_performance_preference", "boost")


def condition(
    files: Files,
    errors: dict[str, str],
    steps: list[dict[str, Any]] | None,
    *,
    frequency: Callable[[], probes.Answer] = probes.cpu_frequency,
    temperatures: Callable[[], probes.Answer] = probes.temperatures,
) -> dict[str, Any]:
    """The state part of a fingerprint: `steps` and `settings` enter its id, `wandering` does not."""
    return {
        "steps": {
            step["name"]: {"status": step["status"], "current": step["current"]} for step in steps or []
        },
        "settings": settings(files),
        "wandering": wandering(files, errors, frequency, temperatures),
    }


def settings(files: Files) -> dict[str, Any]:
    """What is set on the machine and changes timings, read only."""
    found: dict[str, Any] = {name: files.read(path).word or None for name, path in SETTINGS.items()}
    found["boot"] = boot_parameters(files.read("/proc/cmdline").text or "")
    found["cpufreq"] = cpufreq(files)
    found["vulnerabilities"] = {
        path.rsplit("/", 1)[1]: value
        for path in files.glob(f"{CPU}/vulnerabilities", "*")
        if (value := files.read(path).value) and value != "Not affected"
    }
    return found


def boot_parameters(cmdline: str) -> dict[str, str]:
    """The kernel's boot parameters that are on the allow-list; a bare word has the value ``."""
    pairs = (word.partition("=") for word in cmdline.split())
    return {key: value for key, _, value in pairs if key in BOOT_PARAMETERS}


def cpufreq(files: Files) -> dict[str, str]:
    """The distinct values of each frequency setting over all policies, with the CPUs where they differ."""
    found: dict[str, str] = {}
    for name in POLICY_FILES:
        where: dict[str, set[int]] = {}
        for policy in files.glob(f"{CPU}/cpufreq", "policy[0-9]*"):
            value = files.read(f"{policy}/{name}").value
            if value:
                where.setdefault(value, set()).update(_cpus(files, f"{policy}/affected_cpus", policy))
        if len(where) == 1:
            found[name] = next(iter(where))
        elif where:
            found[name] = "; ".join(
                f"{value} on {format_list(cpus)}" for value, cpus in sorted(where.items())
            )
    return found


def wandering(
    files: Files,
    errors: dict[str, str],
    frequency: Callable[[], probes.Answer],
    temperatures: Callable[[], probes.Answer],
) -> dict[str, Any]:
    """Load, clocks, warmth, free memory, uptime, affinity: different at every look, and in no id."""
    load = (files.read("/proc/loadavg").text or "").split()
    uptime = (files.read("/proc/uptime").text or "").split()
    found: dict[str, Any] = {
        "load": [_float(word) for word in load[:3]] if len(load) >= 3 else None,
        "uptime_s": _float(uptime[0]) if uptime else None,
        "memory_available_mib": meminfo_kib(files).get("MemAvailable", 0) // 1024 or None,
        "cpu_mhz": current_mhz(files),
        "temperatures_c": None,
        "cpus_allowed": _affinity() if files.real else None,
    }
    if found["load"] is None:
        errors["state.wandering.load"] = files.read("/proc/loadavg").reason or "/proc/loadavg is not readable"
    if files.real:
        if found["cpu_mhz"] is None:
            said = frequency()
            if said.known:
                found["cpu_mhz"] = {"mean": said.value["current_mhz"], "normalized": said.value["normalized"]}
            else:
                errors["state.wandering.cpu_mhz"] = f"psutil: {said.reason}"
        said = temperatures()
        found["temperatures_c"] = said.value
        if not said.known:
            errors["state.wandering.temperatures_c"] = said.reason
    return found


def current_mhz(files: Files) -> dict[str, float] | None:
    """Lowest, mean and highest of the current frequencies, from cpufreq or else /proc/cpuinfo."""
    khz = [
        files.read(f"{policy}/scaling_cur_freq").number
        for policy in files.glob(f"{CPU}/cpufreq", "policy[0-9]*")
    ]
    mhz = [value / 1000 for value in khz if value]
    if not mhz:
        for line in (files.read("/proc/cpuinfo").text or "").splitlines():
            key, _, value = line.partition(":")
            number = _float(value) if key.strip() == "cpu MHz" else None
            if number:
                mhz.append(number)
    if not mhz:
        return None
    return {"min": round(min(mhz), 3), "mean": round(sum(mhz) / len(mhz), 3), "max": round(max(mhz), 3)}


def _cpus(files: Files, path: str, policy: str) -> set[int]:
    words = (files.read(path).text or "").replace(",", " ").split()
    cpus: set[int] = set()
    for word in words:
        try:
            cpus |= parse_list(word)
        except ValueError:
            continue
    return cpus or {int(policy.rsplit("policy", 1)[1])}


def _affinity() -> str | None:
    return format_list(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
