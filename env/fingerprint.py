"""The fingerprint: what this machine and its software are, in three parts, each with a lasting id."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

from env import condition as condition_facts
from env import gpu as gpu_facts
from env import hardware as hardware_facts
from env import software as software_facts
from env.privacy import scrub_all
from env.probes import Answer, bounded, cpuinfo
from env.sysfs import Files

ID_DIGITS = 16  # of a SHA-256: enough for a thousand million machines
PARTS = ("hardware", "software", "state")

# What makes two machines the same for a comparison of times. Explicit, so that a fact added later does not
# give every machine a new id. An item ending in nothing covers the whole branch.
HARDWARE_IDENTITY = (
    "cpu.brand",
    "cpu.vendor",
    "cpu.family",
    "cpu.model",
    "cpu.stepping",
    "cpu.microcode",
    "cpu.implementer",
    "cpu.variant",
    "cpu.part",
    "cpu.revision",
    "cpu.isa_string",
    "cpu.platform",
    "cpu.architecture",
    "cpu.instruction_sets",
    "topology.cpus",
    "topology.sockets",
    "topology.threads_per_core",
    "topology.numa_nodes",
    "caches",
    "memory_gib",
    "board",
    "virtualization",
    "gpus",
)
# One of these at least must be known, else the machine has no id: two unknown machines are not the same one.
NAMES_A_CPU = ("brand", "family", "implementer", "part", "isa_string", "platform")


def fingerprint(
    root: str = "/",
    *,
    software: dict[str, Any] | None = None,
    steps: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """The whole fingerprint; `software` is a worker's account of torch, `steps` a check made already."""
    return complete(collect(root, steps=steps), software)


def collect(
    root: str = "/",
    *,
    steps: list[dict[str, Any]] | None = None,
    ask_cpuinfo: Callable[[], Answer] = cpuinfo,
    nvml: Any = None,
) -> dict[str, Any]:
    """All but what only a worker knows. May take seconds; may run in a thread beside a worker's start."""
    files = Files(root)
    errors: dict[str, str] = {}
    hardware = _part(
        errors, "hardware", lambda: hardware_facts.hardware(files, errors, ask_cpuinfo=ask_cpuinfo)
    )
    found = gpu_facts.gpus(root, nvml=nvml)
    if found.reason:
        errors["hardware.gpus"] = found.reason
    hardware["gpus"] = None if found.value is None else gpu_facts.identity(found.value)
    if steps is None:
        steps = _steps(root, errors)
    state = _part(errors, "state", lambda: condition_facts.condition(files, errors, steps))
    state.setdefault("settings", {})["gpus"] = gpu_facts.settings(found.value or [])
    state.setdefault("wandering", {})["gpus"] = _gpu_samples(found.value or [], files, errors, nvml)
    software = _part(errors, "software", lambda: software_facts.software(files, errors))
    return {"hardware": hardware, "software": software, "state": state, "errors": errors}


def complete(facts: dict[str, Any], software: dict[str, Any] | None = None) -> dict[str, Any]:
    """The fingerprint of collected facts and a worker's account, scrubbed, with its ids."""
    errors = dict(facts["errors"])
    merged = {**facts, "software": software_facts.merge(facts["software"], software, errors)}
    clean: dict[str, Any] = scrub_all({part: merged[part] for part in PARTS})
    ids = {part: part_id(part, clean[part]) for part in PARTS}
    if ids["hardware"] is None:
        errors["ids.hardware"] = "nothing names this machine's CPU, so it cannot be told from another"
    return {**clean, "ids": ids, "errors": dict(sorted(scrub_all(errors).items()))}


def part_id(part: str, facts: dict[str, Any]) -> str | None:
    """The id of one part of a fingerprint, over its identity only; None where that says nothing."""
    stable = identity(part, facts)
    if part == "hardware" and not any((facts.get("cpu") or {}).get(name) for name in NAMES_A_CPU):
        return None
    text = json.dumps([part, stable], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_DIGITS]


def identity(part: str, facts: dict[str, Any]) -> dict[str, Any]:
    """The facts of one part that enter its id: none that wanders, none that a slow probe may leave out."""
    if part == "hardware":
        return {name: _at(facts, name) for name in HARDWARE_IDENTITY if _counts(facts, name)}
    return {key: value for key, value in facts.items() if key != "wandering"}


def differences(one: dict[str, Any], other: dict[str, Any], part: str = "hardware") -> list[str]:
    """The dotted names of the identifying facts in which two fingerprints differ."""
    left, right = (_flat(identity(part, side.get(part) or {})) for side in (one, other))
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))


