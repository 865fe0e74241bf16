"""What the watch looks at once a second or so: frequency, heat, settings, the partition, the GPU."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from env.samplers import Processors, Seen, read_once
from env.sysfs import CPU

# Governors move in steps of a few per cent; a fall by a tenth is throttling or a changed limit.
FREQUENCY_FALL = 0.9
BUSY_SHARE = 0.8  # a CPU below this is partly idle, and an idle CPU's frequency says nothing


class Frequencies:
    """The frequency of each bench CPU while it is busy."""

    name = "frequency"
    every_s = 1.0

    def __init__(self, root: Path, cpus: Iterable[int], processors: Processors) -> None:
        paths = {cpu: root / f"{CPU[1:]}/cpu{cpu}/cpufreq/scaling_cur_freq" for cpu in cpus}
        self.paths = {cpu: str(path) for cpu, path in paths.items() if path.exists()}
        self.processors = processors
        self.low_mhz: float | None = None
        self.high_mhz: float | None = None
        self.timeline: list[float] = []

    def look(self, _span_s: float) -> Seen:
        """Read the busy CPUs only: reading an idle one may wake it."""
        values = []
        for cpu, path in self.paths.items():
            if self.processors.busy_share.get(cpu, 0.0) >= BUSY_SHARE:
                try:
                    values.append(int(read_once(path)) / 1000)
                except (OSError, ValueError):
                    continue
        if not values:
            return Seen()
        low = min(values)
        self.low_mhz = low if self.low_mhz is None else min(low, self.low_mhz)
        self.high_mhz = max(values) if self.high_mhz is None else max(*values, self.high_mhz)
        fell = low < FREQUENCY_FALL * self.high_mhz
        return Seen({"mhz": low}, ("the frequency fell",) if fell else ())

    def facts(self) -> dict[str, Any]:
        """The lowest and the highest seen on a busy CPU; null where the kernel shows none."""
        return {"busy_min_mhz": self.low_mhz, "busy_max_mhz": self.high_mhz}

    def close(self) -> None:
        """Nothing is held."""


class Thermal:
    """How often the bench CPUs and their packages were throttled by heat."""

    name = "thermal"
    every_s = 1.0

    def __init__(self, root: Path, cpus: Iterable[int]) -> None:
        names = ("core_throttle_count", "package_throttle_count")
        paths = [root / f"{CPU[1:]}/cpu{cpu}/thermal_throttle/{name}" for cpu in cpus for name in names]
        self.paths = [str(path) for path in paths if path.exists()]
        self.last: int | None = None
        self.events = 0

    def look(self, _span_s: float) -> Seen:
        """The sum of all counters: any rise is a throttling."""
        if not self.paths:
            return Seen()
        now = 0
        for path in self.paths:
            try:
                now += int(read_once(path))
            except (OSError, ValueError):
                continue
        before, self.last = self.last, now
        if before is None or now <= before:
            return Seen()
        self.events += now - before
        return Seen({"throttled": now - before}, ("thermal throttling",))

    def facts(self) -> dict[str, Any]:
        """The number of events; null where there are no counters."""
        return {"events": self.events if self.paths else None}

    def close(self) -> None:
        """Nothing is held."""


class Settings:
    """The machine's settings, a few at each look: a daemon that puts one back is caught while it matters."""

    name = "settings"
    every_s = 0.5
    A_LOOK = 8

    def __init__(self, files: Mapping[str, Path]) -> None:
        self.files = {str(path): name for name, path in files.items()}
        self.first: dict[str, str] = {}
        self.changed: dict[str, dict[str, str]] = {}
        self.order = list(self.files)
        self.next = 0
        for path in self.order:
            text = self._text(path)
            if text is not None:
                self.first[path] = text

    @staticmethod
    def _text(path: str) -> str | None:
        try:
            return read_once(path).decode(errors="replace").strip()
        except OSError:
            return None

    def look(self, _span_s: float) -> Seen:
        """The next few files of the round."""
        causes = []
        for _ in range(min(self.A_LOOK, len(self.order))):
            path = self.order[self.next % len(self.order)]
            self.next += 1
            text = self._text(path)
            before = self.first.get(path)
            if text is not None and before is not None and text != before:
                name = self.files[path]
                self.changed[name] = {"before": before, "now": text}
                causes.append(f"{name} changed from {before} to {text}")
        return Seen({}, tuple(causes))

    def facts(self) -> dict[str, Any]:
        """How many are watched, and which changed."""
        return {"watched": len(self.order), "changed": self.changed}

    def close(self) -> None:
        """Nothing is held."""


class Partition:
    """The state of a partition, which the kernel may take back at any moment."""

    name = "partition"
    every_s = 0.2

    def __init__(self, file: Path) -> None:
        self.file = str(file)
        self.states: list[str] = []

    def look(self, _span_s: float) -> Seen:
        """Anything but the state at the start is a disturbance."""
        try:
            text = read_once(self.file).decode(errors="replace").strip()
        except OSError as error:
            text = f"gone ({error.strerror})"
        if not self.states or self.states[-1] != text:
            self.states.append(text)
        bad = "invalid" in text or text.startswith("gone") or text != self.states[0]
        return Seen({}, (f"the partition became {text}",) if bad else ())

    def facts(self) -> dict[str, Any]:
        """Every state it was in, in order."""
        return {"states": self.states}

    def close(self) -> None:
        """Nothing is held."""


class Gpu:
    """One GPU through NVML, as `env.gpu` reads it."""

    name = "gpu"
    every_s = 1.0

    def __init__(self, sample: Callable[[int], Any], index: int, slowing: Collection[str]) -> None:
        self.sample = sample
        self.slowing = slowing
        self.index = index
        self.low: dict[str, float] = {}
        self.high: dict[str, float] = {}
        self.reasons: dict[str, int] = {}
        self.error: str | None = None

    def look(self, _span_s: float) -> Seen:
        """Numbers into their range; event reasons that slow the GPU down into causes."""
        try:
            found = self.sample(self.index)
        except Exception as error:  # NVML raises its own kinds
            self.error = str(error) or type(error).__name__
            return Seen()
        if not isinstance(found, Mapping):
            return Seen()
        for key, value in found.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                self.low[key] = min(value, self.low.get(key, value))
                self.high[key] = max(value, self.high.get(key, value))
        reasons = [str(item) for item in found.get("event_reasons") or ()]
        for reason in reasons:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
        causes = [f"GPU: {reason}" for reason in reasons if reason in self.slowing]
        errors = found.get("ecc_uncorrected")
        if isinstance(errors, int) and self.low.get("ecc_uncorrected", errors) < errors:
            causes.append("GPU: uncorrected memory errors")
        return Seen({}, tuple(causes))

    def facts(self) -> dict[str, Any]:
        """The range of each number and how often each reason was seen."""
        ranges = {key: [self.low[key], self.high[key]] for key in sorted(self.low)}
        return {"ranges": ranges, "reasons": self.reasons, "error": self.error}

    def close(self) -> None:
        """NVML belongs to `env.gpu`."""
