"""NVIDIA GPUs through NVML, read only and without CUDA: which there are, their settings, their clocks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from env.probes import Answer, bounded
from env.sysfs import Files

NVML_LIMIT_S = 15.0  # starting NVML takes seconds where no persistence daemon keeps the driver loaded
PCI = "/sys/bus/pci/devices"
DRIVER_FOLDER = "/proc/driver/nvidia/gpus"
NVIDIA_PCI_VENDOR = 0x10DE
DISPLAY_PCI_CLASS = 0x03

# Bits of nvmlDeviceGetCurrentClocksEventReasons (nvml.h), by name.
EVENT_REASONS = {
    0x1: "idle",
    0x2: "applications_clocks",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
    0x100: "display_clocks",
}
# Those that slow a GPU down against what it can do; the others are choices, or rest.
SLOWING_REASONS = frozenset(
    {"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake"},
)


@dataclass(frozen=True)
class Gpu:
    """One GPU: what it is, and how it is set. The index is NVML's, in the order of the PCI bus."""

    index: int
    model: str | None
    vbios: str | None = None
    power_limit_w: float | None = None
    memory_mib: int | None = None
    compute_capability: str | None = None
    pci_bus_id: str | None = None
    ecc: bool | None = None
    persistence: bool | None = None
    mig: bool | None = None
    compute_mode: str | None = None
    max_sm_mhz: int | None = None
    max_memory_mhz: int | None = None
    source: str = "nvml"


_lock = threading.Lock()
_started: dict[int, Any] = {}


def gpus(root: str = "/", *, nvml: Any = None) -> Answer:
    """The GPUs of the machine as a list (empty for none), or None and why it cannot be known.

    Below a root other than `/`, and where NVML is silent, the files of driver and bus tell what they can.
    """
    files = Files(root)
    listed = _from_files(files)
    if not files.real and nvml is None:
        return Answer(listed)
    if not listed and nvml is None and not files.exists("/dev/nvidiactl"):
        return Answer([])  # no card on the bus and no driver: spare the seconds
    said = bounded(lambda: _from_nvml(start(nvml)), limit_s=NVML_LIMIT_S)
    if said.known:
        return said
    return Answer(listed or None, f"NVML: {said.reason}")


def start(nvml: Any = None) -> Any:
    """The NVML library, started once a process; raises what NVML raises where there is none."""
    library = nvml
    if library is None:
        import pynvml

        library = pynvml
    with _lock:
        if id(library) not in _started:
            library.nvmlInit()
            _started[id(library)] = library  # kept, and so its id stays its own
    return library


def sample(index: int, *, nvml: Any = None) -> dict[str, Any]:
    """How the GPU runs at this moment; what it does not tell is null. Cheap: some tens of microseconds."""
    library = start(nvml)
    handle = library.nvmlDeviceGetHandleByIndex(index)

    def told(name: str, *arguments: Any) -> Any:
        return ask(library, name, handle, *arguments)

    bits = told("nvmlDeviceGetCurrentClocksEventReasons")
    if bits is None:  # the name before driver 535
        bits = told("nvmlDeviceGetCurrentClocksThrottleReasons")
    power = told("nvmlDeviceGetPowerUsage")
    limit = told("nvmlDeviceGetEnforcedPowerLimit")
    usage = told("nvmlDeviceGetUtilizationRates")
    memory = told("nvmlDeviceGetMemoryInfo")
    processes = told("nvmlDeviceGetComputeRunningProcesses")
    return {
        "sm_mhz": told("nvmlDeviceGetClockInfo", _constant(library, "NVML_CLOCK_SM", 1)),
        "memory_mhz": told("nvmlDeviceGetClockInfo", _constant(library, "NVML_CLOCK_MEM", 2)),
        "temperature_c": told("nvmlDeviceGetTemperature", _constant(library, "NVML_TEMPERATURE_GPU", 0)),
        "power_w": None if power is None else power / 1000,
        "power_limit_w": None if limit is None else limit / 1000,
        "pstate": told("nvmlDeviceGetPerformanceState"),
        "utilization_percent": getattr(usage, "gpu", None),
        "memory_used_mib": None if memory is None else memory.used // 2**20,
        "processes": None if processes is None else len(processes),
        "event_reasons": event_reasons(bits),
        "ecc_uncorrected": told(
            "nvmlDeviceGetTotalEccErrors",
            _constant(library, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1),
            _constant(library, "NVML_VOLATILE_ECC", 0),
        ),
    }


def event_reasons(bits: int | None) -> list[str] | None:
    """The reasons in a bit mask, by name; unknown bits keep their number."""
    if bits is None:
        return None
    return [
        EVENT_REASONS.get(1 << place, f"bit_{place}")
        for place in range(bits.bit_length())
        if bits >> place & 1
    ]


def visible(root: str = "/", *, environ: Mapping[str, str] | None = None, nvml: Any = None) -> list[int]:
    """NVML indices of the GPUs that CUDA would see, in its order where all are equal; empty for none."""
    found: list[Gpu] = gpus(root, nvml=nvml).value or []
    chosen = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return [gpu.index for gpu in found]
    indices: list[int] = []
    for raw in chosen.split(","):
        name = raw.strip()
        index = _by_name(name, found, nvml)
        if index is None:  # CUDA, too, stops at the first name it does not know
            break
        indices.append(index)
    return indices


