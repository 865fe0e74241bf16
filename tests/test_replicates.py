"""Where to repeat: the two variances are told apart, and the plan follows them, the looks and the budget."""

from __future__ import annotations

import math
import random

import pytest

from fastrnns.measure import replicates, stats


def simulated(processes, iterations, between, within, seed=1):
    rng = random.Random(seed)
    return [
        [10 * math.exp(level + rng.gauss(0, within)) for _ in range(iterations)]
        for level in (rng.gauss(0, between) for _ in range(processes))
    ]


def test_the_two_levels_of_variance_are_told_apart():
    variance = replicates.split_variance(simulated(200, 50, between=0.03, within=0.05))
    assert variance is not None
    assert math.sqrt(variance.between) == pytest.approx(0.03, rel=0.15)
    assert math.sqrt(variance.within / replicates.MEDIAN_VARIANCE) == pytest.approx(0.05, rel=0.15)


def test_iterations_alone_explain_processes_that_do_not_differ():
    variance = replicates.split_variance(simulated(200, 50, between=0.0, within=0.05))
    assert variance is not None
    assert math.sqrt(variance.between) < 0.005


def test_costly_processes_get_more_iterations_and_differing_processes_fewer():
    noisy_inside = replicates.Variance(within=0.01, between=0.0001, processes=10, iterations=50)
    noisy_outside = replicates.Variance(within=0.0001, between=0.01, processes=10, iterations=50)
    cheap = replicates.iterations_per_process(noisy_inside, 0.1, 1.0)
    costly = replicates.iterations_per_process(noisy_inside, 0.1, 10.0)
    assert cheap == math.ceil(math.sqrt(10 * 100))  # sqrt(c2/c1 * T1^2/T2^2)
    assert costly == 100
    assert replicates.iterations_per_process(noisy_outside, 0.1, 1.0) == replicates.MIN_ITERATIONS


def test_the_processes_needed_reach_the_precision():
    variance = replicates.Variance(within=0.0, between=0.02**2, processes=10, iterations=50)
    count = replicates.processes_needed(variance, 50, 0.01, 0.95)
    assert stats.t_quantile(0.975, count - 1) * 0.02 / math.sqrt(count) <= math.log1p(0.01)
    assert stats.t_quantile(0.975, count - 2) * 0.02 / math.sqrt(count - 1) > math.log1p(0.01)


def test_stopping_happens_at_planned_looks_and_for_width_only():
    quiet = simulated(7, 20, between=0.0001, within=0.001)
    assert not replicates.precise_enough(
        {"m": quiet[:5]}, 5, 0.02
    )  # precise: run to the next look, then stop
    assert not replicates.precise_enough({"m": quiet[:6]}, 6, 0.02)
    assert replicates.precise_enough({"m": quiet}, 7, 0.02)
    loud = simulated(7, 20, between=0.1, within=0.001)
    assert not replicates.precise_enough({"m": quiet, "n": loud}, 7, 0.02)
    assert not replicates.precise_enough({}, 7, 0.02)
    assert [replicates.next_look(done) for done in (0, 5, 39, 40)] == [5, 7, 40, None]


def test_the_plan_serves_the_noisiest_model_and_says_when_the_budget_forbids_it():
    quiet, loud = simulated(5, 50, 0.001, 0.001), simulated(5, 50, 0.02, 0.01, seed=3)
    costs = {"seconds_per_iteration": 0.01, "seconds_per_process": 3.0, "precision": 0.02}
    alone = replicates.choose({"quiet": quiet}, budget_s=600, **costs)
    both = replicates.choose({"quiet": quiet, "loud": loud}, budget_s=600, **costs)
    assert alone.processes == 7
    assert both.processes > 7
    poor = replicates.choose({"quiet": quiet, "loud": loud}, budget_s=20, used_s=18, **costs)
    assert poor.processes == 5
    assert "budget" in poor.reason
    hopeless = replicates.choose({"loud": simulated(5, 50, 0.5, 0.01)}, budget_s=1e6, **costs)
    assert hopeless.processes == replicates.MAX_PROCESSES
    assert "cap" in hopeless.reason


def test_without_a_pilot_the_plan_is_the_least_number_of_processes():
    costs = {"seconds_per_iteration": 0.01, "seconds_per_process": 3.0, "precision": 0.02, "budget_s": 60}
    assert replicates.choose({}, **costs).processes == replicates.MIN_PROCESSES
