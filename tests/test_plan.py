import pytest

from fastrnns.measure import plan
from fastrnns.measure.plan import (
    Choice,
    Plan,
    Rule,
    Spent,
    due,
    enough,
    halfwidth,
    plan_for,
    rotated,
    rule_for,
    warm,
)

FREE = Rule(warmup=None, nloops=None, precision=0.01, seconds=15, limit_seconds=56)


def simulate(rule, iteration_s, build_s=0.0, noise=0.0):
    """Warm up and sample iterations of one length on a clock that only they move."""
    spent, totals, forward = build_s, [], []
    wobble = [1 + noise * ((n * 7919 % 101) / 50 - 1) for n in range(1000)]
    while (warmed := warm(rule, totals, spent)) is None:
        totals.append(iteration_s * 1e3 * wobble[len(totals)])
        spent += iteration_s
    while (ended := enough(rule, forward, [], spent)) is None:
        forward.append(iteration_s * 1e3 * wobble[len(forward)])
        spent += iteration_s
    return len(totals), warmed, len(forward), ended, spent


def test_fixed_counts_are_kept_exactly():
    rule = Rule(warmup=10, nloops=100, precision=0.01, seconds=1, limit_seconds=1)
    assert simulate(rule, 5.0)[:4] == (10, "fixed", 100, "fixed")


def test_a_warmup_of_zero_is_no_warmup():
    assert simulate(Rule(0, 3, 0.01, 1, 1), 0.1)[:4] == (0, "fixed", 3, "fixed")


def test_a_steady_and_precise_model_stops_early():
    warmed, why, timed, ended, _ = simulate(FREE, 0.1)
    assert (why, ended) == ("steady", "precise")
    assert warmed >= 6
    assert timed == plan.LOOKS[0]


def test_a_precise_model_of_short_iterations_is_timed_for_a_while_all_the_same():
    assert simulate(FREE, 0.01)[2:4] == (50, "precise")
    assert simulate(FREE, 0.002)[2:4] == (plan.ITERATIONS_CAP, "cap")


def test_a_noisy_model_ends_at_the_cap():
    assert simulate(FREE, 0.002, noise=0.2)[2:4] == (plan.ITERATIONS_CAP, "cap")


@pytest.mark.parametrize("iteration_s", [0.5, 2, 5, 10, 14, 20, 40])
def test_no_model_takes_a_minute_by_default_while_one_iteration_is_shorter(iteration_s):
    warmed, _, timed, ended, spent = simulate(FREE, iteration_s, build_s=0.5, noise=0.2)
    assert warmed >= 1
    assert timed >= 1
    assert ended == "budget"
    assert spent < 60 or timed == warmed == 1


def test_a_slow_model_still_gets_three_timed_iterations_where_they_fit():
    assert simulate(FREE, 10.0, build_s=0.5)[:3] == (1, "budget", 3)


def test_torchscript_always_gets_its_two_profiling_runs():
    rule = rule_for(Plan(), 0, None, torchscript=True)
    assert simulate(rule, 100.0)[0] == 2


def test_series_is_settled_only_when_two_windows_agree():
    assert not plan.settled([5, 5, 5, 5, 5])
    assert plan.settled([9, 9, 9, 5, 5, 5, 5, 5, 5])
    assert not plan.settled([9, 9, 9, 5, 5, 5])


def test_the_halfwidth_is_that_of_the_order_statistics():
    assert halfwidth([1, 2, 3, 4, 5]) is None  # below six there is no 95 % interval
    assert halfwidth([1, 2, 3, 4, 5, 6]) == pytest.approx((6 - 1) / 2 / 3.5)
    assert halfwidth([2.0] * 50) == 0


def test_nloops_means_the_historical_protocol_in_one_process():
    fixed = plan_for(processes=None, warmup=10, nloops=100, precision=0.01, budget_s=45)
    assert (fixed.processes, fixed.most_processes) == (1, 1)
    asked = plan_for(processes=4, warmup=None, nloops=5, precision=0.01, budget_s=45)
    assert (asked.processes, asked.most_processes) == (4, 4)


