"""The search for the first bad of several versions in order, of which the first is good and the last bad. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Answer = Literal["good", "bad", "undecided"]
GOOD: Answer = "good"
BAD: Answer = "bad"
UNDECIDED: Answer = "undecided"


@dataclass(frozen=True)
class Found:
    """Where the search ended: `good` and `bad` are neighbours, or only undecided versions lie between them."""

    good: int
    bad: int
    answers: dict[int, Answer]  # of the versions that were judged, in their order

    @property
    def first_bad(self) -> int | None:
        """The first bad version; None where those that are undecided may be it."""
        return self.bad if self.bad - self.good == 1 else None


def search(count: int, judge: Callable[[int], Answer]) -> Found:
    """Halve what lies between until nothing is left to ask: ceil(log2(count - 1)) answers where all are decided.

    What cannot be decided is left out, and the version nearest to the middle that is left is asked, as
    `git bisect skip` does. No answer is ever assumed but that what follows a bad version is bad.
    """
    good, bad = 0, count - 1
    answers: dict[int, Answer] = {}
    while (middle := _middle(good, bad, answers)) is not None:
        answers[middle] = judge(middle)
        if answers[middle] == GOOD:
            good = middle
        elif answers[middle] == BAD:
            bad = middle
    return Found(good, bad, answers)


def _middle(good: int, bad: int, answers: dict[int, Answer]) -> int | None:
    """The version to ask next; None where all between are known or cannot be decided."""
    left = [each for each in range(good + 1, bad) if each not in answers]
    return min(left, key=lambda each: abs(2 * each - good - bad), default=None)
