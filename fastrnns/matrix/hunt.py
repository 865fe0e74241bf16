"""A bisection as it is run: environments made when they are needed, pairs measured, open answers asked again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fastrnns.archive.compare import INCONCLUSIVE, MARGIN, NOT_COMPARABLE, Comparison
from fastrnns.errors import HarnessError
from fastrnns.matrix import bisection, judging
from fastrnns.matrix.bisection import UNDECIDED, Answer, Found
from fastrnns.matrix.judging import Slowdown
from fastrnns.measure.plan import Plan

# Measures the second version against the first with a plan, and judges with a margin; or says why it could not.
Measure = Callable[[str, str, Plan, "float | None"], "Comparison | str"]


class Undecided(HarnessError):  # noqa: N818 - it names the answer
    """The search could not begin: whether the bad version is slower at all was not shown."""


@dataclass
class Hunt:
    """One search: over which versions, with which plan, and everything that was asked on the way."""

    labels: Sequence[str]  # in order; the first is good, the last bad
    plan: Plan
    measure: Measure
    margin: float | None = None
    repeats: int = 2
    say: Callable[[str], None] = lambda _text: None
    asked: list[dict[str, Any]] = field(default_factory=list)
    wanted: Slowdown | None = None

    def run(self) -> Found:
        """Confirm that the last version is slower than the first, then search between them.

        Raises:
            Undecided: it is not, or it could not be told.
        """
        good, bad = self.labels[0], self.labels[-1]
        comparison, why = self._asked(bad, self.margin, _open)
        if comparison is not None:
            self.wanted = judging.slowdown(comparison, self.margin, MARGIN)
        if comparison is None or self.wanted is None:
            answer = comparison.overall if comparison is not None else UNDECIDED
            self._keep(bad, UNDECIDED, why or answer)
            raise Undecided(
                f"{bad} is not shown to be slower than {good} ({why or answer}), so there is no first bad version;"
                " compare other versions, or measure with more --processes"
            )
        self._keep(bad, bisection.BAD, str(self.wanted))
        self.say(f"{bad} is slower than {good}: {self.wanted}")
        return bisection.search(len(self.labels), lambda index: self._judge(self.labels[index]))

    def _judge(self, label: str) -> Answer:
        wanted = self.wanted
        assert wanted is not None  # noqa: S101 - run() has set it before it searches

        def open_(comparison: Comparison) -> bool:
            undecided = judging.judged(comparison, wanted)[0] == UNDECIDED
            return undecided and not judging.hopeless(comparison, wanted)

        comparison, why = self._asked(label, wanted.margin, open_)
        answer, reason = (UNDECIDED, why) if comparison is None else judging.judged(comparison, wanted)
        self._keep(label, answer, reason)
        self.say(f"{label} is {answer}: {reason}")
        return answer

    def _asked(
        self, label: str, margin: float | None, open_: Callable[[Comparison], bool]
    ) -> tuple[Comparison | None, str]:
        """Compare a version with the good one, again with twice the processes as long as the answer is open."""
        plan = self.plan
        found: Comparison | None = None
        for attempt in range(self.repeats + 1):
            answer = self.measure(self.labels[0], label, plan, margin)
            if isinstance(answer, str):
                return None, answer
            found = answer
            if not open_(found) or attempt == self.repeats:
                break
            ran = max((max(row.processes) for row in found.rows if row.processes), default=plan.processes)
            plan = more(plan, ran)
            why = next((row.reason for row in found.rows if row.reason), "no reason given")
            self.say(f"{label}: {found.overall} ({why}); again with {plan.processes} processes")
        return found, ""

    def _keep(self, label: str, answer: Answer, reason: str) -> None:
        self.asked.append({"version": label, "answer": answer, "reason": reason})


def _open(comparison: Comparison) -> bool:
    """Whether a comparison of both ends leaves it open which is slower."""
    return comparison.overall in {INCONCLUSIVE, NOT_COMPARABLE} and not any(
        row.failed for row in comparison.rows
    )


def more(plan: Plan, ran: int) -> Plan:
    """The plan with exactly twice the processes that ran, and twice the budget."""
    processes = 2 * max(ran, plan.processes)
    return replace(plan, processes=processes, most_processes=processes, budget_s=2 * plan.budget_s)
