"""The interrupt step: device interrupts are steered to the CPUs that are not measured on."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from env.cpulist import format_list, format_mask, parse_list, parse_mask
from env.knob import Knob
from env.step import Change, State
from env.sysfs import Reading

IRQS = "/proc/irq"
DEFAULT = f"{IRQS}/default_smp_affinity"
# The kernel says so for interrupts that it manages itself, and for those of one CPU.
IMMOVABLE = frozenset({errno.EIO, errno.EINVAL, errno.EPERM, errno.ENOSPC})


@dataclass(frozen=True)
class Interrupt:
    """One interrupt line: the CPUs that may serve it, and those it should be left to."""

    reading: Reading
    cpus: frozenset[int]
    wanted: frozenset[int]


class Irq(Knob):
    """Interrupts stop whatever their CPU runs, and leave its caches cold."""

    name = "irq"
    why = "a device interrupt on a bench CPU lengthens single iterations at random"
    source = f"{IRQS}/*/smp_affinity_list"

    def probe(self) -> State:
        """How many interrupts may still be served by the bench CPUs."""
        bench = frozenset(self.host.bench)
        wanted = f"none on {format_list(bench)}"
        lines, unread = self._interrupts(bench)
        if not lines:
            if unread is not None and unread.failure is not None:
                return self.unreadable(unread.failure, wanted, self.source)
            return self.state(
                "unavailable", None, wanted, "no interrupts can be seen here (a container?)", IRQS
            )
        on = [line for line in lines if line.cpus & bench]
        fixed = [line for line in on if self._immovable(line)]
        movable = [line for line in on if line not in fixed]
        notes = [f"{len(fixed)} cannot be moved"] if fixed else []
        if self.balancer():
            notes.append("irqbalance is running and may move them back: sudo systemctl stop irqbalance")
        current = f"{len(on)} of {len(lines)} may come to CPU {format_list(bench)}" if on else "none"
        if not movable:
            return self.state("stable", current, wanted, "; ".join(notes), self.source)
        what = "; ".join([f"{len(movable)} interrupts may come to the bench CPUs", *notes])
        rest = format_list(self._elsewhere(bench))
        remedy = f"echo {rest} | sudo tee {movable[0].reading.path} (and so on)"
        return self.unmet([line.reading.path for line in movable], current, wanted, what, self.source, remedy)

    def changes(self) -> list[Change]:
        """Every interrupt without the bench CPUs, and the default for those to come."""
        bench = frozenset(self.host.bench)
        planned = []
        default = self.host.files.read(DEFAULT)
        if default.value and not self.host.unwritable(DEFAULT):
            try:
                cpus = parse_mask(default.value)
            except ValueError:
                cpus = frozenset()
            rest = cpus - bench
            if rest and rest != cpus:
                planned.append(
                    Change(self.name, DEFAULT, default.value, format_mask(rest, like=default.value))
                )
        for line in self._interrupts(bench)[0]:
            old = line.reading.value
            if old and line.wanted != line.cpus and not self.host.unwritable(line.reading.path):
                planned.append(Change(self.name, line.reading.path, old, format_list(line.wanted)))
        return planned

    def balancer(self) -> bool:
        """Whether irqbalance runs: by its socket or pid file."""
        files = self.host.files
        if files.glob("/run/irqbalance", "*.sock") or files.glob("/run", "irqbalance*.sock"):
            return True
        pid = files.read("/run/irqbalance.pid").value
        return bool(pid and files.read(f"/proc/{pid}/comm").value == "irqbalance")

    def _elsewhere(self, bench: frozenset[int]) -> frozenset[int]:
        return self.host.topology.online - bench

    def _immovable(self, line: Interrupt) -> bool:
        refused = self.host.refused.get(line.reading.path)
        if not line.wanted:
            return True
        return refused is not None and refused.errno in IMMOVABLE and self.host.privilege.available()

    def _interrupts(self, bench: frozenset[int]) -> tuple[list[Interrupt], Reading | None]:
        files = self.host.files
        lines, unread = [], None
        for name in files.names(IRQS):
            if not name.isdigit():
                continue
            reading = files.read(f"{IRQS}/{name}/smp_affinity_list")
            if reading.text is None:
                unread = reading if not reading.missing else unread
                continue
            try:
                cpus = parse_list(reading.text)
            except ValueError:
                continue
            rest = (cpus - bench) or self._elsewhere(bench)
            lines.append(Interrupt(reading, cpus, rest if cpus & bench else cpus))
        return lines, unread