def test_further_processes_are_run_only_while_the_interval_is_wide_and_budget_is_left():
    more, none = Choice(14, 40, "expected to reach 1 %"), Choice(7, 40, "the budget of 45 s allows no more")
    assert due(Plan(), 7, Spent(7, 9, 1, chosen=more)) is None
    assert due(Plan(), 9, Spent(9, 9, 1, chosen=more)) is None  # between two looks
    assert due(Plan(), 7, Spent(7, 9, 1, precise=True, chosen=more)) == "precise"
    assert due(Plan(), 7, Spent(7, 9, 1, chosen=none)) == "budget"
    assert due(Plan(), 4, Spent(4, 9, 1, precise=True)) is None  # five at least: compare asks for them
    assert due(Plan(), 20, Spent(20, 9, 1, chosen=more)) == "cap"
    assert due(Plan(), 1, Spent(1, 40, 30)) == "budget"


def test_a_further_process_runs_the_iterations_that_the_variance_asks_for():
    rule = rule_for(Plan(), 7, Spent(7, 9, 1, chosen=Choice(10, 40, "")), torchscript=False)
    assert (rule.most, rule.seconds) == (40, 12)
    assert simulate(rule, 0.002, noise=0.2)[2:4] == (40, "cap")


def test_processes_that_were_asked_for_are_run():
    asked = Plan(processes=4, most_processes=4)
    assert due(asked, 3, Spent(3, 1000, 100, precise=True)) is None
    assert due(asked, 4, Spent(4, 1, 1)) == "cap"


def test_a_budget_is_shared_among_the_processes():
    assert rule_for(Plan(), 0, None, torchscript=False).seconds == 9
    assert rule_for(Plan(), 1, Spent(1, 5, 1), torchscript=False).seconds == 10
    assert rule_for(Plan(), 2, Spent(2, 60, 1), torchscript=False).seconds == 0


def test_models_take_turns():
    assert [rotated("abcdef", n, 3) for n in range(3)] == [list("abcdef"), list("cdefab"), list("efabcd")]
    assert rotated([], 1, 3) == []


def gpu_rule(**changes):
    given = {"warmup": None, "nloops": None, "precision": 0.01, "seconds": 15.0, "limit_seconds": 15.0}
    return plan.Rule(**{**given, "cold_seconds": plan.COLD_SECONDS, **changes})


def test_a_torchscript_model_is_not_timed_while_it_compiles() -> None:
    rule = gpu_rule(torchscript=True, least_warmup=plan.LEAST_WARMUP_TORCHSCRIPT)
    compiling = [9000.0, 4000.0, 3400.0, 3300.0, 800.0]
    for count in range(len(compiling) + 1):
        seen = compiling[:count]
        assert plan.warm(rule, seen, sum(seen) / 1e3) is None, count
    seen = [*compiling, *[17.0] * 40]
    assert plan.warm(rule, seen, sum(seen) / 1e3) == plan.STEADY


def test_a_torchscript_model_that_never_ends_compiling_is_given_up_at_the_limit() -> None:
    rule = gpu_rule(torchscript=True, cold_seconds=0.0)
    assert plan.warm(rule, [9000.0, 4000.0, 3400.0], 16.4) == plan.UNCOMPILED


def test_libraries_that_load_are_no_warm_up_and_are_charged_to_no_budget() -> None:
    rule = gpu_rule()
    assert plan.warm(rule, [2700.0, 5.5, 5.5, 5.5, 5.5, 5.5, 5.5], 2.8) is None
    seen = [2700.0, *[5.5] * 60]
    assert plan.warm(rule, seen, 3.1) == plan.STEADY
    assert plan.cold_seconds(rule, seen) == pytest.approx(2.6945)


def test_on_a_cpu_nothing_is_free() -> None:
    assert plan.cold_seconds(gpu_rule(cold_seconds=0.0), [2700.0, 5.5]) == 0.0