def machine_name(fingerprint: dict[str, Any]) -> str:
    """What a person would call the machine: its GPU if it has one, else its CPU, else its architecture."""
    hardware = fingerprint.get("hardware") or {}
    models = [gpu.get("model") for gpu in hardware.get("gpus") or [] if gpu.get("model")]
    if models:
        kinds = sorted(set(models))
        return " + ".join(
            f"{models.count(kind)}x {kind}" if models.count(kind) > 1 else kind for kind in kinds
        )
    cpu = hardware.get("cpu") or {}
    if cpu.get("brand"):
        return str(cpu["brand"])
    named = [
        str(cpu[name]) for name in ("architecture", "implementer", "part", "vendor", "model") if cpu.get(name)
    ]
    return " ".join(named) or "unknown machine"


def explain(fingerprint: dict[str, Any]) -> str:
    """The fingerprint for a person: one fact a line, the ids first, what failed last."""
    hardware, software, state = (fingerprint.get(part) or {} for part in PARTS)
    cpu, topology, kernel = (
        hardware.get("cpu") or {},
        hardware.get("topology") or {},
        software.get("kernel") or {},
    )
    project, wandering = software.get("project") or {}, state.get("wandering") or {}
    rows = [
        *((f"{part} id", fingerprint["ids"][part]) for part in PARTS),
        ("CPU", cpu.get("brand") or machine_name({"hardware": {"cpu": cpu}})),
        ("", _labelled(cpu, ("family", "model", "stepping", "microcode", "implementer", "part", "variant"))),
        ("topology", _labelled(topology, ("cpus", "sockets", "threads_per_core", "numa_nodes"))),
        ("memory", None if hardware.get("memory_gib") is None else f"{hardware['memory_gib']:g} GiB"),
        ("virtual", hardware.get("virtualization")),
        *(("GPU", _labelled(gpu, ("model", "vbios", "power_limit_w"))) for gpu in hardware.get("gpus") or []),
        ("kernel", " ".join(filter(None, (kernel.get("system"), kernel.get("release"))))),
        ("system", (software.get("distribution") or {}).get("name")),
        ("Python", (software.get("python") or {}).get("version")),
        (
            "torch",
            (software.get("torch") or {}).get("version") if isinstance(software.get("torch"), dict) else None,
        ),
        ("driver", (software.get("driver") or {}).get("nvidia")),
        ("commit", _commit(project)),
        ("source", (project.get("source_sha256") or "")[:ID_DIGITS]),
        ("packages", f"{len(software.get('packages') or {})} installed"),
        ("load", " ".join(f"{value:g}" for value in wandering.get("load") or [])),
        ("steps", ", ".join(f"{name} {step['status']}" for name, step in (state.get("steps") or {}).items())),
    ]
    lines = [f"{name:12} {value}" for name, value in rows if value]
    errors = fingerprint.get("errors") or {}
    if errors:
        lines.append("not known:")
        lines += [f"  {name}: {reason}" for name, reason in errors.items()]
    return "\n".join(lines)


def _part(errors: dict[str, str], name: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """One part; a fault in reading it costs that part, never the record."""
    try:
        return ask()
    except Exception as error:
        errors[name] = f"{type(error).__name__}: {error}"
        return {}


def _steps(root: str, errors: dict[str, str]) -> list[dict[str, Any]]:
    def ask() -> list[dict[str, Any]]:
        from env.machine import check

        steps: list[dict[str, Any]] = check(root).after
        return steps

    said = bounded(ask, limit_s=30.0)
    if not said.known:
        errors["state.steps"] = said.reason
    return said.value or []


def _gpu_samples(found: list[gpu_facts.Gpu], files: Files, errors: dict[str, str], nvml: Any) -> list[Any]:
    if not found or (not files.real and nvml is None) or found[0].source != "nvml":
        return []
    said = bounded(lambda: [gpu_facts.sample(gpu.index, nvml=nvml) for gpu in found])
    if not said.known:
        errors["state.wandering.gpus"] = f"NVML: {said.reason}"
    return said.value or []


def _counts(facts: dict[str, Any], name: str) -> bool:
    """Whether a fact is of the identity: py-cpuinfo's brand is not, where the kernel's numbers tell as much.

    The library times out now and then, and a machine must not get a second id by that.
    """
    cpu = facts.get("cpu") or {}
    if name == "cpu.brand" and cpu.get("brand_source") != "kernel":
        return not any(cpu.get(other) for other in NAMES_A_CPU if other != "brand")
    return True


def _at(facts: dict[str, Any], name: str) -> Any:
    value: Any = facts
    for key in name.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        found: dict[str, Any] = {}
        for key, item in value.items():
            found |= _flat(item, f"{name}.{key}" if name else str(key))
        return found
    return {name: value}


def _labelled(facts: dict[str, Any], names: tuple[str, ...]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {facts[name]}" for name in names if facts.get(name) is not None
    )


def _commit(project: dict[str, Any]) -> str | None:
    if not project.get("commit"):
        return None
    words = {True: "with changes", False: "unchanged", None: "changes unknown"}
    return f"{project['commit'][:12]}, {words[project.get('dirty')]}"
