"""The SMT step: no thread of a bench core belongs to anybody else. Nothing is taken offline."""

from __future__ import annotations

from env.cpulist import format_list
from env.knob import Knob
from env.step import State
from env.sysfs import CPU


class Smt(Knob):
    """Two threads of a core share its units.

    Whole cores are chosen in place of taking siblings offline: that would break other people's cpusets
    and interrupt masks.
    """

    name = "smt"
    why = "a busy sibling thread takes up to half of the core that is being measured"
    source = f"{CPU}/smt/active"

    def probe(self) -> State:
        """Whether the bench cores are whole."""
        host = self.host
        control = host.files.read(f"{CPU}/smt/control").value
        active = host.files.read(self.source).value == "1"
        cores = host.topology.cores
        if not active and all(len(core) == 1 for core in cores):
            return self.state("stable", control or "off", None, "", self.source)
        bench = frozenset(host.bench)
        outside = (
            frozenset().union(*(core for core in cores if core & bench)) - bench if cores else frozenset()
        )
        wanted = "whole cores"
        if outside:
            reason = (
                f"bench CPU {format_list(bench)} splits a core: CPU {format_list(outside)} stays with the system; "
                f"choose --cpus {format_list(bench | outside)}"
            )
            return self.state("locked", "split cores", wanted, reason, self.source)
        return self.state("stable", "on, whole cores", wanted, "", self.source)
