"""Warm-up: shapes with a known truth get their name and their end; noise alone gets none."""

from __future__ import annotations

import random

import pytest

from fastrnns.measure import warmup


def noisy(level, count, seed=1, spread=0.01):
    rng = random.Random(seed)
    return [level * (1 + rng.gauss(0, spread)) for _ in range(count)]


def test_case_D8_torchscript_profiling_runs_are_not_steady():
    samples = [1.85, 0.45] + [0.043] * 98
    shape = warmup.classify(samples, torchscript=True)
    assert shape.label == warmup.WARMUP
    assert shape.end == 2
    (note,) = warmup.notes([samples], "forward", torchscript=True)
    assert "not steady" in note
    assert samples[0] == 1.85  # raw samples are looked at, never changed


def test_case_D8_one_warm_up_run_is_too_few_for_torchscript_only():
    assert "--warmup 2" in (warmup.too_few(1, torchscript=True) or "")
    assert warmup.too_few(2, torchscript=True) is None
    assert warmup.too_few(0, torchscript=False) is None


def test_case_D8_a_late_respecialisation_is_named():
    series = [*noisy(0.11, 20), 0.778, *noisy(0.05, 60, seed=2)]
    shape = warmup.classify(series, torchscript=True)
    assert shape.label == warmup.LATE
    assert shape.end in {20, 21}
    assert warmup.classify(series).label == warmup.WARMUP


def test_case_D8_an_unrealistically_fast_first_iteration_is_named():
    assert warmup.classify([2.0, *noisy(10.0, 40)]).label == warmup.FAST_FIRST


def test_a_slowdown_is_reported_and_not_averaged_away():
    shape = warmup.classify(noisy(1.0, 30) + noisy(1.2, 60, seed=3))
    assert shape.label == warmup.SLOWDOWN
    assert shape.end == 30


def test_a_series_that_keeps_changing_has_no_steady_state():
    steps = [
        value for level in (1.0, 1.3, 1.0, 1.4, 1.1, 1.5) for value in noisy(level, 15, seed=int(level * 10))
    ]
    assert warmup.classify(steps).label == warmup.UNSTEADY
    drift = [1.0 * (1 + 0.01 * i) for i in range(100)]
    assert warmup.classify(drift).label == warmup.UNSTEADY


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_is_flat(seed):
    rng = random.Random(seed)
    heavy = [10 * (1 + 0.02 * rng.gauss(0, 1) / max(0.3, abs(rng.gauss(0, 1)))) for _ in range(100)]
    assert warmup.classify(heavy).label == warmup.FLAT
    spiky = [value * (3 if rng.random() < 0.03 else 1) for value in noisy(10, 100, seed=seed)]
    spiky[:3] = [10, 10.1, 9.9]
    assert warmup.classify(spiky).label == warmup.FLAT
    two_speeds = [rng.choice([10.0, 11.0]) * (1 + rng.gauss(0, 0.005)) for _ in range(100)]
    assert warmup.classify(two_speeds).label == warmup.FLAT


def test_timed_iterations_before_the_last_level_are_counted_as_warm_up_still():
    before, timed = [5.0, 3.0], [2.0, *noisy(1.0, 40)]
    assert warmup.late((before, timed)) == 1
    assert warmup.late((before, timed), ([4.0, 4.0], noisy(4.0, 41))) == 1  # the phase that is last decides
    assert warmup.late(([5.0, 3.0, 2.0], noisy(1.0, 40))) == 0


def test_case_D8_what_has_no_steady_state_gives_up_no_iteration():
    assert warmup.late(([], [*noisy(3.0, 35), *noisy(1.0, 9)])) == 0
    climbing = [1.0 + 0.2 * step for step in range(40)]
    assert warmup.classify(climbing).label == warmup.UNSTEADY
    assert warmup.late(([], climbing)) == 0


def test_few_or_zero_times_are_not_judged():
    assert warmup.classify([1.0, 2.0]).label == warmup.SHORT
    assert warmup.classify([0.0] * 20).end is None
    assert warmup.late(([], [])) == 0
