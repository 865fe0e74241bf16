"""The transparent huge pages step: recorded, changed only with --thp."""

from __future__ import annotations

from env.recorded import Recorded


class Thp(Recorded):
    """Whether an allocation gets huge pages depends on how fragmented memory is."""

    name = "thp"
    why = "huge pages come and go with the fragmentation of memory, and with them the misses of the TLB"
    path = "/sys/kernel/mm/transparent_hugepage/enabled"
    flag = "--thp"
    example = "never"
    absent = "this kernel has no transparent huge pages: nothing to do"

    def asked(self) -> str | None:
        """As of --thp."""
        return self.host.wanted.thp
