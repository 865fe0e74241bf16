"""What the machine is made of, from the kernel's files: CPU, topology, caches, memory, board."""

from __future__ import annotations

import math
import platform
import sys
from collections.abc import Callable
from typing import Any

from env.cpulist import parse_list
from env.probes import Answer, cpuinfo
from env.sysfs import CPU, Files

NODE = "/sys/devices/system/node"
DMI = "/sys/class/dmi/id"

# Fields of /proc/cpuinfo that say which CPU this is, by the name each architecture gives them. An allow-list:
# the same file holds serial numbers on some boards.
CPU_FIELDS = {
    "vendor": ("vendor_id", "mvendorid"),
    "family": ("cpu family", "CPU Family"),
    "model": ("model", "cpu", "cpu model"),
    "stepping": ("stepping",),
    "microcode": ("microcode",),
    "implementer": ("CPU implementer",),
    "architecture_level": ("CPU architecture",),
    "variant": ("CPU variant", "marchid"),
    "part": ("CPU part",),
    "revision": ("CPU revision", "revision", "mimpid"),
    "isa_string": ("isa",),
    "platform": ("uarch", "machine", "platform", "Hardware"),
}
BRAND_FIELDS = ("model name", "Model Name", "Processor", "cpu model")

# Instruction sets by which a numerical library picks its code; the other flags change with the kernel.
_SETS = """
    sse4_1 sse4_2 avx avx2 fma f16c avx512f avx512bw avx512dq avx512vl avx512_bf16 avx512_fp16 avx512_vnni
    avx_vnni amx_tile amx_bf16 amx_int8 amx_fp16 asimd asimdhp asimddp fphp sve sve2 svebf16 bf16 i8mm sme
    altivec vsx v vx"""
INSTRUCTION_SETS = frozenset(_SETS.split())


def hardware(
    files: Files, errors: dict[str, str], *, ask_cpuinfo: Callable[[], Answer] = cpuinfo
) -> dict[str, Any]:
    """The hardware part of a fingerprint, without the GPUs; what could not be read is null, with a reason."""
    text = files.read("/proc/cpuinfo").text or ""
    blocks = cpu_blocks(text)
    return {
        "cpu": cpu(files, blocks, errors, ask_cpuinfo),
        "topology": topology(files, errors),
        "caches": caches(files),
        "memory_gib": memory_gib(files, errors),
        "board": {name: _dmi(files, name) for name in ("sys_vendor", "product_name")}
        | {"model": _tree_model(files)},
        "virtualization": virtualization(files, blocks),
    }


def cpu_blocks(text: str) -> list[dict[str, str]]:
    """The blocks of /proc/cpuinfo as dictionaries."""
    blocks: list[dict[str, str]] = [{}]
    for line in text.splitlines():
        if not line.strip():
            if blocks[-1]:
                blocks.append({})
            continue
        key, _, value = line.partition(":")
        blocks[-1].setdefault(key.strip(), value.strip())
    return [block for block in blocks if block]


def cpu(
    files: Files, blocks: list[dict[str, str]], errors: dict[str, str], ask_cpuinfo: Callable[[], Answer]
) -> dict[str, Any]:
    """Brand and the numbers under it; several kinds of core give several values, joined by ` + `."""
    facts: dict[str, Any] = {name: _field(blocks, names) for name, names in CPU_FIELDS.items()}
    brand = _field(blocks, BRAND_FIELDS)
    source = "kernel" if brand else None
    facts["architecture"] = _architecture(files)
    if brand is None and files.real:
        # Only where the kernel leaves the brand open (ARM, and systems without /proc): it takes a second.
        said = ask_cpuinfo()
        if said.known and isinstance(said.value, dict):
            answer: dict[str, Any] = said.value
            brand = _text(answer.get("brand_raw") or answer.get("brand"))
            source = "py-cpuinfo" if brand else None
            for name, key in (("vendor", "vendor_id_raw"), ("family", "family"), ("model", "model")):
                facts[name] = facts[name] or _text(answer.get(key))
            facts["architecture"] = facts["architecture"] or _text(answer.get("arch_string_raw"))
        else:
            errors["hardware.cpu.brand"] = f"py-cpuinfo: {said.reason}"
    if brand is None:
        errors.setdefault("hardware.cpu.brand", "neither the kernel nor py-cpuinfo names this CPU")
    flags = {flag for block in blocks for key in ("flags", "Features") for flag in block.get(key, "").split()}
    return {
        "brand": brand,
        "brand_source": source,
        **facts,
        "instruction_sets": sorted(flags & INSTRUCTION_SETS),
    }


