"""CPU frequency and turbo on the machines of the field: what is said, what is written, what is put back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import trees

from env import machine
from env.__main__ import main
from env.journal import Journal
from env.owner import Owner
from env.privilege import Privilege
from env.step import Host, State, Wanted

CPU = "sys/devices/system/cpu"
SKIP = frozenset(machine.NAMES) - {"governor", "turbo"}


class Machine:
    """One tree under the two frequency steps."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder / "machine"
        self.folder.mkdir()
        self.files = trees.FaultyFiles(str(self.folder), trees.lay_out(self.folder, name))
        self.host = Host(self.files, Privilege(self.files), Wanted(skip=SKIP))
        self.steps = machine.steps(self.host)
        self.journal_path = folder / "journal" / "j.jsonl"

    def state(self, name: str) -> State:
        return next(step for step in self.steps if step.name == name).probe()

    def apply(self) -> None:
        self.host.journal = Journal.create(self.journal_path, "hold", Owner.me("test"), "b007")
        machine.apply(machine.Opened(self.host, self.steps))

    def restore(self) -> list[str]:
        assert self.host.journal is not None
        left = machine.restore(self.host, self.steps, self.host.journal)
        self.host.journal = None
        return left

    def value(self, path: str) -> str:
        return (self.folder / CPU / path).read_text().strip()


@pytest.fixture
def on(tmp_path):
    return lambda name: Machine(tmp_path, name)


def test_case_A1_turbo_that_firmware_holds_off_is_off_and_nothing_is_written(on):
    found = on("A1_locked_by_firmware")
    assert found.state("turbo").status == "stable"
    assert "firmware" in found.state("turbo").reason
    found.apply()
    assert not any("no_turbo" in path for path in found.files.tried)
    assert found.restore() == []


def test_case_A1_turbo_that_cannot_be_switched_is_locked_and_root_is_not_sent_for_root(on):
    found = on("A1_turbo_cannot_be_switched")
    found.apply()
    state = found.state("turbo")
    assert state.status == "locked"
    assert "sudo" not in state.reason
    assert found.value("intel_pstate/no_turbo") == "0"
    assert found.restore() == []


def test_case_A2_the_switch_follows_the_driver_not_the_file_that_exists(on):
    found = on("A2_intel_pstate_off")
    assert found.state("turbo").status == "unstable"
    found.apply()
    assert found.value("cpufreq/boost") == "0"
    assert found.state("turbo").status == "stable"
    found.restore()
    assert found.value("cpufreq/boost") == "1"


def test_case_A2_intel_pstate_in_passive_mode_has_its_own_switch(on):
    found = on("A2_passive")
    found.apply()
    assert found.value("intel_pstate/no_turbo") == "1"
    assert found.value("cpufreq/policy0/scaling_governor") == "performance"


def test_case_A3_boost_has_the_opposite_polarity(on):
    found = on("A3_acpi_boost")
    assert found.state("turbo").current == "on"
    found.apply()
    assert found.value("cpufreq/boost") == "0"
    assert found.state("turbo").current == "off"


def test_case_A4_every_policy_is_switched_and_read_back(on):
    found = on("A4_amd_per_policy")
    found.apply()
    assert [found.value(f"cpufreq/policy{n}/boost") for n in range(3)] == ["0", "0", "0"]
    assert found.state("turbo").status == "stable"
    (found.folder / CPU / "cpufreq/policy1/boost").write_text("1\n")
    assert found.state("turbo").status == "unstable"


def test_case_A4_without_a_switch_turbo_is_not_controllable_and_not_off(on):
    state = on("A4_amd_no_boost_files").state("turbo")
    assert state.status == "unavailable"
    assert "not controllable" in state.reason
    assert state.current is None


def test_what_a_governor_drags_along_is_put_back(on):
    found = on("A4_amd_per_policy")
    found.apply()
    for number in range(3):  # as the kernel does under `performance`
        (found.folder / CPU / f"cpufreq/policy{number}/energy_performance_preference").write_text(
            "performance\n"
        )
    assert found.restore() == []
    kept = [found.value(f"cpufreq/policy{n}/energy_performance_preference") for n in range(3)]
    assert kept == ["balance_performance", "balance_power", "balance_performance"]


def test_case_A6_a_machine_without_cpufreq_is_not_stable(on):
    found = on("A6_no_cpufreq")
    assert {found.state(name).status for name in ("governor", "turbo")} == {"unavailable"}
    states = [step.probe().as_dict() for step in found.steps]
    assert machine.overall(states) == "unstable"


def test_case_A6_the_command_says_so_and_strict_is_exit_code_3(tmp_path, capsys):
    trees.lay_out(tmp_path, "A6_no_cpufreq")
    assert main(["check", "--root", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema"], said["overall"]) == (1, "unstable")
    assert set(said["steps"][0]) == {"name", "status", "current", "wanted", "reason", "source"}
    assert all(step["reason"] for step in said["steps"] if step["status"] != "stable")
    assert main(["check", "--root", str(tmp_path), "--strict"]) == 3


def test_case_A7_a_read_only_sysfs_is_one_message_and_no_matter_of_permission(on):
    found = on("A7_read_only")
    state = found.state("governor")
    assert state.status == "locked"
    assert state.current == "powersave"
    assert "read-only" in state.reason
    assert "sudo" not in state.reason
    assert state.reason.count("read-only") == 1
    found.apply()
    assert found.files.tried == []


def test_case_A8_offline_cpus_are_left_out_however_they_show(on):
    found = on("A8_offline")
    assert found.state("governor").status == "unstable"
    found.apply()
    assert found.state("governor").status == "stable"
    assert (found.value("cpu0/cpufreq/scaling_governor"), found.value("cpu3/cpufreq/scaling_governor")) == (
        "performance",
        "performance",
    )
    assert not any("cpu2/" in path or "cpu1/" in path for path in found.files.tried)


def test_case_A10_each_cpu_gets_its_own_value_back_even_after_two_applies(on):
    found = on("A10_each_its_own")
    found.apply()
    machine.apply(machine.Opened(found.host, found.steps))
    assert {found.value(f"cpufreq/policy{n}/scaling_governor") for n in range(3)} == {"performance"}
    assert found.restore() == []
    kept = [found.value(f"cpufreq/policy{n}/scaling_governor") for n in range(3)]
    assert kept == ["schedutil", "ondemand", "performance"]
    assert found.value("intel_pstate/no_turbo") == "1"


def test_case_A10_nothing_is_invented_for_a_governor_that_could_not_be_read(on):
    found = on("A10_unreadable_at_the_start")
    found.apply()
    found.restore()
    assert not any("policy0/scaling_governor" in path for path in found.files.tried)
    assert found.value("cpufreq/policy0/scaling_governor") == "schedutil"


def test_case_A9_what_another_daemon_set_meanwhile_is_reported_and_left(on):
    found = on("A10_each_its_own")
    found.apply()
    (found.folder / CPU / "cpufreq/policy0/scaling_governor").write_text("ondemand\n")
    left = found.restore()
    assert len(left) == 1
    assert "ondemand" in left[0]
    assert found.value("cpufreq/policy0/scaling_governor") == "ondemand"
