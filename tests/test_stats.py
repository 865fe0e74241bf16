"""Summaries: what they say of one sample, one process, several; intervals checked against SciPy's own."""

from __future__ import annotations

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastrnns.measure import stats

times = st.floats(min_value=1e-4, max_value=1e4, allow_nan=False)
runs = st.lists(st.lists(times, min_size=1, max_size=8), min_size=1, max_size=6)


def test_case_D7_one_sample_has_no_spread_and_no_interval():
    summary = stats.summarise([[12.5]])
    assert summary["n"] == 1
    assert summary["median"] == summary["mean"] == summary["min"] == 12.5
    assert summary["std"] is None
    assert summary["ci95"] is None


def test_case_D7_no_sample_is_null_and_never_zero_or_nan():
    for samples in ([], [[]], [[], []]):
        summary = stats.summarise(samples)
        assert summary["n"] == 0
        assert summary["median"] is None
        assert summary["mean"] is None


def test_few_processes_give_a_t_interval_over_their_medians():
    from scipy import stats as scipy_stats

    medians = [10.0, 10.2, 9.9, 10.1]
    summary = stats.summarise([[m - 0.1, m, m + 5] for m in medians])
    logs = [math.log(m) for m in medians]
    low, high = scipy_stats.t.interval(0.95, 3, statistics.fmean(logs), statistics.stdev(logs) / math.sqrt(4))
    assert summary["ci95"] == pytest.approx([math.exp(low), math.exp(high)])
    assert summary["median"] == pytest.approx(10.05)
    assert summary["method"] == stats.METHOD_FEW_PROCESSES


def test_processes_give_an_interval_from_their_order():
    assert stats.median_interval([3.0, 1.0, 5.0, 2.0, 4.0]) == pytest.approx((1.0, 5.0))  # 93.75 %
    # n = 10: ranks 2 and 9 cover 97.85 %, 3 and 8 89.06 %; 95 % lies between (Hettmansperger and Sheather 1986)
    ten = [math.exp(value) for value in range(1, 11)]
    excess = (0.978515625 - 0.95) / (0.978515625 - 0.890625)
    weight = 8 * excess / (2 + 6 * excess)
    assert stats.median_interval(ten) == pytest.approx((math.exp(2 + weight), math.exp(9 - weight)))
    assert stats.median_interval(ten[:4]) is None
    assert stats.summarise([[value] for value in ten])["method"] == stats.METHOD_PROCESSES


def test_one_disturbed_process_does_not_widen_the_interval():
    calm = [[10.0 + 0.01 * k] * 3 for k in range(10)]
    hit = [*calm[:9], [30.0] * 3]
    calm_low, calm_high = stats.summarise(calm)["ci95"]
    hit_low, hit_high = stats.summarise(hit)["ci95"]
    assert hit_high - hit_low < 1.1 * (calm_high - calm_low)


def test_one_process_says_that_it_covers_only_itself():
    summary = stats.summarise([[10 + 0.01 * (i * 37 % 50) for i in range(50)]])
    assert "within-process variation only" in summary["method"]
    low, high = summary["ci95"]
    assert low <= summary["median"] <= high


def test_order_interval_has_the_textbook_ranks():
    # n = 10: the second smallest and second largest cover the median with 97.9 %
    series = [3.0, 9.0, 1.0, 7.0, 5.0, 10.0, 2.0, 8.0, 4.0, 6.0]
    assert stats.autocorrelation(series) == 0.0
    assert stats.order_interval(series) == (2.0, 9.0)


def test_autocorrelated_iterations_widen_the_interval_within_a_process():
    rng = random.Random(5)
    level, walk = 0.0, []
    for _ in range(200):
        level = 0.9 * level + rng.gauss(0, 1)
        walk.append(100 + level)
    shuffled = walk[:]
    rng.shuffle(shuffled)
    wide, narrow = stats.order_interval(walk), stats.order_interval(shuffled)
    assert wide is not None
    assert narrow is not None
    assert wide[1] - wide[0] > 1.5 * (narrow[1] - narrow[0])


def test_nothing_is_dropped_for_being_large():
    assert stats.summarise([[1.0, 1.0, 1.0, 500.0]])["n"] == 4


def test_disturbed_iterations_leave_the_location_and_too_many_do_not():
    disturbed = stats.summarise([[1.0, 1.0, 1.0, 1.0, 1.0, 9.0]], excluded=[[5]])
    assert disturbed["n"] == 5
    assert disturbed["mean"] == 1.0
    assert stats.summarise([[1.0, 9.0, 9.0]], excluded=[[1, 2]])["n"] == 3


def test_bootstrap_agrees_with_the_interval():
    rng = random.Random(11)
    samples = [[10 * math.exp(rng.gauss(0, 0.02))] * 3 for _ in range(30)]
    low, high = stats.summarise(samples)["ci95"]
    b_low, b_high = stats.bootstrap_interval(samples)
    assert (b_low, b_high) == pytest.approx((low, high), rel=0.004)
    assert stats.bootstrap_interval(samples) == (b_low, b_high)  # the seed is fixed


@given(runs)
def test_the_interval_holds_the_location(samples):
    summary = stats.summarise(samples)
    if summary["ci95"] is not None:
        low, high = summary["ci95"]
        assert low * (1 - 1e-9) <= summary["median"] <= high * (1 + 1e-9)


@given(runs, st.floats(min_value=0.01, max_value=100))
def test_changing_the_unit_scales_everything(samples, factor):
    first = stats.summarise(samples)
    second = stats.summarise([[value * factor for value in series] for series in samples])
    for key in ("median", "mean", "min"):
        assert second[key] == pytest.approx(first[key] * factor, rel=1e-6)


def test_an_interval_over_orders_of_magnitude_is_not_shown_as_knowledge() -> None:
    said = stats.summarise([[800.0, 900.0], [8.0, 9.0], [650.0, 700.0]])
    assert said["ci95"] is None
    assert said["method"] == stats.METHOD_WIDE
    assert said["median"] == 675.0
