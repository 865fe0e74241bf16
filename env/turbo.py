"""The turbo step: off by whichever switch the frequency driver has, and off only when every read-back says so."""

from __future__ import annotations

from dataclasses import dataclass

from env.cpus import Policy, online, policies
from env.governor import drivers
from env.knob import Knob, first_failure
from env.step import Change, State
from env.sysfs import CPU, Reading

NO_TURBO = f"{CPU}/intel_pstate/no_turbo"
BOOST = f"{CPU}/cpufreq/boost"
INTEL_DRIVERS = frozenset({"intel_pstate", "intel_cpufreq"})  # the active and the passive mode of one driver
CAP = "scaling_max_freq"


@dataclass(frozen=True)
class Switch:
    """One file that turns turbo off, and the value that does."""

    reading: Reading
    off: str

    @property
    def path(self) -> str:
        """Where it is."""
        return self.reading.path

    @property
    def is_off(self) -> bool:
        """Whether it reads off."""
        if self.path.endswith(CAP):
            value = self.reading.number
            return value is not None and value <= int(self.off)
        return self.reading.word == self.off


class Turbo(Knob):
    """Turbo lends a core clock that heat and neighbours take back at any moment."""

    name = "turbo"
    why = "boost clocks depend on heat, power and busy neighbours, so the same code runs at other speeds"
    wanted = "off"

    def probe(self) -> State:
        """Off, on, or what stands in the way of knowing or switching."""
        switches, problem = self._switches()
        if not switches:
            return self.state("unavailable", None, self.wanted, problem, f"{CPU}/cpufreq")
        source = switches[0].path
        failure = first_failure(s.reading for s in switches)
        on = [s for s in switches if not s.is_off and s.reading.word is not None]
        if failure and not on:
            return self.unreadable(failure, self.wanted, source)
        if not on:
            ours = self.host.standing or self.host.journal
            set_by_us = any(e.path == source and e.old != e.new for e in ours.entries) if ours else False
            note = (
                ""
                if set_by_us
                else "off already (set so before, or locked by firmware or absent): nothing to write"
            )
            return self.state("stable", "off", self.wanted, note, source)
        share = "" if len(on) == len(switches) else f" on {len(on)} of {len(switches)} policies"
        remedy = f"echo {on[0].off} | sudo tee {' '.join(s.path for s in on[:1])}" + (
            " ..." if len(on) > 1 else ""
        )
        state = self.unmet([s.path for s in on], "on", self.wanted, f"turbo is on{share}", source, remedy)
        refused = self.host.refused.get(source)
        if state.status == "locked" and refused and "firmware" in refused.reason:
            reason = f"{state.reason}; only the firmware's setup (turbo, boost) can turn it off"
            return self.state("locked", "on", self.wanted, reason, source)
        return state

    def changes(self) -> list[Change]:
        """The switches, also those that are off already: a governor may turn them on again."""
        planned = []
        for switch in self._switches()[0]:
            old = switch.reading.word
            if old is None or self.host.unwritable(switch.path):
                continue
            new = old if switch.is_off else switch.off
            if new != old and not switch.path.endswith(CAP):
                planned += self._limits(switch.path)
            planned.append(Change(self.name, switch.path, old, new))
        return planned

    def _limits(self, carrier: str) -> list[Change]:
        """Frequency limits that the kernel may move with the switch."""
        files = self.host.files
        folder = carrier.rpartition("/")[0]
        own = [p for p in self._policies if p.path == folder] or self._policies
        dragged = []
        for policy in own:
            for name in ("scaling_min_freq", "scaling_max_freq"):
                reading = files.read(f"{policy.path}/{name}")
                if reading.word is not None and reading.word.isdigit():
                    dragged.append(Change(self.name, reading.path, reading.word, None, rides_on=carrier))
        return dragged

    @property
    def _policies(self) -> list[Policy]:
        return policies(self.host.files, online(self.host.files))

    def _switches(self) -> tuple[list[Switch], str]:
        """The switches in force; chosen by driver, because files of another driver may lie about."""
        files = self.host.files
        found = self._policies
        names = drivers(files, found)
        mode = files.read(f"{CPU}/intel_pstate/status").value
        by_intel = bool(INTEL_DRIVERS & set(names)) if names else mode in {"active", "passive"}
        if not names and mode is None and not found:
            by_intel = not files.read(NO_TURBO).missing
        if by_intel:
            reading = files.read(NO_TURBO)
            if not reading.missing:
                return [Switch(reading, "1")], ""
            return [], "intel_pstate drives the CPUs and has no no_turbo file: this kernel offers no switch"
        whole = files.read(BOOST)
        each = self._each(found, "boost")
        if not whole.missing and (whole.failure is None or not each):
            # Off for the whole machine makes the policies' own switches illegal to write; they must agree, though.
            leaking = [s for s in each if not s.is_off] if whole.word == "0" else []
            return [Switch(whole, "0"), *leaking], ""
        switches = each or self._each(found, "cpb")
        if switches:
            return switches, ""
        if self.host.wanted.cap_frequency and (caps := self._caps(found)):
            return caps, ""
        if not found:
            return (
                [],
                "no cpufreq interface: whether turbo is on cannot be seen from here; switch it off on the host",
            )
        driver = ", ".join(names) or "unknown"
        return [], (
            f"not controllable: the driver ({driver}) has no turbo switch here; switch it off in the firmware's setup, "
            "use a kernel that has one, or cap the clock with --cap-frequency"
        )

    def _each(self, found: list[Policy], name: str) -> list[Switch]:
        readings = [self.host.files.read(f"{policy.path}/{name}") for policy in found]
        return [Switch(reading, "0") for reading in readings if not reading.missing]

    def _caps(self, found: list[Policy]) -> list[Switch]:
        """The last resort: the highest clock that needs no turbo, as the limit of every policy."""
        files = self.host.files
        caps = []
        for policy in found:
            base = files.read(f"{policy.path}/base_frequency").number
            nominal = files.read(f"{CPU}/cpu{min(policy.cpus)}/acpi_cppc/nominal_freq").number
            limit = base or (nominal * 1000 if nominal else None)
            reading = files.read(f"{policy.path}/{CAP}")
            if limit and not reading.missing:
                caps.append(Switch(reading, str(limit)))
        return caps if len(caps) == len(found) else []
