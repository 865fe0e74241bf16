import pytest

from fastrnns.measure.conduct import ColdStart, Measured, Phase
from fastrnns.measure.plan import Plan
from fastrnns.measure.result import excluded_by, result_of

LATE = [1.85, 0.45] + [0.043] * 98


def measured(samples, backward=None, **facts):
    backward = backward if backward is not None else [[2 * value for value in series] for series in samples]
    return Measured(
        "jit",
        forward=Phase(samples, [[] for _ in samples]),
        backward=Phase(backward, [[] for _ in samples]),
        started_ns=[[n * 10_000_000 for n, _ in enumerate(series)] for series in samples],
        order=[{"process": n, "position": 0} for n, _ in enumerate(samples)],
        ended=facts.pop("ended", [{"warmup": "fixed", "timed": "fixed"} for _ in samples]),
        **facts,
    )


def result(model, plan=None, **facts):
    wanted = {
        "group": "rnns",
        "family": "lstm",
        "dtype": "fp32",
        "torchscript": True,
        "has_backward": True,
        **facts,
    }
    return result_of(model, plan=plan or Plan(warmup=2, nloops=100), **wanted)


def test_raw_samples_are_kept_and_the_rest_is_derived():
    found = result(measured([[1.0, 2.0, 3.0]]))
    assert found["forward"]["samples"] == [[1.0, 2.0, 3.0]]
    assert (found["forward"]["median"], found["forward"]["unit"], found["forward"]["n"]) == (2.0, "ms", 3)
    assert found["backward"]["mean"] == 4.0
    assert found["status"] == "ok"


def test_case_D7_one_sample_has_no_deviation_and_says_how_many_there_were():
    forward = result(measured([[1.5]]))["forward"]
    assert (forward["std"], forward["ci95"], forward["n"]) == (None, None, 1)


def test_case_D8_a_late_specialisation_is_marked_and_its_samples_are_kept():
    found = result(measured([LATE]))
    assert "not steady" in found["details"]["marks"]
    assert found["forward"]["samples"] == [LATE]
    assert found["forward"]["steady"]["steady"] is False
    assert found["forward"]["median"] == pytest.approx(0.043)


@pytest.mark.parametrize("warmup", [0, 1])
def test_case_D8_too_little_warmup_for_torchscript_is_marked(warmup):
    found = result(measured([[1.0] * 20]), Plan(warmup=warmup, nloops=20))
    assert "too little warm-up" in found["details"]["marks"]
    assert "too little warm-up" not in result(measured([[1.0] * 20]), torchscript=False)["details"]["marks"]


def test_what_was_cut_short_is_marked():
    found = result(measured([[1.0, 1.0, 1.0]], ended=[{"warmup": "budget", "timed": "budget"}]), Plan())
    assert "cut short" in found["details"]["marks"]
    assert any("budget of 45 s" in note for note in found["notes"])


def test_upstream_fault_16_the_backend_that_ran_is_named():
    assert result(measured([[1.0]], backend="oneDNN 3.12"))["backend"] == "oneDNN 3.12"


def test_a_model_without_backward_has_null_there():
    assert result(measured([[1.0]], backward=[[]]), has_backward=False)["backward"] is None


def test_a_backward_that_was_due_and_did_not_come_is_not_null():
    assert result(measured([[1.0]], backward=[[]]))["backward"]["n"] == 0


def test_a_model_that_was_never_reached_says_so():
    found = result(Measured("jit"), interrupted=True)
    assert (found["status"], found["error"]) == ("failed", "interrupted before it was measured")


def test_a_failed_model_keeps_what_it_measured():
    found = result(measured([[1.0, 1.0]], status="failed", error="worker died"))
    assert (found["status"], found["error"]) == ("failed", "worker died")
    assert found["forward"]["n"] == 2


def test_disturbed_iterations_are_left_out_for_their_cause_and_counted():
    model = measured([[1.0] * 9 + [50.0]])
    assert excluded_by(model, [])[0] == [[]]
    disturbances = [{"from_ns": 91_000_000, "to_ns": 193_000_000, "cause": "steal"}]
    found = result(model, disturbances=disturbances)
    assert found["forward"]["excluded"] == [[9]]
    assert found["forward"]["n"] == 9
    assert found["forward"]["samples"][0][-1] == 50.0
    assert "1 disturbed" in found["details"]["marks"]


def test_too_many_disturbed_iterations_are_counted_and_none_is_left_out():
    model = measured([[1.0] * 10])
    found = result(model, disturbances=[{"from_ns": 0, "to_ns": 10**12, "cause": "steal"}])
    assert found["forward"]["n"] == 10
    assert "10 of 10 iterations were disturbed (steal); none of them are left out" in found["notes"]


def test_a_long_iteration_is_not_disturbed_by_what_covers_little_of_it():
    model = measured([[10_000.0, 10_000.0]])
    model.started_ns = [[0, 40 * 10**9]]
    little = {"from_ns": 0, "to_ns": 10**9, "cause": "steal"}  # 1 s of 30 s
    much = {"from_ns": 41 * 10**9, "to_ns": 49 * 10**9, "cause": "steal"}
    assert excluded_by(model, [little])[0] == [[]]
    assert excluded_by(model, [little, much])[0] == [[1]]


def test_a_series_that_settles_late_gives_its_first_iterations_to_the_warm_up():
    slow, steady = [2.0] * 6, [1.0 + 0.001 * (n % 3) for n in range(40)]
    model = measured([[*slow, *steady], steady])
    model.forward.warmup = model.backward.warmup = [[9.0, 2.0], [1.0] * 5]
    found = result(model, Plan(), torchscript=False)
    assert found["forward"]["samples"] == [steady, steady]
    assert found["forward"]["warmup"][0] == [9.0, 2.0, *slow]
    assert [len(starts) for starts in found["started_ns"]] == [40, 40]
    assert found["started_ns"][0][0] == 6 * 10_000_000
    assert (
        "6 timed iterations are counted as warm-up, by the level of those that follow them" in found["notes"]
    )


def test_nothing_is_moved_where_the_warm_up_was_asked_for_or_there_is_no_steady_state():
    late = [[2.0] * 6 + [1.0] * 40]
    assert result(measured(late), Plan(warmup=0, nloops=46))["forward"]["samples"] == late
    wandering = [[1.0 + 0.1 * n for n in range(40)]]
    found = result(measured(wandering), Plan(), torchscript=False)
    assert found["forward"]["samples"] == wandering
    assert "not steady" in found["details"]["marks"]


def test_the_cold_start_is_a_result_of_its_own_and_no_part_of_the_phases():
    cold = ColdStart([100.0, 50.0], [900.0, 9.0], [30.0, 1.0])
    found = result(measured([[1.0] * 9, [1.0] * 9], cold_start=cold))
    assert found["cold_start"]["samples"] == [1030.0, 60.0]
    assert found["cold_start"]["first_forward"] == [900.0, 9.0]
    assert found["forward"]["median"] == 1.0
    assert result(measured([[1.0] * 9]))["cold_start"] is None


def test_device_time_is_never_mixed_into_stream_time():
    graphs = {"forward_graph": Phase([[0.5] * 9], [[]]), "backward_graph": Phase([[]], [[]])}
    found = result(measured([[1.0] * 9], **graphs))
    assert (found["forward"]["median"], found["forward_graph"]["median"]) == (1.0, 0.5)
    assert "backward_graph" not in found
    assert "forward_graph" not in result(measured([[1.0] * 9]))
