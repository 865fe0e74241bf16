"""Claims about how far disturbed samples may be believed."""

from __future__ import annotations

from env.suspicion import Disturbance, disturbed, judge, merge, share_disturbed


def test_stretches_of_one_cause_that_touch_are_joined():
    seen = [Disturbance(0, 10, "steal"), Disturbance(10, 20, "steal"), Disturbance(30, 40, "steal")]
    assert merge(seen) == [Disturbance(0, 20, "steal"), Disturbance(30, 40, "steal")]


def test_stretches_of_two_causes_stay_apart():
    seen = [Disturbance(0, 10, "steal"), Disturbance(5, 15, "thermal throttling")]
    assert merge(seen) == seen


def test_time_under_two_causes_counts_once():
    seen = [Disturbance(0, 10, "steal"), Disturbance(5, 15, "thermal throttling")]
    assert share_disturbed(seen, [(0, 20)]) == 0.75


def test_only_the_spans_that_were_measured_count():
    seen = [Disturbance(0, 100, "steal")]
    assert share_disturbed(seen, [(50, 150)]) == 0.5
    assert share_disturbed(seen, [(100, 200)]) == 0.0
    assert share_disturbed(seen, []) == 0.0


def test_an_iteration_is_told_what_touched_it():
    seen = [Disturbance(0, 10, "steal"), Disturbance(20, 30, "thermal throttling")]
    assert disturbed((5, 25), seen) == ["steal", "thermal throttling"]
    assert disturbed((10, 20), seen) == []


def test_a_little_is_valid_more_is_tainted_much_is_invalid():
    for end, status in ((4, "valid"), (10, "tainted"), (30, "invalid")):
        found, reasons = judge([Disturbance(0, end, "steal")], [(0, 100)])
        assert found == status
        assert bool(reasons) == (status != "valid")


def test_the_share_is_said():
    _, reasons = judge([Disturbance(0, 10, "steal")], [(0, 100)])
    assert reasons == ["the machine was disturbed during 10% of the time", "steal during 10% of the time"]


def test_a_changed_setting_taints_however_short_it_was_seen():
    status, reasons = judge(
        [Disturbance(0, 1, "policy2 scaling_governor changed from performance to powersave")], [(0, 1000)]
    )
    assert status == "tainted"
    assert any("policy2" in reason for reason in reasons)
