"""Claims about holding the machine: who runs where, what is said about it, what is as before."""

from __future__ import annotations

import os
import subprocess

import pytest
from machines import lay_out

from env.errors import MachineError, UsageError
from env.hold import drift_between, hold


@pytest.fixture
def child():
    with subprocess.Popen(["sleep", "30"]) as process:
        yield process
        process.kill()


def test_ignore_looks_at_nothing_and_pins_nothing(child):
    before = os.sched_getaffinity(child.pid)
    with hold("ignore") as held:
        held.adopt(child.pid)
        assert os.sched_getaffinity(child.pid) == before
        with held.watch(child.pid) as watch:
            pass
    assert watch.facts()["status"] == "off"
    assert held.before == held.after == []
    assert held.shield["backend"] == "none"


def test_check_pins_the_child_and_calls_it_pinned_not_shielded(child):
    with hold("check") as held:
        held.adopt(child.pid)
        assert os.sched_getaffinity(child.pid) == set(held.cpus)
        assert held.verify(child.pid)["ok"]
    assert held.shield["verified"] is True
    assert held.shield["shielded"] is False
    assert any("pinned, not shielded" in warning for warning in held.shield["warnings"])


def test_the_parent_stays_off_the_bench_cpus_and_comes_back():
    before = os.sched_getaffinity(0)
    with hold("check") as held:
        if held.housekeeping:
            assert not os.sched_getaffinity(0) & set(held.cpus)
    assert os.sched_getaffinity(0) == before


def test_the_parent_comes_back_after_an_error_too():
    before = os.sched_getaffinity(0)
    with pytest.raises(KeyboardInterrupt), hold("check"):
        raise KeyboardInterrupt
    assert os.sched_getaffinity(0) == before


def test_a_child_that_left_its_cpus_is_not_verified(child):
    every = os.sched_getaffinity(0)
    if len(every) < 2:
        pytest.skip("one CPU leaves nowhere to go")
    with hold("check") as held:
        held.adopt(child.pid)
        os.sched_setaffinity(child.pid, every)
        found = held.verify(child.pid)
    assert not found["ok"]
    assert "may run on CPU" in found["problems"][0]


def test_a_child_that_is_gone_is_not_verified(child):
    child.kill()
    child.wait()
    with hold("check") as held:
        assert held.verify(child.pid)["problems"] == ["the worker is gone"]


def test_impossible_cpus_are_a_usage_error_before_anything():
    with pytest.raises(UsageError, match="--cpus"), hold("check", cpus="60000"):
        pytest.fail("the body must not run")


def test_strict_refuses_a_machine_that_is_not_stable(tmp_path):
    lay_out(tmp_path, "B6_sixteen")
    with pytest.raises(MachineError, match="not stable"), hold("check", root=str(tmp_path), strict=True):
        pytest.fail("the body must not run")


def test_a_step_that_reads_otherwise_afterwards_is_drift():
    before = [{"name": "governor", "status": "stable", "current": "performance"}]
    after = [{"name": "governor", "status": "unstable", "current": "powersave"}]
    (found,) = drift_between(before, after)
    assert found["step"] == "governor"
    assert "performance (stable) before and powersave (unstable) after" in found["reason"]
    assert drift_between(before, before) == []
