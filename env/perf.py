"""The perf step: the kernel's own sampling interrupts at their lowest rate; for a profile, at its default."""

from __future__ import annotations

from collections.abc import Sequence

from env.journal import Entry
from env.knob import Knob
from env.step import Change, State

RATE = "/proc/sys/kernel/perf_event_max_sample_rate"
LOWEST = 1
DEFAULT = 100_000  # the kernel's own: DEFAULT_MAX_SAMPLE_RATE, kernel/events/core.c


class Perf(Knob):
    """The limit holds for whoever samples.

    A raise for a profiler is an operation of its own in the journal: the kernel lowers the limit itself under load,
    and so what stands there afterwards need not be what was written.
    """

    name = "perf"

    @property
    def why(self) -> str:  # type: ignore[override]  # it depends on what is wanted
        """What it does to the numbers."""
        if self.raised:
            return "a profiler may sample this many times a second and no more"
        return "somebody's profiler may interrupt the bench CPUs up to this many times a second"

    @property
    def raised(self) -> bool:
        """Whether a profiler is to sample."""
        return self.host.wanted.sampling

    @property
    def lasting(self) -> bool:  # type: ignore[override]  # it depends on what is wanted
        """A raise is for one command, beside what an `env apply` set."""
        return not self.raised

    @property
    def wanted(self) -> int:
        """The limit, samples a second."""
        return DEFAULT if self.raised else LOWEST

    def probe(self) -> State:
        """The limit, in samples a second."""
        wanted = str(self.wanted)
        reading = self.host.files.read(RATE)
        if reading.missing:
            return self.state("unavailable", None, wanted, "this kernel has no perf events", RATE)
        if reading.failure:
            return self.unreadable(reading.failure, wanted, RATE)
        if reading.number is not None and self._right(reading.number):
            return self.state("stable", reading.value, wanted, "", RATE)
        remedy = f"echo {wanted} | sudo tee {RATE}"
        what = f"{'only' if self.raised else 'up to'} {reading.value} samples a second are allowed"
        return self.unmet([RATE], str(reading.value), wanted, what, RATE, remedy)

    def changes(self) -> list[Change]:
        """One write, where the limit is to be lowered."""
        number = self._to_change()
        return [] if number is None or self.raised else [Change(self.name, RATE, str(number), str(LOWEST))]

    def plan(self) -> list[str]:
        """One sentence."""
        return [f"write {self.wanted} to {RATE}"] if self._to_change() is not None else []

    def apply(self) -> None:
        """Lower it as every knob is set; raise it by an operation of our own."""
        if not self.raised:
            super().apply()
            return
        number = self._to_change()
        if number is not None:
            if self.host.journal is not None:
                self.host.journal.operation(self.name, "raise", old=number)
            self.host.write(RATE, str(DEFAULT))

    def restore(self, before: Sequence[Entry]) -> list[str]:
        """Lower a raised limit to what it was, also where the kernel has lowered it part of the way."""
        raises = [entry for entry in before if entry.op == "raise"]
        if not raises:
            return []
        old, now = int(raises[-1].data["old"]), self.host.files.read(RATE).number
        if now is None or now <= old:
            return []
        failure = self.host.privilege.write(RATE, str(old))
        return [f"{RATE} could not be put back to {old}: {failure.reason}"] if failure is not None else []

    def _right(self, number: int) -> bool:
        return number >= DEFAULT if self.raised else number <= LOWEST

    def _to_change(self) -> int | None:
        """The limit that stands, where it is to be changed and may be."""
        number = self.host.files.read(RATE).number
        if number is None or self._right(number) or self.host.unwritable(RATE):
            return None
        return number
