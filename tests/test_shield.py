"""Claims about the shield step: which backend, what is refused, what is put back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from machines import CSET, host, lay_out, program, snapshot

from env import tasks
from env.errors import MachineError, UsageError
from env.journal import Journal
from env.owner import Owner
from env.shield import ShieldStep
from env.sysfs import Failure, Files

B1_MESSAGES = (
    "mount: /cpusets: none already mounted on /sys/fs/bpf.",
    "mount: none already mounted or mount point busy",
    "mount: unknown filesystem type 'cpuset'",
    "[Errno 1] Operation not permitted: '/cpusets'",
)


def journalled(machine, tmp_path) -> Journal:
    machine.journal = Journal.create(tmp_path / "journal" / "j.jsonl", "hold", Owner.me("test"), "boot")
    return machine.journal


def applied(folder, tmp_path, **wanted):
    machine = host(folder, **wanted)
    journal = journalled(machine, tmp_path)
    step = ShieldStep(machine)
    step.apply()
    return step, journal


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "machine"


# cset


def test_cset_builds_and_takes_down_and_nothing_remains(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    before = snapshot(folder)
    step, journal = applied(folder, tmp_path)
    assert step.probe().status == "stable"
    assert step.probe().current == "CPU 1-3 shielded (cset)"
    assert step.restore(journal.of("shield", operations=True)) == []
    assert snapshot(folder) == before


def test_case_B11c_kernel_threads_that_cannot_be_moved_are_counted_and_the_shield_stands(folder, tmp_path):
    lay_out(folder, "B11_idle_v1", "B11_kernel_threads")
    program(folder, "cset", CSET)
    step, journal = applied(folder, tmp_path)
    assert step.probe().status == "stable"
    assert step.backends["cset"].notes == ["2 kernel threads cannot be moved; they are bound to their CPUs"]
    assert step.restore(journal.of("shield", operations=True)) == []


def test_applying_twice_builds_once(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    step, journal = applied(folder, tmp_path)
    step.apply()
    assert len(journal.of("shield", operations=True)) == 1


def test_the_operation_is_on_disk_before_cset_runs(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    journal_file = tmp_path / "journal" / "j.jsonl"
    program(folder, "cset", f'case "$*" in *--cpu=*) cp {journal_file} {tmp_path}/seen;; esac\n' + CSET)
    applied(folder, tmp_path)
    assert '"op":"cset"' in (tmp_path / "seen").read_text()


def test_memory_nodes_that_cset_hard_codes_are_put_right(folder, tmp_path):
    nodes = {"sys/devices/system/node/node0/cpulist": "0\n", "sys/devices/system/node/node1/cpulist": "1-3\n"}
    lay_out(folder, "B11_idle_v1", **nodes, **{"sys/fs/cgroup/cpuset/cpuset.mems": "0-1\n"})
    program(folder, "cset", CSET)
    applied(folder, tmp_path)
    assert (folder / "sys/fs/cgroup/cpuset/fastrnns-bench/cpuset.mems").read_text().strip() == "1"
    assert (folder / "sys/fs/cgroup/cpuset/fastrnns-system/cpuset.mems").read_text().strip() == "0-1"


@pytest.mark.parametrize("message", B1_MESSAGES)
def test_case_B1_a_cgroup2_host_is_recognised_before_cset_is_called(folder, message):
    lay_out(folder, "B1_cgroup2_only")
    program(folder, "cset", f'touch "$FASTRNNS_ROOT/bin/called"; echo "{message}" >&2; exit 2')
    state = ShieldStep(host(folder, shield="cset")).probe()
    assert state.status == "locked"
    assert "cgroup-v2: cset cannot work" in state.reason
    assert "permission" not in state.reason
    assert not (folder / "bin/called").exists()


def test_case_B1_the_next_mechanism_is_taken_and_named(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only")
    step, _ = applied(folder, tmp_path)
    assert step.backend().name == "cgroup2"
    assert step.probe().current == "CPU 1-3 shielded (cgroup2)"


def test_case_B3_an_overlapping_docker_set_is_named_and_left_alone(folder, tmp_path):
    lay_out(folder, "B3_docker_overlap")
    program(folder, "cset", CSET)
    before = snapshot(folder)
    step, journal = applied(folder, tmp_path)
    state = step.probe()
    assert state.status == "locked"
    assert "cpuset /docker (CPU 0-7, 0 tasks) is not ours" in state.reason
    assert "containers" in state.reason
    assert snapshot(folder) == before
    assert journal.entries == []
    assert "shield" not in (folder / "bin/cset.log").read_text()


def test_case_B3_what_cset_says_is_passed_on_and_nothing_stays_half_built(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(
        folder,
        "cset",
        'case "$*" in --version) exit 0;; *--cpu=*) mkdir "$FASTRNNS_ROOT/sys/fs/cgroup/cpuset/fastrnns-bench";'
        ' echo "cset: --> failed to create shield, hint: do other cpusets exist?" >&2; exit 1;; esac',
    )
    before = snapshot(folder)
    step, _ = applied(folder, tmp_path)
    assert "do other cpusets exist?" in step.probe().reason
    assert snapshot(folder) == before


def test_case_B6_a_shield_of_every_cpu_is_refused_before_anything_is_touched(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    before = snapshot(folder)
    step, _ = applied(folder, tmp_path, cpus="0-3")
    state = step.probe()
    assert state.status == "locked"
    assert "no whole core" in state.reason
    assert "taskset" in state.reason
    assert snapshot(folder) == before


def test_case_B11a_a_foreign_shield_is_refused_and_not_reset(folder, tmp_path):
    lay_out(folder, "B11_foreign_shield")
    program(folder, "cset", CSET)
    step, _ = applied(folder, tmp_path)
    reason = step.probe().reason
    assert "cpuset /system (CPU 0-1,6-7, 1 tasks)" in reason or "cpuset /user (CPU 2-5, 3 tasks)" in reason
    assert "--reset" not in (folder / "bin/cset.log").read_text()


def test_case_B11b_our_own_of_a_crashed_run_is_reset_and_again_without_harm(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    before = snapshot(folder)
    _, journal = applied(folder, tmp_path)
    again = Journal.load(journal.path)
    step = ShieldStep(host(folder))
    for _ in range(2):
        assert step.restore(again.of("shield", operations=True)) == []
        assert snapshot(folder) == before


@pytest.mark.parametrize("gone", ["fastrnns-bench", "fastrnns-system"])
def test_case_B11b_a_shield_that_was_half_taken_down_is_finished(folder, tmp_path, gone):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    before = snapshot(folder)
    step, journal = applied(folder, tmp_path)
    subprocess.run(["rm", "-r", str(folder / "sys/fs/cgroup/cpuset" / gone)], check=True)
    assert step.restore(journal.of("shield", operations=True)) == []
    assert snapshot(folder) == before


def test_case_B11b_our_names_without_a_journal_are_not_destroyed(folder, tmp_path):
    lay_out(folder, "B11_idle_v1")
    program(folder, "cset", CSET)
    _, journal = applied(folder, tmp_path)
    (folder / "sys/fs/cgroup/cpuset/fastrnns-bench/cpuset.cpu_exclusive").write_text("0\n")
    before = snapshot(folder)
    machine = host(folder)
    journal.remove()
    journalled(machine, tmp_path)
    other = ShieldStep(machine)
    other.apply()
    assert "without a journal" in other.probe().reason
    assert snapshot(folder) == before


def test_case_B11d_a_cset_that_cannot_import_is_broken_not_missing(folder):
    lay_out(folder, "B11_idle_v1")
    script = "echo \"ModuleNotFoundError: No module named 'future'\" >&2; exit 1"
    program(folder, "cset", script)
    state = ShieldStep(host(folder, shield="cset")).probe()
    assert state.status == "locked"
    assert "installed but broken: No module named 'future'" in state.reason


def test_case_B11_enospc_on_a_cpuset_means_that_mems_is_not_set():
    failure = Files("/").failure("/sys/fs/cgroup/cpuset/fastrnns-bench/tasks", 28, writing=True)
    assert "mems is not set" in failure.reason


def test_no_tool_is_not_a_broken_tool(folder):
    lay_out(folder, "B11_idle_v1")
    assert "not installed" in ShieldStep(host(folder, shield="cset")).probe().reason


# cgroup v2


def test_a_partition_is_built_and_taken_down_and_the_controller_is_put_back(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only")
    before = snapshot(folder)
    step, journal = applied(folder, tmp_path)
    group = folder / "sys/fs/cgroup/fastrnns-bench"
    assert (group / "cpuset.cpus.partition").read_text().strip() == "root"
    assert (group / "cpuset.cpus.exclusive").read_text().strip() == "1-3"
    assert (group / "run").is_dir()
    assert journal.of("shield")[0].data["subtree"] is True
    assert step.restore(journal.of("shield", operations=True)) == []
    assert snapshot(folder) == before


def test_a_controller_that_was_on_stays_on(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only", **{"sys/fs/cgroup/cgroup.subtree_control": "cpuset cpu\n"})
    before = snapshot(folder)
    step, journal = applied(folder, tmp_path)
    step.restore(journal.of("shield", operations=True))
    assert snapshot(folder) == before


def test_an_isolated_partition_explains_what_it_does_to_threads(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only")
    step, _ = applied(folder, tmp_path, partition="isolated")
    assert (folder / "sys/fs/cgroup/fastrnns-bench/cpuset.cpus.partition").read_text().strip() == "isolated"
    assert any("bind each thread" in note for note in step.backend().notes)


def test_the_kernels_reason_for_an_invalid_partition_is_passed_on(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only")
    before = snapshot(folder)
    machine = host(folder)
    real = machine.privilege.write

    def write(path: str, value: str) -> Failure | None:
        invalid = path.endswith("partition") and value == "root"
        return real(path, value) if not invalid else kernel_refuses(path)

    def kernel_refuses(path: str) -> None:
        Path(machine.files.path(path)).write_text("root invalid (Cpu list in cpuset.cpus not exclusive)\n")

    machine.privilege.write = write
    journal = journalled(machine, tmp_path)
    step = ShieldStep(machine)
    step.apply()
    assert "Cpu list in cpuset.cpus not exclusive" in step.probe().reason
    assert step.probe().status == "locked"
    assert not (folder / "sys/fs/cgroup/fastrnns-bench").exists()
    assert step.restore(journal.of("shield", operations=True)) == []
    after = snapshot(folder)
    assert after.keys() == before.keys()


def test_a_partition_of_somebody_else_on_these_cpus_is_named(folder, tmp_path):
    other = "sys/fs/cgroup/rt.slice/"
    files = {other + "cpuset.cpus": "2-3\n", other + "cpuset.cpus.partition": "isolated\n"}
    lay_out(folder, "B1_cgroup2_only", **files)
    step, _ = applied(folder, tmp_path)
    assert "cgroup /rt.slice is a partition (isolated) that holds CPU 2-3" in step.probe().reason


def test_a_container_is_told_so(folder):
    lay_out(folder, "B1_cgroup2_only", **{"sys/fs/cgroup/cgroup.type": "domain\n"})
    assert "container" in ShieldStep(host(folder, shield="cgroup2")).probe().reason


def test_a_kernel_without_partitions_is_recognised_by_the_file(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("env.tree.FRESH", {"cgroup.procs": "", "cpuset.cpus": ""})
    lay_out(folder, "B1_cgroup2_only")
    step, _ = applied(folder, tmp_path)
    assert "no cpuset partitions" in step.probe().reason
    assert not (folder / "sys/fs/cgroup/fastrnns-bench").exists()


def test_a_partition_that_the_kernel_took_back_is_no_longer_stable(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only")
    step, _ = applied(folder, tmp_path)
    (folder / "sys/fs/cgroup/fastrnns-bench/cpuset.cpus.partition").write_text("root invalid (hotplug)\n")
    state = step.probe()
    assert state.status == "unstable"
    assert "hotplug" in state.reason


# systemd

SYSTEMCTL = r"""
d="$FASTRNNS_ROOT/bin/state"; mkdir -p "$d"; echo "systemctl $*" >> "$FASTRNNS_ROOT/bin/log"
case "$1" in
show) u="$4"; case "$2" in
  *AllowedCPUs) cat "$d/$u" 2>/dev/null;;
  *ControlGroup) [ -e "$d/fastrnns-bench.service" ] && echo /fastrnns.slice/fastrnns-bench.slice/fastrnns-bench.service;;
  *LoadState) case "$u" in machine.slice) echo not-found;; *) echo loaded;; esac;; esac;;
