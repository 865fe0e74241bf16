"""The gpu step: how the GPU that is measured on is set, recorded always; its clocks locked only on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from env import helper
from env.errors import UsageError
from env.journal import Entry
from env.knob import Knob
from env.step import Host, State

BASE = "base"
SOURCE = "NVML"
FREE = "recorded, not changed; --lock-gpu-clocks base would lock the clocks"
NOT_NAMED = "no GPU is measured on; --gpu N records how one is set"


class GpuClocks(Knob):
    """Locked clocks cannot be read back (NVML has no such query), and so neither can what they were before.

    `restore` therefore resets them to the driver's own choice, as the driver does when it is loaded, and only where
    this program locked them. NVML: nvmlDeviceSetGpuLockedClocks, nvmlDeviceResetGpuLockedClocks (Volta or newer).
    """

    name = "gpu"
    why = "a GPU's clock follows its load, heat and power cap, and a kernel's time follows the clock"

    def __init__(self, host: Host, nvml: Any = None) -> None:
        super().__init__(host)
        self._nvml = nvml
        self._locked: int | None = None  # MHz, by us

    @property
    def lasting(self) -> bool:  # type: ignore[override]  # it depends on what is asked
        """What a command asks for is for that command, beside what an `env apply` set."""
        return self.asked is None

    @property
    def index(self) -> int | None:
        """The GPU that is measured on, by NVML's index."""
        return self.host.wanted.gpu

    @property
    def asked(self) -> str | None:
        """What --lock-gpu-clocks says: `base` or MHz."""
        return self.host.wanted.gpu_clocks

    def probe(self) -> State:
        """Its settings; what wanders (clock, heat, power) is for the watch."""
        wanted = None if self.asked is None else f"clocks locked at {self.asked}"
        if self.index is None:
            return self.state("unavailable", None, wanted, NOT_NAMED, SOURCE)
        if not self.host.files.real and self._nvml is None:
            return self.state("unavailable", None, wanted, "a tree has no GPU driver behind it", SOURCE)
        from env import gpu  # NVML and what bounds it: only where a GPU is named
        from env.probes import bounded

        said = bounded(self._settings, limit_s=gpu.NVML_LIMIT_S)
        if not said.known:
            return self.state("unknown", None, wanted, f"NVML: {said.reason}", SOURCE)
        locked = self._ours()
        current = said.value if locked is None else f"clocks locked at {named(locked)}, {said.value}"
        if wanted is None:
            return self.state("stable", current, None, FREE, SOURCE)
        if locked is not None:
            return self.state("stable", current, wanted, "", SOURCE)
        refused = self.host.refused.get(SOURCE)
        if refused is not None:
            return self.state(
                "locked", current, wanted, f"the clocks were not locked: {refused.reason}", SOURCE
            )
        if not self.host.privilege.available():
            reason = "needs root: sudo nvidia-smi --lock-gpu-clocks MHZ,MHZ"
            return self.state("locked", current, wanted, reason, SOURCE)
        return self.state("unstable", current, wanted, "the clocks are the driver's choice", SOURCE)

    def plan(self) -> list[str]:
        """One sentence."""
        return [f"lock the clocks of GPU {self.index} at {named(self.target())}"] if self._to_do() else []

    def changes(self) -> list[Any]:
        """No plain write; but a clock that the GPU does not have is refused before the first of them."""
        if self._to_do():
            self.target()
        return []

    def apply(self) -> None:
        """Lock them, when asked."""
        if not self._to_do() or not self.host.privilege.available():
            return
        from env import gpu

        mhz, uuid = self.target(), gpu.uuid(self._library(), self.index or 0)
        if self.host.journal is not None:
            self.host.journal.operation(self.name, "lock-clocks", uuid=uuid, mhz=mhz)
        failure = self.host.privilege.gpu_clocks(uuid, mhz)
        if failure is not None:
            self.host.refused[SOURCE] = failure
            if self.host.journal is not None:
                self.host.journal.operation(self.name, "refused", uuid=uuid)
        else:
            self.host.refused.pop(SOURCE, None)
            self._locked = mhz

    def restore(self, before: Sequence[Entry]) -> list[str]:
        """Let the driver choose again."""
        left = []
        newest = {str(entry.data["uuid"]): entry.op for entry in reversed(before)}
        for uuid in (uuid for uuid, op in newest.items() if op == "lock-clocks"):
            failure = self.host.privilege.gpu_clocks(uuid, None)
            if failure is not None:
                remedy = f"`sudo nvidia-smi -i {uuid} --reset-gpu-clocks` does it"
                left.append(f"the clocks of {uuid} could not be let go: {failure.reason}; {remedy}")
        self._locked = None
        return left

    def target(self) -> int:
        """The clock to lock at, MHz or NVML's word for the base clock; UsageError for one that this GPU lacks."""
        if self.asked == BASE:
            return helper.BASE_CLOCK
        offered, mhz = self._offered(), int(self.asked or 0)
        if offered and mhz not in offered:
            closest = sorted(offered, key=lambda one: abs(one - mhz))[:3]
            raise UsageError(
                f"--lock-gpu-clocks {mhz}: this GPU has no such clock; the nearest are {_listed(closest)}"
            )
        return mhz

    def _to_do(self) -> bool:
        return (
            self.asked is not None
            and self.index is not None
            and (self.host.files.real or self._nvml is not None)
            and self._ours() is None
        )

    def _ours(self) -> int | None:
        """The clock that this program locked: now, or by an `env apply` that stands."""
        if self._locked is not None:
            return self._locked
        standing = self.host.standing
        entries = standing.of(self.name, operations=True) if standing is not None else []
        return next((int(entry.data["mhz"]) for entry in entries), None)

    def _settings(self) -> str:
        from env import gpu

        found = gpu.describe(self._library(), self.index or 0)
        parts = [found.model or "GPU"]
        if found.max_sm_mhz is not None:
            parts.append(f"up to {found.max_sm_mhz} MHz")
        if found.power_limit_w is not None:
            parts.append(f"{found.power_limit_w:g} W")
        parts += [
            f"{word} {_on(value)}" for word, value in (("ECC", found.ecc), ("persistence", found.persistence))
        ]
        return ", ".join(parts)

    def _library(self) -> Any:
        from env import gpu

        return gpu.start(self._nvml)

    def _ask(self, name: str, *arguments: Any) -> Any:
        from env import gpu

        library = self._library()
        return gpu.ask(library, name, library.nvmlDeviceGetHandleByIndex(self.index), *arguments)

    def _offered(self) -> list[int]:
        """The clocks that the GPU can be set to at its highest memory clock, MHz; empty where it does not say."""
        memory = self._ask("nvmlDeviceGetSupportedMemoryClocks") or []
        return list(self._ask("nvmlDeviceGetSupportedGraphicsClocks", max(memory)) or []) if memory else []


def _on(value: bool | None) -> str:
    return "unknown" if value is None else ("on" if value else "off")


def _listed(clocks: Sequence[int]) -> str:
    return ", ".join(str(mhz) for mhz in sorted(clocks))


def named(clock: int) -> str:
    """A clock as a person says it."""
    return "the base clock" if clock == helper.BASE_CLOCK else f"{clock} MHz"


def parse(text: str) -> str:
    """What --lock-gpu-clocks takes: `base` or a whole number of MHz. Raises UsageError."""
    if text == BASE or (text.isdigit() and 0 < int(text) <= helper.MOST_MHZ):
        return text
    raise UsageError(f"--lock-gpu-clocks {text}: give MHz as a whole number, such as 1410, or `base`")
