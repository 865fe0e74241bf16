"""Claims about the watch: what it sees on a machine of files, when it looks, what it costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from env import samplers, slow_samplers, watching
from env.samplers import Seen
from env.sysfs import CPU, Files
from env.watch import MAX_POINTS, Timeline, Watch

SECOND = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 5 * SECOND

    def __call__(self) -> int:
        return self.now


class Machine:
    """A tree with one worker, whose numbers a test moves."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.clock = Clock()
        self.put("proc/7/task/7/schedstat", "0 0 0")
        self.put("proc/7/task/7/status", "Cpus_allowed_list:\t1\nnonvoluntary_ctxt_switches:\t0\n")
        self.put("proc/7/task/7/sched", "se.nr_migrations    :    0\n")
        self.put("proc/7/cpuset", "/fastrnns-bench\n")
        self.worker_ticks(0)
        self.cpu(busy=0)
        self.worker = samplers.Worker(root, 7, [1])
        self.processors = samplers.Processors(root, [1], self.worker)

    def put(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists():
            with path.open("r+") as file:  # the same inode, as a kernel file stays open
                file.write(text)
                file.truncate()
        else:
            path.write_text(text)

    def cpu(self, *, busy: int, steal: int = 0) -> None:
        self.put(
            "proc/stat",
            f"cpu 0 0 0 0 0 0 0 0 0 0\ncpu0 9 0 0 0 0 0 0 9 0 0\ncpu1 {busy} 0 0 0 0 0 0 {steal} 0 0\nintr 1\n",
        )

    def worker_ticks(self, ticks: int) -> None:
        self.put("proc/7/stat", f"7 (a) b) R 1 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 5 0 0\n")

    def watch(self, *more: samplers.Sampler) -> Watch:
        watch = Watch([self.worker, self.processors, *more], clock=self.clock)
        watch.look()
        return watch

    def pass_time(self, watch: Watch, seconds: float) -> list[str]:
        self.clock.now += int(seconds * SECOND)
        before = len(watch._seen)
        watch.look()
        return [item.cause for item in watch._seen[before:]]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_quiet_machine_is_not_suspected(machine):
    watch = machine.watch()
    machine.cpu(busy=100)
    machine.worker_ticks(100)
    machine.put("proc/7/task/7/schedstat", "1000000000 10 5")
    assert machine.pass_time(watch, 1.0) == []
    assert watch.facts()["judgement"] == {"status": "valid", "reasons": []}


def test_steal_on_a_bench_cpu_is_seen_and_elsewhere_not(machine):
    watch = machine.watch()
    machine.cpu(busy=0, steal=2)
    assert machine.pass_time(watch, 0.1) == ["steal"]
    assert watch.facts()["seen"]["processors"]["steal_ms"] == 2 * samplers.MS_PER_TICK


def test_steal_on_a_bench_cpu_where_hardly_anything_ran_took_nothing_from_the_worker(machine):
    watch = machine.watch()
    machine.cpu(busy=0, steal=1)
    assert machine.pass_time(watch, 0.15) == []
    assert watch.facts()["seen"]["processors"]["steal_ms"] == samplers.MS_PER_TICK  # told all the same


def test_a_worker_that_waits_for_its_cpu_is_seen(machine):
    watch = machine.watch()
    machine.put("proc/7/task/7/schedstat", f"{SECOND // 10} {SECOND // 20} 9")
    assert machine.pass_time(watch, 0.15) == ["the worker waited for a CPU"]
    assert watch.facts()["timeline"]["wait_ms"] == [0.0, 50.0]


def test_work_of_others_on_the_bench_cpus_is_what_is_left_of_busy(machine):
    watch = machine.watch()
    machine.cpu(busy=100)
    machine.worker_ticks(60)
    assert machine.pass_time(watch, 1.0) == ["foreign threads on the bench CPUs"]
    assert watch.facts()["seen"]["processors"]["foreign_ms"] == 40 * samplers.MS_PER_TICK


def test_a_foreign_cause_covers_the_window_that_it_was_found_in(machine):
    watch = machine.watch()
    for busy in (30, 60, 90, 120):
        machine.cpu(busy=busy)
        machine.pass_time(watch, 0.3)
    (found,) = watch.disturbances()
    assert found["to_ns"] - found["from_ns"] == pytest.approx(1.2 * SECOND)


def test_involuntary_switches_and_migrations_are_counted(machine):
    watch = machine.watch()
    machine.put("proc/7/task/7/schedstat", "1000 1 1")
    machine.put("proc/7/task/7/status", "Cpus_allowed_list:\t1\nnonvoluntary_ctxt_switches:\t200\n")
    machine.put("proc/7/task/7/sched", "se.nr_migrations    :    3\n")
    assert "involuntary context switches" in machine.pass_time(watch, 1.0)
    seen = watch.facts()["seen"]["worker"]
    assert (seen["involuntary"], seen["migrations"]) == (200, 3)


def test_a_thread_outside_the_bench_cpus_taints(machine):
    watch = machine.watch()
    machine.put("proc/7/task/7/schedstat", "1000 1 1")
    machine.put("proc/7/task/7/status", "Cpus_allowed_list:\t0-1\nnonvoluntary_ctxt_switches:\t0\n")
    assert "a worker thread may run outside the bench CPUs" in machine.pass_time(watch, 1.0)


def test_a_worker_in_another_cpuset_is_seen(machine):
    watch = machine.watch()
    machine.put("proc/7/task/7/schedstat", "1000 1 1")
    machine.put("proc/7/cpuset", "/")
    assert "the worker was moved to another cpuset" in machine.pass_time(watch, 1.0)


def test_a_worker_that_ended_is_no_error(machine):
    watch = machine.watch()
    for name in ("schedstat", "status", "sched"):
        (machine.root / "proc/7/task/7" / name).unlink()
    (machine.root / "proc/7/task/7").rmdir()
    (machine.root / "proc/7/task").rmdir()
    machine.pass_time(watch, 1.0)
    assert watch.errors == {}


def test_a_frequency_that_falls_on_a_busy_cpu_is_seen(machine):
    name = f"{CPU[1:]}/cpu1/cpufreq/scaling_cur_freq"
    machine.put(name, "3000000\n")
    watch = machine.watch(slow_samplers.Frequencies(machine.root, [1], machine.processors))
    machine.cpu(busy=100)
    machine.worker_ticks(100)
    assert machine.pass_time(watch, 1.0) == []
    machine.put(name, "2000000\n")
    machine.cpu(busy=200)
    machine.worker_ticks(200)
    assert machine.pass_time(watch, 1.0) == ["the frequency fell"]
    machine.put(name, "800000\n")
    assert machine.pass_time(watch, 1.0) == []  # idle by now
    assert watch.facts()["seen"]["frequency"] == {"busy_min_mhz": 2000.0, "busy_max_mhz": 3000.0}


def test_a_thermal_counter_that_rises_is_throttling(machine):
    name = f"{CPU[1:]}/cpu1/thermal_throttle/core_throttle_count"
    machine.put(name, "5\n")
    watch = machine.watch(slow_samplers.Thermal(machine.root, [1]))
    assert machine.pass_time(watch, 1.0) == []
    machine.put(name, "7\n")
    assert machine.pass_time(watch, 1.0) == ["thermal throttling"]


def test_case_A9_a_daemon_that_puts_a_governor_back_is_caught(machine):
    name = f"{CPU[1:]}/cpufreq/policy1/scaling_governor"
    machine.put(name, "performance\n")
    watch = machine.watch(slow_samplers.Settings({"policy1 scaling_governor": machine.root / name}))
    machine.put(name, "powersave\n")
    assert machine.pass_time(watch, 1.0) == ["policy1 scaling_governor changed from performance to powersave"]
    assert watch.facts()["judgement"]["status"] != "valid"


def test_a_partition_that_becomes_invalid_is_caught_with_the_kernels_reason(machine):
    machine.put("partition", "root\n")
    watch = machine.watch(slow_samplers.Partition(machine.root / "partition"))
    machine.put("partition", "root invalid (Parent is not a partition root)\n")
    (cause,) = machine.pass_time(watch, 1.0)
    assert "Parent is not a partition root" in cause


def test_gpu_reasons_that_slow_are_causes_and_idle_is_not(machine):
    answers = [
        {"sm_mhz": 1980, "event_reasons": [], "ecc_uncorrected": 0},
        {"sm_mhz": 1980, "event_reasons": ["gpu_idle"], "ecc_uncorrected": 0},
        {"sm_mhz": 1200, "event_reasons": ["sw_power_cap"], "ecc_uncorrected": 1},
    ]
    watch = machine.watch(slow_samplers.Gpu(lambda index: answers.pop(0), 0, {"sw_power_cap"}))
    assert machine.pass_time(watch, 1.0) == []
    assert machine.pass_time(watch, 1.0) == ["GPU: sw_power_cap", "GPU: uncorrected memory errors"]
    assert watch.facts()["seen"]["gpu"]["ranges"]["sm_mhz"] == [1200, 1980]


def test_a_gpu_that_does_not_answer_leaves_the_rest_its_sight(machine):
    def broken(index):
        raise RuntimeError("NVML Shared Library Not Found")

    watch = machine.watch(slow_samplers.Gpu(broken, 0, ()))
    assert machine.pass_time(watch, 1.0) == []
    assert "Not Found" in watch.facts()["seen"]["gpu"]["error"]


def test_a_sampler_that_fails_is_named_and_the_others_go_on(machine):
    class Broken:
        name, every_s = "broken", 0.0

        def look(self, span_s):
            raise OSError("no")

        def facts(self):
            return {}

        def close(self):
            pass

    watch = machine.watch(Broken())
    machine.cpu(busy=0, steal=30)
    assert machine.pass_time(watch, 1.0) == ["steal"]
    assert watch.errors == {"broken": "no"}


def test_a_slow_sampler_is_asked_at_its_own_pace(machine):
    class Slow:
        name, every_s = "slow", 1.0

        def __init__(self):
            self.asked = 0

        def look(self, span_s):
            self.asked += 1
            return Seen()

        def facts(self):
            return {}

        def close(self):
            pass

    slow = Slow()
    watch = machine.watch(slow)
    for _ in range(10):
        machine.pass_time(watch, 0.25)
    assert slow.asked == 3


def test_the_timeline_stays_short_and_loses_nothing():
    timeline = Timeline(0)
    for step in range(5 * MAX_POINTS + 1):
        timeline.add(step * 1_000_000, {"steal_ms": 1.0})
    facts = timeline.facts()
    assert len(facts["t_ms"]) == len(facts["steal_ms"]) <= MAX_POINTS
    assert sum(facts["steal_ms"]) == 5 * MAX_POINTS + 1


def test_a_column_that_begins_late_is_filled_up():
    timeline = Timeline(0)
    timeline.add(1_000_000, {"a": 1.0})
    timeline.add(2_000_000, {"b": 2.0})
    assert timeline.facts() == {"t_ms": [1.0, 2.0], "a": [1.0, 0.0], "b": [0.0, 2.0]}


def test_the_settings_watched_are_those_of_the_bench_cores_and_their_siblings(tmp_path):
    for cpu in (1, 5, 6):
        folder = tmp_path / CPU[1:] / f"cpufreq/policy{cpu}"
        folder.mkdir(parents=True)
        (folder / "scaling_governor").write_text("performance\n")
        (folder / "affected_cpus").write_text(f"{cpu}\n")
        topology = tmp_path / CPU[1:] / f"cpu{cpu}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text("6\n" if cpu == 6 else "1,5\n")
    (tmp_path / CPU[1:] / "online").write_text("0-7\n")
    found = watching.settings(Files(str(tmp_path)), [1])
    assert sorted(found) == ["policy1 scaling_governor", "policy5 scaling_governor"]


def test_a_real_worker_is_watched_from_start_to_stop():
    with subprocess.Popen(
        [sys.executable, "-c", "sum(range(10**7)); input()"], stdin=subprocess.PIPE
    ) as worker:
        watch = watching.build(Files("/"), worker.pid, os.sched_getaffinity(0))
        with watch:
            watch.look()
            worker.communicate(b"\n")
    facts = watch.facts()
    assert facts["status"] == "watched"
    assert facts["errors"] == {}
    assert facts["looks"] >= 2
    assert facts["stopped_ns"] > facts["started_ns"]
