"""Which device a command line means, and whether it is there; no torch, which takes seconds to import."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fastrnns.errors import UsageError

_DEVICE = re.compile(r"cpu|cuda(:(?P<index>\d{1,4}))?")
_HIDDEN = {"", "-1", "none", "void", "nodevfiles"}  # values of CUDA_VISIBLE_DEVICES that hide every GPU


@dataclass(frozen=True)
class Device:
    """One device: cpu, or one GPU by the index that this process sees."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def nvml_index(self, environ: Mapping[str, str] | None = None) -> int | None:
        """The index by which NVML, which sees no CUDA_VISIBLE_DEVICES, knows this GPU; None if unknown."""
        if self.index is None:
            return None
        mask = (os.environ if environ is None else environ).get("CUDA_VISIBLE_DEVICES")
        if mask is None:
            return self.index
        names = [name.strip() for name in mask.split(",")]
        known = self.index < len(names) and names[self.index].isdigit()
        return int(names[self.index]) if known else None


@dataclass(frozen=True)
class Gpus:
    """How many GPUs PyTorch will see, and, when none, why."""

    count: int
    reason: str = ""


def resolve(text: str, gpus: Gpus | None = None) -> Device:
    """The device that `--device` names; `auto` is the GPU if there is one, else the CPU."""
    name = text.strip().lower()
    if name == "cpu":
        return Device("cpu")
    if name != "auto" and not _DEVICE.fullmatch(name):
        raise UsageError(f"--device {text!r} is not a device; use auto, cpu, cuda or cuda:N")
    found = visible_gpus() if gpus is None else gpus
    if name == "auto":
        return Device("cuda", 0) if found.count else Device("cpu")
    index = int(name.partition(":")[2] or 0)
    if not found.count:
        raise UsageError(f"--device {text}: {found.reason}; use --device cpu")
    if index >= found.count:
        there = (
            "cuda:0 is the only GPU" if found.count == 1 else f"there are cuda:0 to cuda:{found.count - 1}"
        )
        raise UsageError(f"--device {text}: there is no such GPU; {there}")
    return Device("cuda", index)


def visible_gpus(root: Path = Path("/"), environ: Mapping[str, str] | None = None) -> Gpus:
    """Count the GPUs that PyTorch will see, by device files, CUDA_VISIBLE_DEVICES and torch's own build."""
    environ = os.environ if environ is None else environ
    if torch_without_cuda():
        return Gpus(0, "the installed PyTorch is built without CUDA")
    files = [path for path in (root / "dev").glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    count = len(files) or int((root / "dev/dxg").exists())  # dxg: WSL has one file for all
    if not count:
        return Gpus(0, "this machine has no NVIDIA GPU (no /dev/nvidia0)")
    mask = environ.get("CUDA_VISIBLE_DEVICES")
    if mask is None:
        return Gpus(count)
    names = [name.strip() for name in mask.split(",")]
    if names[0].lower() in _HIDDEN:
        return Gpus(0, f"CUDA_VISIBLE_DEVICES={mask!r} hides every GPU")
    shown = 0
    for name in names:  # CUDA stops at the first entry that names no device
        if name.lower() in _HIDDEN or (name.isdigit() and files and int(name) > _highest(files)):
            break
        shown += 1
    return Gpus(shown) if shown else Gpus(0, f"CUDA_VISIBLE_DEVICES={mask!r} names no GPU of this machine")


def _highest(files: list[Path]) -> int:
    return max(int(path.name[6:]) for path in files)


def torch_without_cuda() -> bool:
    """Whether the torch that would be imported says in its version file that it has no CUDA."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return False
    try:
        text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(r"^cuda\b[^=\n]*=\s*None\b", text, re.MULTILINE) is not None
