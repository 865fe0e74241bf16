"""The perf step: the kernel's own sampling interrupts at their lowest rate."""

from __future__ import annotations

from env.knob import Knob
from env.step import Change, State

RATE = "/proc/sys/kernel/perf_event_max_sample_rate"
LOWEST = "1"


class Perf(Knob):
    """The limit holds for whoever samples; a profiler of ours is run with `--skip perf`."""

    name = "perf"
    why = "somebody's profiler may interrupt the bench CPUs up to this many times a second"

    def probe(self) -> State:
        """The limit, in samples a second."""
        reading = self.host.files.read(RATE)
        if reading.missing:
            return self.state("unavailable", None, LOWEST, "this kernel has no perf events", RATE)
        if reading.failure:
            return self.unreadable(reading.failure, LOWEST, RATE)
        if reading.number is not None and reading.number <= int(LOWEST):
            return self.state("stable", reading.value, LOWEST, "", RATE)
        remedy = f"echo {LOWEST} | sudo tee {RATE}"
        what = f"up to {reading.value} samples a second are allowed"
        return self.unmet([RATE], str(reading.value), LOWEST, what, RATE, remedy)

    def changes(self) -> list[Change]:
        """One write."""
        reading = self.host.files.read(RATE)
        if reading.number is None or self.host.unwritable(RATE):
            return []
        return [Change(self.name, RATE, str(reading.value), LOWEST)] if reading.number > int(LOWEST) else []