def topology(files: Files, errors: dict[str, str]) -> dict[str, Any]:
    """How many of what, the same whether or not some CPUs are switched off at present."""
    present = (
        _cpus(files, f"{CPU}/present") or _cpus(files, f"{CPU}/possible") or _cpus(files, f"{CPU}/online")
    )
    packages: set[int] = set()
    widest = 0
    for path in files.glob(CPU, "cpu[0-9]*"):
        package = files.read(f"{path}/topology/physical_package_id").number
        if package is not None:
            packages.add(package)
        widest = max(widest, len(_cpus(files, f"{path}/topology/thread_siblings_list")))
    if widest == 1 and files.read(f"{CPU}/smt/control").value in {"off", "forceoff"}:
        widest = 2  # the siblings are there, switched off
    if not present:
        errors["hardware.topology"] = files.read(f"{CPU}/present").reason or "the kernel lists no CPUs"
    kinds = {name: _cpus(files, f"/sys/devices/{name}/cpus") for name in ("cpu_core", "cpu_atom")}
    capacities = {files.read(f"{path}/cpu_capacity").number for path in files.glob(CPU, "cpu[0-9]*")} - {None}
    return {
        "cpus": len(present) or None,
        "sockets": len(packages) or None,
        "threads_per_core": widest or None,
        "numa_nodes": sum(name[4:].isdigit() for name in files.names(NODE) if name.startswith("node"))
        or None,
        "kinds": {name: len(cpus) for name, cpus in kinds.items() if cpus},
        "capacities": sorted(value for value in capacities if value is not None),
    }


def caches(files: Files) -> dict[str, Any]:
    """Size and line of the first online CPU's caches, by level and type; empty where untold."""
    for path in files.glob(CPU, "cpu[0-9]*"):
        found: dict[str, Any] = {}
        for index in files.glob(f"{path}/cache", "index[0-9]*"):
            level, kind = files.read(f"{index}/level").value, files.read(f"{index}/type").value
            if level and kind:
                suffix = {"Data": "d", "Instruction": "i"}.get(kind, "")
                found[f"L{level}{suffix}"] = {
                    "size_kib": _kib(files.read(f"{index}/size").value),
                    "line_bytes": files.read(f"{index}/coherency_line_size").number,
                }
        if found:
            return found
    return {}


def memory_gib(files: Files, errors: dict[str, str]) -> float | None:
    """Memory, rounded: the kernel keeps a little for itself, and how much changes with its version."""
    kib = meminfo_kib(files).get("MemTotal")
    if kib is None and files.real and not sys.platform.startswith("linux"):
        kib = _psutil_kib()
    if not kib:
        errors["hardware.memory_gib"] = files.read("/proc/meminfo").reason or "/proc/meminfo has no MemTotal"
        return None
    gib = kib / 1024**2
    return float(round(gib)) if gib >= 4 else round(gib, 1)


def meminfo_kib(files: Files) -> dict[str, int]:
    """The lines of /proc/meminfo that are in kB."""
    found: dict[str, int] = {}
    for line in (files.read("/proc/meminfo").text or "").splitlines():
        words = line.replace(":", " ").split()
        if len(words) == 3 and words[2] == "kB" and words[1].isdigit():
            found[words[0]] = int(words[1])
    return found


def virtualization(files: Files, blocks: list[dict[str, str]]) -> str | None:
    """`none`, a hypervisor by name, `vm` for an unnamed one, or None where it cannot be told."""
    for path in ("/sys/hypervisor/type",):
        if name := files.read(path).value:
            return name
    vendor = " ".join(filter(None, (_dmi(files, "sys_vendor"), _dmi(files, "product_name")))).lower()
    for word, name in (
        ("kvm", "kvm"), ("qemu", "kvm"), ("vmware", "vmware"), ("virtualbox", "virtualbox"), ("xen", "xen"),
        ("virtual machine", "hyper-v"), ("google compute engine", "kvm"), ("firecracker", "kvm"),
    ):  # fmt: skip
        if word in vendor:
            return name
    flags = [block.get("flags", "").split() for block in blocks]
    if any("hypervisor" in words for words in flags):
        return "vm"
    return "none" if any(flags) else None  # only x86 says so in its flags


def _field(blocks: list[dict[str, str]], names: tuple[str, ...]) -> str | None:
    """The distinct values of a field, joined; the first of `names` that occurs."""
    for name in names:
        values = sorted({" ".join(block[name].split()) for block in blocks if block.get(name)})
        if values and any(value.lower() != "unknown" for value in values):
            return " + ".join(values)
    return None


def _architecture(files: Files) -> str | None:
    named = files.read("/proc/sys/kernel/arch").value  # Linux 6.1 and later
    return named or (platform.machine() or None if files.real else None)


def _cpus(files: Files, path: str) -> frozenset[int]:
    try:
        return parse_list(files.read(path).text or "")
    except ValueError:
        return frozenset()


def _kib(text: str | None) -> int | None:
    if not text:
        return None
    digits, unit = text.rstrip("KMGkmg"), text[-1:].upper()
    if not digits.isdigit():
        return None
    return int(digits) * {"K": 1, "M": 1024, "G": 1024**2}.get(unit, 1)


def _dmi(files: Files, name: str) -> str | None:
    return files.read(f"{DMI}/{name}").value or None


def _tree_model(files: Files) -> str | None:
    """The board's name in the device tree (ARM, RISC-V, POWER)."""
    text = (
        files.read("/proc/device-tree/model").text or files.read("/sys/firmware/devicetree/base/model").text
    )
    return (text or "").replace("\0", "").strip() or None


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, (dict, list)) or (isinstance(value, float) and math.isnan(value)):
        return None
    return " ".join(str(value).split()) or None


def _psutil_kib() -> int | None:
    from env.probes import bounded

    def ask() -> int:
        import psutil

        return int(psutil.virtual_memory().total // 1024)

    said = bounded(ask)
    return said.value if said.known else None