set-property) echo "${4#AllowedCPUs=}" > "$d/$3"; [ -n "${4#AllowedCPUs=}" ] || rm "$d/$3";;
stop) rm "$d/$2";;
esac
exit 0
"""
SYSTEMD_RUN = r"""
echo "systemd-run $*" >> "$FASTRNNS_ROOT/bin/log"
for a in "$@"; do case "$a" in --property=AllowedCPUs=*) echo "${a#--property=AllowedCPUs=}" > "$FASTRNNS_ROOT/bin/state/fastrnns-bench.service";; esac; done
"""


def test_systemd_slices_are_restricted_and_given_back(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only", **{"run/systemd/system/x": ""})
    program(folder, "systemctl", SYSTEMCTL)
    program(folder, "systemd-run", SYSTEMD_RUN)
    (folder / "bin/state").mkdir()
    (folder / "bin/state/user.slice").write_text("0-2\n")
    step, journal = applied(folder, tmp_path, shield="systemd")
    assert step.probe().current == "CPU 1-3 shielded (systemd)"
    assert (folder / "bin/state/user.slice").read_text() == "0\n"
    assert step.restore(journal.of("shield", operations=True)) == []
    assert (folder / "bin/state/user.slice").read_text() == "0-2\n"
    assert sorted(path.name for path in (folder / "bin/state").iterdir()) == ["user.slice"]


def test_a_slice_that_somebody_changed_meanwhile_is_left_and_reported(folder, tmp_path):
    lay_out(folder, "B1_cgroup2_only", **{"run/systemd/system/x": ""})
    program(folder, "systemctl", SYSTEMCTL)
    program(folder, "systemd-run", SYSTEMD_RUN)
    step, journal = applied(folder, tmp_path, shield="systemd")
    (folder / "bin/state/user.slice").write_text("0,3\n")
    drift = step.restore(journal.of("shield", operations=True))
    assert any("user.slice" in line for line in drift)
    assert (folder / "bin/state/user.slice").read_text() == "0,3\n"


# affinity


def test_affinity_is_called_pinned_not_shielded(folder):
    lay_out(folder, "A11_smt_sibling")
    state = ShieldStep(host(folder)).probe()
    assert state.status == "locked"
    assert state.reason.startswith("pinned, not shielded")
    assert "cset: no cpuset hierarchy" in state.reason


def test_unknown_names_are_usage_errors(folder):
    lay_out(folder, "A11_smt_sibling")
    with pytest.raises(UsageError, match="cgroup2"):
        ShieldStep(host(folder, shield="docker"))
    with pytest.raises(UsageError, match="isolated"):
        ShieldStep(host(folder, partition="member"))


def test_pinning_reaches_every_thread():
    script = "import threading,time\nt=[threading.Thread(target=time.sleep,args=(30,)) for _ in range(3)]\n[x.start() for x in t]\nprint(flush=True)"
    cpu = min(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        assert tasks.pin(child.pid, [cpu]) == []
        found = tasks.place(Files("/"), child.pid)
        child.kill()
    assert len(found.threads) == 4
    assert {thread.cpus for thread in found.threads} == {frozenset({cpu})}


def test_who_holds_the_cpus_that_were_asked_for_is_named(folder):
    other = "sys/fs/cgroup/database"
    lay_out(
        folder,
        "B1_cgroup2_only",
        **{
            f"{other}/cpuset.cpus": "2\n",
            f"{other}/cpuset.cpus.partition": "root\n",
            "proc/self/status": "Cpus_allowed_list:\t0-1,3\n",
        },
    )
    with pytest.raises(MachineError, match=r"cgroup /database is a partition .* holds CPU 2"):
        _ = host(folder, cpus="1-2").choice