def identity(found: list[Gpu]) -> list[dict[str, Any]]:
    """What of the GPUs belongs to the machine's identity, in an order that does not depend on slots."""
    facts = [
        {
            "model": gpu.model,
            "vbios": gpu.vbios,
            "power_limit_w": gpu.power_limit_w,
            # Rounded: the driver keeps some for itself, and how much changes with its version.
            "memory_gib": None if gpu.memory_mib is None else round(gpu.memory_mib / 1024),
        }
        for gpu in found
    ]
    return sorted(facts, key=lambda fact: [str(value) for value in fact.values()])


def settings(found: list[Gpu]) -> list[dict[str, Any]]:
    """How the GPUs are set: ECC, persistence, MIG, compute mode, highest clocks."""
    keys = ("ecc", "persistence", "mig", "compute_mode", "max_sm_mhz", "max_memory_mhz")
    return [{key: asdict(gpu)[key] for key in keys} for gpu in found]


def _from_nvml(library: Any) -> list[Gpu]:
    return [describe(library, index) for index in range(library.nvmlDeviceGetCount())]


def describe(library: Any, index: int) -> Gpu:
    """What one GPU is and how it is set, of a library that was started."""
    handle = library.nvmlDeviceGetHandleByIndex(index)

    def told(name: str, *arguments: Any) -> Any:
        return ask(library, name, handle, *arguments)

    limit = told("nvmlDeviceGetPowerManagementLimit")
    memory = told("nvmlDeviceGetMemoryInfo")
    capability = told("nvmlDeviceGetCudaComputeCapability")
    ecc, mig = told("nvmlDeviceGetEccMode"), told("nvmlDeviceGetMigMode")
    persistence = told("nvmlDeviceGetPersistenceMode")
    bus = told("nvmlDeviceGetPciInfo")
    mode = told("nvmlDeviceGetComputeMode")
    return Gpu(
        index=index,
        model=_text(told("nvmlDeviceGetName")),
        vbios=_text(told("nvmlDeviceGetVbiosVersion")),
        power_limit_w=None if limit is None else limit / 1000,
        memory_mib=None if memory is None else memory.total // 2**20,
        compute_capability=None if capability is None else ".".join(map(str, capability)),
        pci_bus_id=_bus_id(_text(getattr(bus, "busId", None))),
        ecc=None if ecc is None else bool(ecc[0]),
        persistence=None if persistence is None else bool(persistence),
        mig=None if mig is None else bool(mig[0]),
        compute_mode=None
        if mode is None
        else {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}.get(
            mode, str(mode)
        ),
        max_sm_mhz=told("nvmlDeviceGetMaxClockInfo", _constant(library, "NVML_CLOCK_SM", 1)),
        max_memory_mhz=told("nvmlDeviceGetMaxClockInfo", _constant(library, "NVML_CLOCK_MEM", 2)),
    )


def _from_files(files: Files) -> list[Gpu]:
    """The GPUs as the driver's files or the PCI bus list them: model and VBIOS, or only the device number."""
    found: list[Gpu] = []
    for path in files.glob(DRIVER_FOLDER, "*"):
        text = files.read(f"{path}/information").text or ""
        fields = {
            key.strip(): value.strip()
            for key, _, value in (line.partition(":") for line in text.splitlines())
        }
        if fields:
            vbios = fields.get("Video BIOS", "")
            found.append(
                Gpu(
                    index=len(found),
                    model=fields.get("Model"),
                    vbios=None if not vbios or "?" in vbios else vbios,
                    pci_bus_id=path.rsplit("/", 1)[1],
                    source="driver files",
                ),
            )
    if found:
        return found
    for path in files.glob(PCI, "*"):
        if files.read(f"{path}/vendor").number != NVIDIA_PCI_VENDOR:
            continue
        if (files.read(f"{path}/class").number or 0) >> 16 == DISPLAY_PCI_CLASS:
            device = files.read(f"{path}/device").number or 0
            name = f"NVIDIA PCI device {device:04x}"
            found.append(
                Gpu(index=len(found), model=name, pci_bus_id=path.rsplit("/", 1)[1], source="pci bus")
            )
    return found


def _by_name(name: str, found: list[Gpu], nvml: Any) -> int | None:
    if name.isdigit():
        return found[int(name)].index if int(name) < len(found) else None
    if not name.startswith(("GPU-", "MIG-")):
        return None

    def look() -> int | None:
        library = start(nvml)
        for gpu in found:
            if uuid(library, gpu.index).startswith(name):
                return gpu.index
        return None

    said: int | None = bounded(look).value
    return said


def uuid(library: Any, index: int) -> str:
    """The name of a GPU that no reordering changes."""
    return _text(library.nvmlDeviceGetUUID(library.nvmlDeviceGetHandleByIndex(index))) or ""


def ask(library: Any, name: str, *arguments: Any) -> Any:
    """One NVML question; None where this GPU, driver or binding does not know it."""
    function: Callable[..., Any] | None = getattr(library, name, None)
    if function is None:
        return None
    try:
        return function(*arguments)
    except Exception as error:
        if not isinstance(error, getattr(library, "NVMLError", Exception)):
            raise
        return None


def _constant(library: Any, name: str, default: int) -> int:
    return int(getattr(library, name, default))


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return value or None if isinstance(value, str) else None


def _bus_id(text: str | None) -> str | None:
    """The bus id as the kernel names its folder: a domain of four digits, lower case."""
    if not text:
        return None
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest}" if rest else text.lower()
