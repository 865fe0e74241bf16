"""The swap step: recorded; only the kernel's eagerness is changed, with --swappiness."""

from __future__ import annotations

from env.recorded import Recorded
from env.step import State

SWAPS = "/proc/swaps"


class Swap(Recorded):
    """A page that was swapped out costs milliseconds at its next use."""

    name = "swap"
    why = "a page that went to swap costs milliseconds at its next use"
    path = "/proc/sys/vm/swappiness"
    flag = "--swappiness"
    example = "0"
    absent = "the kernel does not say: nothing to do"

    def asked(self) -> str | None:
        """As of --swappiness."""
        return self.host.wanted.swappiness

    def show(self, word: str) -> str:
        """The eagerness, and how many swap areas there are for it."""
        areas = len(
            [line for line in (self.host.files.read(SWAPS).text or "").splitlines()[1:] if line.strip()]
        )
        return f"swappiness {word}, {areas} swap areas" if areas else f"no swap (swappiness {word})"

    def probe(self) -> State:
        """Without swap there is nothing to want."""
        return super().probe()
