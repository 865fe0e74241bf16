"""The difference of two sets of processes: trimmed where there are enough of them, as SciPy computes it."""

from __future__ import annotations

import math
import random

import pytest
from scipy import stats as scipy_stats

from fastrnns.measure import difference


def logs(count: int, seed: int, level: float = 0.0) -> list[float]:
    drawn = random.Random(seed)
    return [level + drawn.gauss(0, 0.01) for _ in range(count)]


def with_slow_ones(values: list[float]) -> list[float]:
    """One process in ten 12 % slower."""
    return [value + (0.12 if place % 10 == 3 else 0.0) for place, value in enumerate(values)]


@pytest.mark.parametrize(("base", "new"), [(14, 14), (15, 20), (20, 14)])
def test_a_process_now_and_then_that_is_slow_is_judged_by_trimmed_means_as_yuen_does(base, new):
    sides = with_slow_ones(logs(base, 1)), with_slow_ones(logs(new, 2, 0.02))
    found = difference.unpaired(*sides)
    wanted = scipy_stats.ttest_ind(sides[1], sides[0], equal_var=False, trim=difference.TRIM)
    assert found.p_different() == pytest.approx(wanted.pvalue)
    low, high = wanted.confidence_interval(0.95)
    assert found.interval() == pytest.approx((math.exp(low), math.exp(high)))


def test_two_modes_are_judged_by_means():
    modes = [0.08 * (place % 5 < 2) for place in range(20)]
    base = [mode + value for mode, value in zip(modes, logs(20, 9), strict=True)]
    new = [mode + value for mode, value in zip(modes, logs(20, 10, 0.1), strict=True)]
    assert difference.unpaired(base, new) == difference.welch(base, new)


@pytest.mark.parametrize(("base", "new"), [(5, 5), (13, 20)])
def test_few_processes_are_judged_by_their_means_as_welch_does(base, new):
    sides = logs(base, 3), logs(new, 4, 0.02)
    wanted = scipy_stats.ttest_ind(sides[1], sides[0], equal_var=False)
    assert difference.unpaired(*sides).p_different() == pytest.approx(wanted.pvalue)


def test_one_slow_process_in_ten_hides_no_small_difference():
    base, new = with_slow_ones(logs(20, 5)), with_slow_ones(logs(20, 6, 0.03))
    assert difference.unpaired(base, new).p_different() < 0.005
    assert difference.welch(base, new).p_different() > 0.01


def test_a_pair_is_judged_by_the_trimmed_mean_of_its_differences_where_one_in_ten_is_slow():
    base, new = logs(20, 7), with_slow_ones(logs(20, 8, 0.02))
    differences = [b - a for a, b in zip(base, new, strict=True)]
    assert difference.pairwise(base, new).log_ratio == pytest.approx(scipy_stats.trim_mean(differences, 0.2))
    few = difference.pairwise(base[:5], new[:5])
    assert few.p_different() == pytest.approx(scipy_stats.ttest_rel(new[:5], base[:5]).pvalue)


def test_processes_that_agree_to_the_last_digit_are_no_division_by_zero():
    same = difference.unpaired([1.0] * 8, [1.0] * 8)
    assert same.p_different() == 1.0
    assert same.error == difference.LEAST_ERROR
