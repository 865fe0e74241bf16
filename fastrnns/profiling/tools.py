"""Which profiler can work on this machine, and why each of the others cannot."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fastrnns.errors import MachineError, UsageError

TOOLS = ("torch", "nsys", "ncu", "nvprof")  # in the order in which `auto` prefers them
DRIVER_PARAMS = "proc/driver/nvidia/params"
RESTRICTED = "RmProfilingAdminOnly"
NVPROF_LAST = (7, 5)  # nvprof's own message: not supported on devices with compute capability 8.0 and higher
# Variables that a profiler sets for the programs that it starts.
OUTER = {
    "NSYS_PROFILING_SESSION_ID": "nsys",
    "QUADD_INJECTION_PROXY": "nsys",
    "NV_COMPUTE_PROFILER_PERFWORKS_DIR": "ncu",
    "NVPROF_PROFILING_SESSION": "nvprof",
    "CUDA_INJECTION64_PATH": "a CUDA profiler",
    "NVTX_INJECTION64_PATH": "a CUDA profiler",
}
WHAT_FOR = {
    "torch": "operators, kernels, memory and a trace",
    "nsys": "a timeline of kernels and launches",
    "ncu": "hardware counters of each kernel",
    "nvprof": "kernels, on GPUs before compute capability 8.0",
}


@dataclass(frozen=True)
class Facts:
    """What decides which profilers work."""

    device_type: str
    capability: tuple[int, int] | None = None  # of the GPU; None where it is not known
    paths: Mapping[str, str] = field(default_factory=dict)  # of the tools that are on PATH
    counters_restricted: bool = False  # the driver gives hardware counters to root only
    root: bool = False
    inside: str | None = None  # the profiler that this process runs under


@dataclass(frozen=True)
class Choice:
    """The profiler that will run, why, and why the others will not."""

    tool: str
    path: str | None
    why: str
    refused: dict[str, str]


def find_facts(
    device_type: str,
    capability: tuple[int, int] | None = None,
    *,
    root: Path = Path("/"),
    environ: Mapping[str, str] | None = None,
) -> Facts:
    """Look at this machine: PATH, the driver's parameters, the variables of an outer profiler."""
    environ = os.environ if environ is None else environ
    found = {
        tool: shutil.which(tool, path=environ.get("PATH", os.defpath)) for tool in TOOLS if tool != "torch"
    }
    inside = next((name for variable, name in OUTER.items() if environ.get(variable)), None)
    return Facts(
        device_type=device_type,
        capability=capability,
        paths={tool: path for tool, path in found.items() if path},
        counters_restricted=counters_restricted(root),
        root=os.geteuid() == 0,
        inside=inside,
    )


def counters_restricted(root: Path = Path("/")) -> bool:
    """Whether the NVIDIA driver was loaded to give counters to root only."""
    try:
        text = (root / DRIVER_PARAMS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    rows = dict(line.partition(":")[::2] for line in text.splitlines())
    return rows.get(RESTRICTED, "0").strip() == "1"


def refusal(tool: str, facts: Facts) -> str | None:
    """Why a tool cannot work here, or None."""
    if facts.inside is not None:
        return (
            f"this runs under {facts.inside} already, and two profilers cannot share the GPU's event stream"
        )
    if tool == "torch":
        return None
    if facts.device_type != "cuda":
        return f"{tool} sees NVIDIA GPUs only, and the device is {facts.device_type}"
    if tool == "nvprof" and facts.capability is not None and facts.capability > NVPROF_LAST:
        here = ".".join(map(str, facts.capability))
        return f"nvprof is unsupported on compute capability 8.0 and newer, and this GPU has {here}"
    if tool not in facts.paths:
        return f"{tool} is not installed (not on PATH)"
    # nsys -t cuda needs no counters, so the restriction concerns ncu alone.
    if tool == "ncu" and facts.counters_restricted and not facts.root:
        return (
            f"the driver gives hardware counters to root only ({RESTRICTED}: 1 in /{DRIVER_PARAMS}); "
            "run as root, or load the driver with NVreg_RestrictProfilingToAdminUsers=0"
        )
    return None


def choose(wanted: str, facts: Facts) -> Choice:
    """The tool that was asked for, or the best that works; refuses with the reason of each that does not."""
    if wanted not in (*TOOLS, "auto"):
        raise UsageError(f"no profiler is named {wanted!r}; choose one of auto, {', '.join(TOOLS)}")
    reasons = {tool: refusal(tool, facts) for tool in TOOLS}
    refused = {tool: reason for tool, reason in reasons.items() if reason}
    if wanted != "auto":
        if wanted in refused:
            able = [tool for tool in TOOLS if tool not in refused]
            remedy = f"use --tool {able[0]}" if able else "run it outside of the other profiler"
            raise MachineError(f"--tool {wanted}: {refused[wanted]}; {remedy}")
        return Choice(wanted, facts.paths.get(wanted), f"asked for: {WHAT_FOR[wanted]}", refused)
    for tool in TOOLS:
        if tool not in refused:
            return Choice(tool, facts.paths.get(tool), f"the best that works here: {WHAT_FOR[tool]}", refused)
    raise MachineError(f"no profiler works here: {next(iter(refused.values()))}; run it outside of that")
