"""Bisection: the first bad version is found in log2 steps, and what could not be decided is never guessed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import bench, phase, result

from fastrnns.archive import compare
from fastrnns.matrix import bisection, judging
from fastrnns.matrix.bisection import BAD, GOOD, UNDECIDED
from fastrnns.matrix.hunt import Hunt, Undecided, more
from fastrnns.measure.plan import Plan


def least_asks(count: int) -> int:
    return math.ceil(math.log2(count - 1)) if count > 2 else 0


@given(st.integers(2, 300), st.data())
def test_the_first_bad_version_is_found_in_log2_answers(count, data):
    first = data.draw(st.integers(1, count - 1))
    asked = []

    def judge(index):
        asked.append(index)
        return BAD if index >= first else GOOD

    found = bisection.search(count, judge)
    assert found.first_bad == first
    assert found.good == first - 1
    assert len(asked) == len(set(asked)) <= least_asks(count)


@given(st.integers(3, 60), st.data())
def test_what_is_undecided_is_never_taken_for_good_or_bad(count, data):
    first = data.draw(st.integers(1, count - 1))
    unknown = data.draw(st.sets(st.integers(1, count - 2)))
    found = bisection.search(
        count, lambda index: UNDECIDED if index in unknown else BAD if index >= first else GOOD
    )
    assert found.good < first <= found.bad
    assert found.good not in unknown
    assert found.bad not in unknown
    assert set(range(found.good + 1, found.bad)) <= unknown
    decided = first not in unknown and first - 1 not in unknown
    assert (found.first_bad == first) if decided else (found.first_bad in {None, first})


def test_two_versions_leave_nothing_to_ask():
    assert bisection.search(2, lambda _: pytest.fail("asked")).first_bad == 1


def record(level=10.0, noise=0.001, processes=5, seed=0, model="cudnn", **changes):
    rng = random.Random(f"{level} {noise} {processes} {seed}")
    times = [[level * math.exp(rng.gauss(0, noise))] * 5 for _ in range(processes)]
    return bench(model, results=[result(model, forward=phase(*times), backward=None) | changes])


@dataclass
class Versions:
    """A machine on which each version has its level; what was asked of it is kept."""

    levels: dict[str, float]
    noise: dict[str, float] = field(default_factory=dict)
    failing: frozenset[str] = frozenset()
    asked: list[tuple[str, int, float | None]] = field(default_factory=list)

    def measure(self, good, version, plan, margin):
        self.asked.append((version, plan.processes, margin))
        if version in self.failing:
            return f"{version}: it could not be installed: no wheel"
        noise = self.noise.get(version, 0.001)
        sides = [
            record(self.levels[each], noise, plan.processes, index)
            for index, each in enumerate((good, version))
        ]
        return compare.compare(*sides, margin=compare.MARGIN if margin is None else margin)


def hunt(machine, **changes):
    return Hunt(list(machine.levels), Plan(processes=5, most_processes=5), machine.measure, **changes)


def stepped(count, first, slowdown=1.2):
    return {f"v{index}": 10.0 * (slowdown if index >= first else 1.0) for index in range(count)}


@pytest.mark.parametrize("first", range(1, 9))
def test_a_planted_step_is_found_by_the_verdicts_of_compare(first):
    machine = Versions(stepped(9, first))
    search = hunt(machine)
    assert search.run().first_bad == first
    assert len(machine.asked) == 1 + 3  # both ends, then three halvings
    assert machine.asked[0] == ("v8", 5, None)
    assert all(margin == pytest.approx(1.2**0.5 - 1, abs=0.002) for _, _, margin in machine.asked[1:])


def test_a_lesser_step_before_the_great_one_is_not_taken_for_it():
    machine = Versions({"a": 10.0, "b": 10.3, "c": 10.3, "d": 13.0, "e": 13.0})
    assert hunt(machine).run().first_bad == 3
    assert hunt(machine, margin=0.01).run().first_bad == 1


def test_what_tells_nothing_is_asked_again_with_twice_the_processes_and_then_said():
    machine = Versions(stepped(3, 2), noise={"v1": 0.6})
    told = []
    search = hunt(machine, say=told.append)
    found = search.run()
    assert found.first_bad is None
    assert (found.good, found.bad) == (0, 2)
    assert [(version, processes) for version, processes, _ in machine.asked] == [
        ("v2", 5), ("v1", 5), ("v1", 10), ("v1", 20),
    ]  # fmt: skip
    assert any(text.startswith("v1: inconclusive (") and "again with 10 processes" in text for text in told)
    assert search.asked[-1]["answer"] == UNDECIDED
    assert "inconclusive" in search.asked[-1]["reason"]


def test_more_processes_can_tell_and_then_the_answer_counts():
    machine = Versions(stepped(3, 2, 1.1), noise={"v1": 0.04})
    search = hunt(machine, repeats=4)
    assert search.run().first_bad == 2
    assert len(machine.asked) > 2


def test_a_version_that_cannot_be_installed_is_gone_around():
    machine = Versions(stepped(5, 3), failing=frozenset({"v2"}))
    search = hunt(machine)
    found = search.run()
    assert (found.good, found.bad) == (1, 3)
    assert found.first_bad is None  # v2 lies between, and may be the first bad one
    assert search.asked[1] == {
        "version": "v2", "answer": UNDECIDED, "reason": "v2: it could not be installed: no wheel",
    }  # fmt: skip
    assert sum(version == "v2" for version, _, _ in machine.asked) == 1


@pytest.mark.parametrize("levels", [{"a": 10.0, "b": 10.0, "c": 10.0}, {"a": 10.0, "b": 9.0, "c": 8.0}])
def test_a_bad_version_that_is_not_slower_is_no_bisection(levels):
    search = hunt(Versions(levels))
    with pytest.raises(Undecided, match="c is not shown to be slower than a"):
        search.run()
    assert search.asked[0]["answer"] == UNDECIDED


def test_a_bad_version_that_does_not_run_is_said_with_the_reason():
    with pytest.raises(Undecided, match="no wheel"):
        hunt(Versions(stepped(3, 1), failing=frozenset({"v2"}))).run()


def test_a_model_that_fails_is_undecided_and_not_repeated():
    base = record()
    failed = record(status="failed", error="no kernel", forward=None)
    comparison = compare.compare(base, failed)
    wanted = judging.Slowdown((("cudnn", "forward", 1.2),), 0.1)
    assert judging.judged(comparison, wanted)[0] == UNDECIDED
    assert judging.hopeless(comparison, wanted)
    machine = Versions(stepped(3, 2))
    search = hunt(machine)
    measure = machine.measure
    search.measure = lambda good, version, plan, margin: (
        comparison if version == "v1" else measure(good, version, plan, margin)
    )
    assert search.run().first_bad is None
    assert "no kernel" in search.asked[-1]["reason"]
    assert len(machine.asked) == 1


def test_records_that_may_not_be_compared_decide_nothing():
    other = record()
    other["options"]["dtype"] = "bf16"
    answer, reason = judging.judged(
        compare.compare(record(), other), judging.Slowdown((("cudnn", "forward", 1.2),), 0.1)
    )
    assert answer == UNDECIDED
    assert "dtype" in reason


def test_only_the_greater_slowdowns_are_looked_at_and_half_of_the_least_of_them_is_the_limit():
    rows = [
        compare.Row(name, "rnns", "forward", verdict, ratio=ratio, ci95=(ratio / 1.02, ratio * 1.02))
        for name, verdict, ratio in (
            ("a", compare.SLOWER, 1.44), ("b", compare.SLOWER, 1.21), ("c", compare.SLOWER, 1.03),
            ("d", compare.INCONCLUSIVE, 2.0), ("e", compare.FASTER, 0.5),
        )
    ]  # fmt: skip
    comparison = compare.Comparison("base", "new", tuple(rows), (), False, None, (), ())
    found = judging.slowdown(comparison, None, 0.01)
    assert [model for model, _, _ in found.rows] == ["a", "b"]
    assert found.margin == pytest.approx((1.21 / 1.02) ** 0.5 - 1)
    assert judging.slowdown(comparison, 0.03, 0.01).margin == 0.03
    assert "a forward (+44.0%)" in str(found)


def test_more_doubles_what_ran_and_the_budget_with_it():
    plan = more(Plan(processes=5, most_processes=20, budget_s=45.0), 12)
    assert (plan.processes, plan.most_processes, plan.fixed) == (24, 24, True)
    assert plan.budget_s == pytest.approx(90.0)
