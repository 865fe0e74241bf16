"""The governor step: every running CPU's frequency policy at `performance`, and what that drags along put back."""

from __future__ import annotations

from dataclasses import dataclass

from env.cpulist import format_list
from env.cpus import Policy, online, policies
from env.knob import Knob, summary
from env.step import Change, State
from env.sysfs import CPU, Files, Reading

WANTED = "performance"
TUNED_GOVERNORS = frozenset({"ondemand", "conservative", "schedutil"})  # their tunables go when they go


@dataclass(frozen=True)
class Found:
    """One policy with its governor."""

    policy: Policy
    governor: Reading
    offered: frozenset[str] | None  # None where the kernel does not list them

    @property
    def offers(self) -> bool:
        """Whether the driver can do what we want."""
        return self.offered is None or WANTED in self.offered


def drivers(files: Files, found: list[Policy]) -> list[str]:
    """The frequency drivers of the policies, each once."""
    return sorted({value for policy in found if (value := files.read(f"{policy.path}/scaling_driver").value)})


class Governor(Knob):
    """Governors other than `performance` move the frequency with the load that is being measured."""

    name = "governor"
    why = "the clock follows the load, so an iteration's time depends on what ran before it"
    source = f"{CPU}/cpufreq/policy*/scaling_governor"
    remedy = f"echo {WANTED} | sudo tee {source}"

    def probe(self) -> State:
        """`performance` on every policy of a running CPU, and nothing less."""
        files = self.host.files
        found = self._found()
        if not found:
            reason = (
                "no cpufreq interface (a virtual machine, or no frequency driver): the clock is set outside "
                "and may move; set the governor on the host, and compare only with runs on this machine"
            )
            return self.state("unavailable", None, WANTED, reason, f"{CPU}/cpufreq")
        unread = [f for f in found if f.governor.word is None]
        values = {cpu: f.governor.word for f in found if f.governor.word for cpu in sorted(f.policy.cpus)}
        current = summary(values) if values else None
        wrong = [f for f in found if f.governor.word not in {None, WANTED}]
        if not wrong:
            if unread:
                failure = unread[0].governor.failure
                assert failure is not None  # noqa: S101 - a reading without text has its failure
                cpus = format_list(cpu for f in unread for cpu in f.policy.cpus)
                reason = f"the governor of CPU {cpus} cannot be read ({failure.reason}), so it is left alone"
                return self.state("unknown", current, WANTED, reason, failure.path)
            return self.state("stable", current, WANTED, "", self.source)
        cpus = format_list(cpu for f in wrong for cpu in f.policy.cpus)
        able = [f for f in wrong if f.offers]
        what = f"CPU {cpus}: not {WANTED}"
        if not able:
            names = ", ".join(drivers(files, [f.policy for f in wrong])) or "unknown"
            offered = " ".join(sorted(wrong[0].offered or ()))
            what = f"{what}; the driver ({names}) offers only: {offered}"
            return self.state("locked", current, WANTED, what, self.source)
        return self.unmet(
            [f.governor.path for f in able], str(current), WANTED, what, self.source, self.remedy
        )

    def changes(self) -> list[Change]:
        """The governors, each after the values that change with it."""
        planned = []
        for item in self._found():
            old, path = item.governor.word, item.governor.path
            if old is None or not item.offers or self.host.unwritable(path):
                continue
            if old != WANTED:
                planned += self._dragged(item.policy, old, path)
            planned.append(Change(self.name, path, old, WANTED))
        return planned

    def _dragged(self, policy: Policy, old: str, carrier: str) -> list[Change]:
        """Energy preference, fixed speed and tunables: gone or overridden while `performance` stands."""
        files = self.host.files
        paths = [f"{policy.path}/energy_performance_preference"]
        if old == "userspace":
            paths.append(f"{policy.path}/scaling_setspeed")
        if old in TUNED_GOVERNORS:
            paths += files.glob(f"{policy.path}/{old}", "*") + files.glob(f"{CPU}/cpufreq/{old}", "*")
        dragged = []
        for path in paths:
            word = files.read(path).word
            if word is not None and (path.endswith("preference") or word.isdigit()):
                dragged.append(Change(self.name, path, word, None, rides_on=carrier))
        return dragged

    def _found(self) -> list[Found]:
        files = self.host.files
        found = []
        for policy in policies(files, online(files)):
            governor = files.read(f"{policy.path}/scaling_governor")
            if governor.missing:
                continue
            offered = files.read(f"{policy.path}/scaling_available_governors").value
            found.append(Found(policy, governor, frozenset(offered.split()) if offered else None))
        return found
