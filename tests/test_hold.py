"""Claims about holding the machine: who runs where, what is said about it, what is as before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from machines import CSET, lay_out, program, snapshot

from env.errors import EnvError, MachineError, UsageError
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


PROJECT = Path(__file__).parent.parent
HOLD = """
import sys, time
from env.hold import hold
with hold("apply", root=sys.argv[1]):
    print("held", flush=True)
    time.sleep(30)
"""


def held_by_another(folder):
    victim = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=PROJECT
    )
    assert victim.stdout.readline() == b"held\n"
    return victim


@pytest.fixture
def folder(tmp_path):
    machine = lay_out(tmp_path / "machine", "A11_smt_sibling", "B1_cgroup2_only", "A11_smt_sibling")
    (machine / "run").mkdir()
    (machine / "sys/devices/system/cpu/cpufreq").mkdir()
    (machine / "sys/devices/system/cpu/cpufreq/boost").write_text("1\n")
    return machine


def test_apply_shields_for_the_body_and_everything_is_as_before(folder):
    before = snapshot(folder)
    with hold("apply", root=str(folder)) as held:
        assert held.shield["backend"] == "cgroup2"
        assert held.shield["shielded"]
        assert (folder / "sys/fs/cgroup/fastrnns-bench/run").is_dir()
        assert (folder / "sys/devices/system/cpu/cpufreq/boost").read_text() == "0\n"
    assert snapshot(folder) == before
    assert held.drift == []


def test_apply_puts_back_after_an_error_too(folder):
    before = snapshot(folder)
    with pytest.raises(KeyboardInterrupt), hold("apply", root=str(folder)):
        raise KeyboardInterrupt
    assert snapshot(folder) == before


def test_skipping_the_shield_leaves_it_alone(folder):
    with hold("apply", root=str(folder), skip=frozenset({"shield"})) as held:
        assert not (folder / "sys/fs/cgroup/fastrnns-bench").exists()
        assert held.shield["backend"] == "affinity"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_case_F5_a_signal_ends_the_body_and_the_machine_is_put_back(folder, number):
    before = snapshot(folder)
    with held_by_another(folder) as victim:
        victim.send_signal(number)
        victim.wait(timeout=20)
    assert snapshot(folder) == before


def test_case_F5_a_second_ctrl_c_does_not_cut_the_putting_back_short(folder):
    before = snapshot(folder)
    with held_by_another(folder) as victim:
        for _ in range(5):
            victim.send_signal(signal.SIGINT)
        victim.wait(timeout=20)
    assert snapshot(folder) == before


@pytest.mark.parametrize("mode", ["check", "apply"])
def test_case_F5_after_sigkill_the_next_command_puts_the_machine_back(folder, mode):
    before = snapshot(folder)
    with held_by_another(folder) as victim:
        victim.kill()
    assert snapshot(folder) != before
    with hold(mode, root=str(folder)):
        pass
    assert snapshot(folder) == before


def test_after_a_reboot_the_journal_is_only_forgotten(folder):
    (folder / "proc/sys/kernel/random").mkdir(parents=True)
    (folder / "proc/sys/kernel/random/boot_id").write_text("one\n")
    with held_by_another(folder) as victim:
        victim.kill()
    (folder / "proc/sys/kernel/random/boot_id").write_text("two\n")
    applied = snapshot(folder / "sys")
    with hold("check", root=str(folder)):
        pass
    assert snapshot(folder / "sys") == applied
    assert not (folder / "run/fastrnns").exists()


def test_a_second_command_is_told_who_holds_the_machine_and_changes_nothing(folder):
    with held_by_another(folder) as victim:
        during = snapshot(folder)
        with (
            pytest.raises(MachineError, match=rf"held by pid {victim.pid} \(python\S*\), since"),
            hold("apply", root=str(folder)),
        ):
            pytest.fail("the body must not run")
        assert snapshot(folder) == during
        victim.kill()
    with hold("check", root=str(folder)):
        pass


def test_a_check_beside_a_holder_disturbs_nothing(folder):
    with held_by_another(folder) as victim:
        during = snapshot(folder)
        with hold("check", root=str(folder)) as held:
            assert not held.shield["shielded"]
            assert held.shield["cpus"] == "0,4"
            assert f"holds the machine: pid {victim.pid} (python" in held.reasons[0]
            assert "another command holds CPU 1-3,5-7" in held.shield["reason"]
        assert snapshot(folder) == during
        victim.kill()
    with hold("check", root=str(folder)):
        pass


def test_a_setting_that_somebody_changed_meanwhile_is_left_and_reported(folder):
    boost = folder / "sys/devices/system/cpu/cpufreq/boost"
    governor = folder / "sys/devices/system/cpu/cpu2/cpufreq/scaling_governor"
    with hold("apply", root=str(folder)) as held:
        governor.write_text("ondemand\n")
    assert boost.read_text() == "1\n"
    assert governor.read_text() == "ondemand\n"
    assert any(item["step"] == "governor" for item in held.drift)


def test_a_cset_that_fails_leaves_the_rest_stable_and_says_why(tmp_path):
    machine = lay_out(tmp_path / "machine", "B11_idle_v1")
    program(
        machine, "cset", 'case "$*" in --version) exit 0;; esac; echo "cset: **> [Errno 16] busy" >&2; exit 1'
    )
    with hold("apply", root=str(machine)) as held:
        assert held.shield["backend"] == "affinity"
        assert "busy" in held.shield["reason"]


def test_a_folder_that_cannot_be_written_changes_nothing(folder):
    before = snapshot(folder)
    (folder / "run").rmdir()
    (folder / "run").write_text("in the way")
    with pytest.raises(EnvError, match="cannot be"), hold("apply", root=str(folder)):
        pytest.fail("the body must not run")
    (folder / "run").unlink()
    (folder / "run").mkdir()
    assert snapshot(folder) == before


def test_cset_is_the_choice_where_it_works(tmp_path):
    machine = lay_out(tmp_path / "machine", "B11_idle_v1")
    program(machine, "cset", CSET)
    (machine / "run").mkdir()
    before = snapshot(machine)
    with hold("apply", root=str(machine)) as held:
        assert held.shield["backend"] == "cset"
    assert snapshot(machine) == before
