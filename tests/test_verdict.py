"""Whether a record may be believed."""

import pytest
from records import STEADY, environment, phase, result

from fastrnns.archive.verdict import verdict


def test_a_set_up_machine_and_several_processes_are_valid():
    assert verdict(environment(), [result()]) == {"status": "valid", "reasons": []}


def test_case_A6_a_machine_without_knobs_is_never_valid():
    steps = [
        {**step, "status": "unavailable", "reason": "no cpufreq interface"}
        if step["name"] != "shield"
        else step
        for step in STEADY
    ]
    said = verdict(environment(before=steps), [result()])
    assert said["status"] == "tainted"
    assert (
        said["reasons"][0] == "governor unavailable: nothing is known of the frequency (no cpufreq interface)"
    )


@pytest.mark.parametrize("nothing", [None, {}, environment(before=[])])
def test_a_machine_that_was_not_checked_is_never_valid(nothing):
    assert verdict(nothing, [result()])["status"] == "tainted"


def test_a_step_that_was_left_out_is_named():
    assert (
        "turbo was not checked" in verdict(environment(before=[STEADY[0], STEADY[2]]), [result()])["reasons"]
    )


def test_a_knob_that_a_machine_does_not_have_is_no_doubt_unless_it_is_needed():
    extra = {
        "name": "smt",
        "status": "unavailable",
        "current": None,
        "wanted": None,
        "reason": "no SMT",
        "source": "",
    }
    assert verdict(environment(before=[*STEADY, extra]), [result()])["status"] == "valid"


@pytest.mark.parametrize("status", ["unstable", "locked", "unknown"])
def test_a_step_not_as_wanted_taints_and_carries_its_reason(status):
    steps = [{**STEADY[0], "status": status, "reason": "needs root"}, *STEADY[1:]]
    assert verdict(environment(before=steps), [result()])["reasons"] == [f"governor {status} (needs root)"]


def test_case_A9_drift_taints():
    change = {"name": "governor", "before": "performance", "after": "powersave"}
    said = verdict(environment(drift=[change]), [result()])
    assert said == {
        "status": "tainted",
        "reasons": ["drift: governor went from performance to powersave during the run"],
    }


def test_a_shield_that_the_kernel_does_not_show_taints():
    shield = {"backend": "cset", "cpus": "2-3", "verified": False, "reason": "threads on CPU 0"}
    assert verdict(environment(shield=shield), [result()])["reasons"] == [
        "shield not verified: threads on CPU 0"
    ]


@pytest.mark.parametrize("times", [[0.0043, 0.0031], [0.0, 0.0]])
def test_case_D11_a_backward_of_nothing_was_not_measured(times):
    said = verdict(environment(), [result(forward=phase([25.0, 25.0], [25.0]), backward=phase(times, times))])
    assert said["status"] == "invalid"
    assert "backward not measured" in said["reasons"][0]


def test_a_forward_only_model_has_no_backward_to_miss():
    assert verdict(environment(), [result(backward=None)])["status"] == "valid"


def test_case_D7_one_sample_is_said_to_be_too_few():
    said = verdict(environment(), [result(forward=phase([1.0]), backward=None)])
    assert said == {
        "status": "tainted",
        "reasons": ["cudnn: insufficient samples (1), so there is no spread and no interval"],
    }


def test_one_process_says_nothing_of_the_spread_between_processes():
    said = verdict(environment(), [result(forward=phase([1.0, 1.1]), backward=None)])
    assert said["reasons"] == ["cudnn: one process, so the spread between processes is not known"]


@pytest.mark.parametrize("samples", [[], [[]], [[None]]])
def test_a_result_without_samples_is_invalid(samples):
    assert verdict(environment(), [result(forward=phase() | {"samples": samples})])["status"] == "invalid"


def test_a_time_of_zero_is_no_time():
    assert verdict(environment(), [result(forward=phase([0.0, 1.0], [1.0]))])["status"] == "invalid"


@pytest.mark.parametrize(
    ("results", "said"),
    [([], "nothing was measured"), ([result(status="failed", error="x")], "no model ran")],
)
def test_a_record_of_nothing_is_invalid(results, said):
    assert said in verdict(environment(), results)["reasons"]


def test_a_failed_model_does_not_spoil_the_others():
    failed = result("jit", status="failed", error="x", forward=None, backward=None)
    assert verdict(environment(), [result(), failed])["status"] == "valid"


@pytest.mark.parametrize("options", [({"interrupted": True}, 0), ({}, 130)])
def test_an_interrupted_command_leaves_an_invalid_record(options):
    said = verdict(environment(), [result()], options[0], exit_code=options[1])
    assert said["status"] == "invalid"
    assert said["reasons"][0].startswith("interrupted")


@pytest.mark.parametrize("steady", ["no steady state", {"status": "slowdown"}, [True, False], False])
def test_case_D8_a_series_that_is_not_steady_taints(steady):
    said = verdict(environment(), [result(forward=phase([1.0, 1.1], [1.2]) | {"steady": steady})])
    assert said["reasons"] == ["cudnn: no steady forward"]


def watched(*spans):
    return {
        "disturbances": [{"from_ns": low, "to_ns": high, "cause": "steal on CPU 2"} for low, high in spans]
    }


def test_what_the_watch_saw_counts_only_while_iterations_were_timed():
    timed = result(forward=phase([10.0] * 10, [10.0] * 10), backward=None)
    timed["started_ns"] = [
        [i * 10_000_000 for i in range(10)],
        [500_000_000 + i * 10_000_000 for i in range(10)],
    ]
    before = verdict(environment(watch=watched((200_000_000, 400_000_000))), [timed])
    little = verdict(environment(watch=watched((0, 20_000_000))), [timed])
    much = verdict(environment(watch=watched((0, 90_000_000))), [timed])
    assert before["status"] == "valid"
    assert little["status"] == "tainted"
    assert "steal on CPU 2" in little["reasons"][1]
    assert much["status"] == "invalid"


def test_too_many_excluded_iterations_leave_no_sample():
    spoiled = phase([1.0] * 10, [1.0] * 10) | {"excluded": [[0, 1, 2, 3, 4], []]}
    assert verdict(environment(), [result(forward=spoiled)])["status"] == "invalid"


def test_verify_does_not_ask_for_a_quiet_machine():
    assert verdict(None, [result(forward=None, backward=None)], kind="verify")["status"] == "valid"


def test_what_the_holder_of_the_machine_says_is_passed_on():
    assert verdict(environment(reasons=["threads exceed the shield"]), [result()])["reasons"] == [
        "threads exceed the shield",
    ]


def test_one_disturbed_model_among_several_taints_and_is_named():
    bad = {**result(), "model": "resnet50"}
    count = len(bad["forward"]["samples"][0])
    bad["forward"] = {**bad["forward"], "excluded": [list(range(count)) for _ in bad["forward"]["samples"]]}
    others = [{**result(), "model": name} for name in ("cudnn", "jit")]
    said = verdict(environment(), [*others, bad])
    assert said["status"] == "tainted"
    assert said["reasons"] == ["resnet50: the watch saw 100% of the iterations disturbed"]
    assert verdict(environment(), [bad])["status"] == "invalid"


def test_torchscript_that_was_timed_while_it_compiled_is_named():
    early = {**result(), "details": {"marks": ["not warmed up"]}}
    assert "compiling" in verdict(environment(), [early])["reasons"][0]
