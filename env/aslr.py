"""The address layout step: randomised in full, so that fresh processes are independent. Recorded only."""

from __future__ import annotations

from env.recorded import Recorded
from env.step import State

FULL = "2"


class Aslr(Recorded):
    """A fixed layout repeats one accident of alignment in every process and calls it precision."""

    name = "aslr"
    why = "with a fixed address layout all processes share one accident of alignment; fresh ones should not"
    path = "/proc/sys/kernel/randomize_va_space"
    absent = "the kernel does not say: nothing to do"

    def show(self, word: str) -> str:
        """By name."""
        return {"0": "fixed", "1": "partly random", "2": "random"}.get(word, word)

    def probe(self) -> State:
        """Full randomisation is right, and is left as it is otherwise."""
        state = super().probe()
        if state.status == "stable" and state.current != "random":
            reason = (
                "processes share their layout; sudo sysctl kernel.randomize_va_space=2 (not done from here)"
            )
            return self.state("locked", state.current, "random", reason, self.path)
        return state
