"""The NUMA balancing step: recorded, changed only with --numa-balancing."""

from __future__ import annotations

from env.recorded import Recorded


class NumaBalancing(Recorded):
    """The kernel unmaps pages to see who uses them, and moves them between nodes."""

    name = "numa"
    why = "the kernel takes page faults on purpose, and moves memory between nodes during the run"
    path = "/proc/sys/kernel/numa_balancing"
    flag = "--numa-balancing"
    example = "0"
    absent = "this kernel does not balance NUMA nodes: nothing to do"

    def asked(self) -> str | None:
        """As of --numa-balancing."""
        return self.host.wanted.numa_balancing
