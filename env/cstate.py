"""The C-state step: the wake-up latency held down through an open /dev/cpu_dma_latency, gone when its holder ends."""

from __future__ import annotations

from env.helper import LATENCY
from env.knob import Knob
from env.step import State
from env.sysfs import CPU

DRIVER = f"{CPU}/cpuidle/current_driver"


class CState(Knob):
    """Nothing to journal: the kernel itself lets go when the process that holds the file ends, however it ends."""

    name = "cstate"
    why = "a core that slept deeply needs up to a millisecond to wake, at the start of an iteration"
    lasting = False

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]  # a Host, as in every step
        self._held = False

    @property
    def wanted(self) -> str:
        """The latency that is accepted."""
        return f"{self.host.wanted.latency_us} us"

    def probe(self) -> State:
        """Held by us, or not; what others hold cannot be told from here."""
        files = self.host.files
        if self._held:
            return self.state("stable", f"{self.wanted}, held", self.wanted, "", LATENCY)
        driver = files.read(DRIVER).value
        if driver in {None, "none"} and not self._depths():
            reason = "the kernel manages no idle states here (a virtual machine?): the host decides"
            return self.state("unavailable", None, self.wanted, reason, DRIVER)
        if not files.exists(LATENCY):
            reason = (
                "there is no /dev/cpu_dma_latency here; use the host, or boot with intel_idle.max_cstate=1"
            )
            return self.state("unavailable", None, self.wanted, reason, LATENCY)
        failure = self.host.unwritable(LATENCY)
        if failure:
            remedy = "run the benchmark where `sudo -n` is allowed"
            return self.state(
                "locked", driver, self.wanted, f"idle states are free: {failure.reason}; {remedy}", LATENCY
            )
        reason = "idle states are free; they are held only while a command runs (bench, `env run`)"
        return self.state("unstable", driver, self.wanted, reason, LATENCY)

    def plan(self) -> list[str]:
        """Only where a process stays to hold it."""
        held = self.host.holding and self.probe().status == "unstable"
        return [f"hold {LATENCY} open at {self.wanted}"] if held else []

    def apply(self) -> None:
        """Hold it, where a process stays."""
        if not self.host.holding or self._held or self.probe().status != "unstable":
            return
        failure = self.host.privilege.hold_latency(self.host.wanted.latency_us)
        if failure:
            self.host.refused[LATENCY] = failure
        else:
            self._held = True

    def release(self) -> None:
        """Let go."""
        if self._held:
            self.host.privilege.release_latency()
            self._held = False

    def _depths(self) -> list[str]:
        return self.host.files.glob(f"{CPU}/cpu0/cpuidle", "state*")
