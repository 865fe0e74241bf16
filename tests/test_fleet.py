"""A fleet's logic with a cluster that is played: who is tried again, what is kept, how it is ended; and its answers."""

from __future__ import annotations

import io
import json
import math
import os
import random
import subprocess
import sys
from types import SimpleNamespace

import pytest
from records import bench, fingerprint, phase, result

from env.errors import UsageError as EnvUsageError
from fastrnns.archive.store import Archive
from fastrnns.errors import HarnessError, MachineError, UsageError
from fastrnns.fleet import __main__ as command
from fastrnns.fleet import drive, executor, flags, gather, job, odd, progress, slurm, table
from fastrnns.fleet.drive import Drive, Rules, Seat
from fastrnns.fleet.task import ENDED, PENDING, RUNNING, STOP, Node, State

TINY = ["--rnns", "aten", "--env", "ignore"]
SINFO = """n1|debug|idle|gpu:2(S:0-1)|none
n2|debug|mixed|gpu:a100:4|none
n2|long|mixed|gpu:a100:4|none
n3|debug|drained|(null)|a fan is broken
n4|debug|idle*|(null)|none
n5|long|allocated|(null)|none
"""


class Clock:
    """Time that passes by sleeping."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


class Display:
    def __init__(self):
        self.lines = []

    def said(self, text):
        self.lines.append(text)

    def tick(self, seats):
        self.seats = seats


CODES = {"ok": 0, "bad": 1, "usage": 2, "refused": 3, "stopped": 130, "crash": 1, "signal": -9}


class Played:
    """A cluster whose jobs end as a script says: one word for each attempt at each host.

    `ok`, `bad`, `usage` and `refused` end with that exit code; `killed` leaves nothing; `stopped` a partial record;
    `pending` never begins; `rejected` cannot be submitted; `deaf` runs until it is killed; `long` until it is stopped.
    """

    def __init__(self, script):
        self.script = {host: list(words) for host, words in script.items()}
        self.jobs = {}
        self.submitted = []
        self.stopped, self.killed = [], []
        self.most = 0

    def submit(self, task):
        word = self.script[task.node.host].pop(0) if task.label != "put back" else "ok"
        self.submitted.append((task.node.host, task.label))
        if word == "rejected":
            raise HarnessError("the job could not be submitted: no such account")
        name = str(len(self.jobs) + 1)
        self.jobs[name] = [word, 2, task]
        self.most = max(self.most, sum(1 for each in self.jobs.values() if each[1] > -1))
        return name

    def states(self, jobs):
        found = {}
        for name in jobs:
            word, left, task = self.jobs[name]
            if word == "pending":
                found[name] = State(PENDING, "PENDING", "Resources")
            elif word == "gone" and left < 1:
                continue
            elif left > 0 or word in {"deaf", "long"}:
                (task.folder / job.PID).touch()
                self.jobs[name][1] -= 1
                found[name] = State(RUNNING, "RUNNING", "", str(task.node.host))
            else:
                self.jobs[name][1] = -1
                self._leave(word, task)
                found[name] = State(ENDED, "CANCELLED" if word == "killed" else "COMPLETED")
        return found

    def _leave(self, word, task):
        code = CODES.get(word)
        if code is None or (task.folder / job.OUTCOME).exists():
            return
        if word in {"ok", "bad", "stopped"} and task.label != "put back":
            made = bench("aten", exit_code=code)
            if word == "bad":
                made["results"][0] |= {"status": "failed", "error": "out of memory"}
            Archive(task.folder / job.RECORDS).write(made)
        (task.folder / job.STORY).write_text("bench: a last word\n")
        signals = ["SIGTERM"] if word == "stopped" else []
        (task.folder / job.OUTCOME).write_text(json.dumps({"exit_code": code, "signals": signals}))

    def stop(self, jobs):
        self.stopped += jobs
        for name in jobs:
            if self.jobs[name][0] == "long":
                self.jobs[name][:2] = ["stopped", 1]
            elif self.jobs[name][0] == "pending":
                self.jobs[name][:2] = ["killed", 0]

    def kill(self, jobs):
        self.killed += jobs
        for name in jobs:
            self.jobs[name][:2] = ["killed", 0]


@pytest.fixture
def fleet(tmp_path):
    """Drives a script; returns what came of it."""

    def go(script, interrupt_after=None, **changes):
        made = Played(script)
        seats = [Seat(Node(number, host)) for number, host in enumerate(script, start=1)]
        rules = {
            "words": ("-m", "fastrnns.bench"), "folder": tmp_path / f"run-{len(list(tmp_path.iterdir()))}", "retries": 1, "parallel": 99, "wait_s": None,
            "strict": False, "applies": False, **changes,
        }  # fmt: skip
        rules["folder"].mkdir(exist_ok=True)
        archive, clock, display = Archive(tmp_path / "results"), Clock(), Display()
        interrupts = SimpleNamespace(requested=False)

        def sleep(seconds):
            clock.sleep(seconds)
            if interrupt_after is not None and clock.now > interrupt_after:
                interrupts.requested = True
            for each in made.jobs.values():  # a put-back is not polled: its outcome is read
                if each[2].label == "put back":
                    made._leave(each[0], each[2])

        def take_in(attempt):
            attempt.entries, faults = gather.take_in(archive, attempt.folder)
            return faults

        driver = Drive(made, seats, Rules(**rules), take_in, display, interrupts, clock, sleep)
        driver.run()
        return SimpleNamespace(
            seats=seats,
            cluster=made,
            lines=display.lines,
            archive=archive,
            clock=clock,
            code=command.code_of(seats),
        )

    return go


def test_every_node_gives_its_record_into_one_archive(fleet):
    done = fleet({"n1": ["ok"], "n2": ["ok"], "n3": ["ok"]})
    assert [seat.status for seat in done.seats] == ["done"] * 3
    assert done.code == 0
    assert sorted(entry.id for entry in done.archive.list()) == sorted(seat.whole.id for seat in done.seats)
    assert [entry.record["sequence"] for entry in done.archive.list()] == [1, 2, 3]


@pytest.mark.parametrize("how", ["killed", "stopped", "gone", "crash", "signal", "rejected", "refused"])
def test_what_failed_or_was_killed_is_tried_again_and_named(fleet, how):
    done = fleet({"n1": ["ok"], "n2": [how, "ok"]})
    assert done.cluster.submitted.count(("n2", "attempt 2")) == 1
    assert done.code == 0
    assert any(line.startswith("n2:") and "trying again" in line for line in done.lines)


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_node_is_tried_as_often_as_asked_and_no_more(fleet, retries):
    done = fleet({"n1": ["ok"], "n2": ["killed"] * 9}, retries=retries)
    assert len(done.seats[1].attempts) == retries + 1
    assert (done.seats[1].status, done.code) == ("failed", 1)
    assert done.seats[0].whole is not None


def test_partial_records_of_a_stopped_attempt_are_kept_and_do_not_stand_for_the_node(fleet):
    done = fleet({"n1": ["stopped", "ok"]})
    assert len(done.archive.list()) == 2
    assert done.seats[0].whole.record["exit_code"] == 0
    failed = fleet({"n2": ["stopped", "stopped"]})
    assert failed.seats[0].whole is None
    assert len(failed.seats[0].entries) == 2


def test_a_failed_model_is_an_answer_and_not_tried_again(fleet):
    done = fleet({"n1": ["bad", "ok"]})
    assert len(done.seats[0].attempts) == 1
    assert (done.seats[0].status, done.code) == ("bad", 1)
    assert "aten" in done.seats[0].reason


def test_a_command_line_that_a_node_cannot_meet_is_not_tried_again(fleet):
    done = fleet({"n1": ["usage", "ok"]})
    assert len(done.seats[0].attempts) == 1
    assert "a last word" in done.seats[0].reason


def test_machines_that_refuse_under_strict_are_exit_3_and_not_tried_again(fleet):
    done = fleet({"n1": ["ok"], "n2": ["refused", "ok"]}, strict=True)
    assert (len(done.seats[1].attempts), done.seats[1].status, done.code) == (1, "refused", 3)
    mixed = fleet({"n1": ["refused"], "n2": ["killed", "killed"]}, strict=True)
    assert mixed.code == 1


def test_no_more_jobs_are_under_way_than_asked_for(fleet):
    done = fleet({f"n{number}": ["ok"] for number in range(7)}, parallel=2)
    assert done.cluster.most == 2
    assert done.code == 0


def test_a_job_that_does_not_begin_is_given_up_where_that_was_asked(fleet):
    done = fleet({"n1": ["ok"], "n2": ["pending"]}, wait_s=120.0, retries=0)
    assert done.cluster.killed == ["2"]
    assert "Resources" in done.seats[1].reason
    assert done.code == 1


def test_an_interruption_stops_every_job_and_waits_until_each_put_itself_back(fleet, tmp_path):
    done = fleet({"n1": ["long"], "n2": ["long"], "n3": ["pending"]}, interrupt_after=5)
    assert done.cluster.stopped == ["1", "2", "3"]
    assert done.cluster.killed == []
    assert [seat.status for seat in done.seats] == ["failed"] * 3
    assert len(done.archive.list()) == 2  # what was measured
    assert all(label == "attempt 1" for _, label in done.cluster.submitted)


def test_an_interruption_begins_nothing_more(fleet):
    done = fleet({"n1": ["long"], "n2": ["ok"]}, interrupt_after=5, parallel=1)
    assert [host for host, _ in done.cluster.submitted] == ["n1"]
    assert done.seats[1].reason == "not begun"


def test_a_job_that_does_not_listen_is_killed_and_its_node_put_back(fleet):
    done = fleet({"n1": ["deaf"], "n2": ["long"]}, interrupt_after=5, applies=True)
    assert done.cluster.killed == ["1"]
    assert ("n1", "put back") in done.cluster.submitted
    assert ("n2", "put back") not in done.cluster.submitted  # it ended by itself
    assert done.seats[0].put_back is True
    assert done.seats[1].put_back is None


def test_a_bench_that_was_killed_for_good_is_put_back_and_one_that_was_retried_is_not(fleet):
    done = fleet({"n1": ["killed", "killed"], "n2": ["killed", "ok"]}, applies=True)
    assert [host for host, label in done.cluster.submitted if label == "put back"] == ["n1"]
    ignoring = fleet({"n1": ["killed", "killed"]})
    assert not [label for _, label in ignoring.cluster.submitted if label == "put back"]


def test_a_scheduler_that_does_not_answer_for_a_while_is_asked_again(fleet, monkeypatch):
    true, silent = Played.states, iter([True] * 3)

    def states(self, jobs):
        if next(silent, False):
            raise HarnessError("squeue did not answer")
        return true(self, jobs)

    monkeypatch.setattr(Played, "states", states)
    done = fleet({"n1": ["ok"]})
    assert done.code == 0
    assert sum("squeue did not answer" in line for line in done.lines) == 1


# Gathering.


def test_gathering_twice_adds_nothing_twice_and_names_what_is_damaged(tmp_path):
    home, folder = Archive(tmp_path / "home"), tmp_path / "job"
    path = Archive(folder / job.RECORDS).write(bench("aten"))
    kept = path.read_bytes()
    first, faults = gather.take_in(home, folder)
    assert (len(first), faults) == (1, [])
    assert not path.exists()
    path.write_bytes(kept)  # as if the fleet had been killed before it was taken away
    again, faults = gather.take_in(home, folder)
    assert [entry.id for entry in again] == [first[0].id]
    assert len(home.list()) == 1
    path.write_bytes(kept[:-40])
    nothing, faults = gather.take_in(home, folder)
    assert nothing == []
    assert "damaged" in faults[0]
    assert path.exists()


# On the node.


def test_a_job_runs_its_command_in_its_folder_and_leaves_its_exit_code(tmp_path):
    folder = tmp_path / "node-0001" / "attempt-1"
    folder.mkdir(parents=True)
    code = "import os, sys; print(os.environ['X'], 'Y' in os.environ); print('bye', file=sys.stderr); sys.exit(7)"
    assert job.run(("-c", code), str(folder), None, {"X": "3", "Y": None}) == 7
    assert (folder / job.OUTPUT).read_text() == "3 False\n"
    assert job.last_words(folder / job.STORY) == "bye"
    assert job.outcome(folder)["exit_code"] == 7


def test_a_job_that_begins_after_the_fleet_was_ended_runs_nothing(tmp_path):
    folder = tmp_path / "node-0001" / "attempt-1"
    folder.mkdir(parents=True)
    (tmp_path / STOP).touch()
    assert job.run(("-c", "open('ran', 'w')"), str(folder), None, {}) == 130
    assert not (folder / "ran").exists()
    assert job.outcome(folder)["exit_code"] is None


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGUSR2"])
def test_a_signal_reaches_the_command_once_as_sigterm_and_is_told(tmp_path, name):
    folder = tmp_path / "node-0001" / "attempt-1"
    folder.mkdir(parents=True)
    code = (
        "import os, signal, sys, time\n"
        "got = []\n"
        "signal.signal(signal.SIGTERM, lambda *_: got.append(1))\n"
        f"os.kill(os.getppid(), signal.{name}); os.kill(os.getppid(), signal.{name})\n"
        "while not got: time.sleep(0.01)\n"
        "time.sleep(0.1); sys.exit(100 + len(got))\n"
    )
    assert job.run(("-c", code), str(folder), None, {}) == 101
    assert job.outcome(folder)["signals"][0] == name


@pytest.mark.parametrize(
    ("seen", "gpu", "shown"),
    [(None, 1, "1"), ("4,5,6", 2, "6"), ("GPU-aa, GPU-bb", 1, "GPU-bb"), ("0,1", None, "0,1"), ("", 0, "0")],
)
def test_a_job_of_one_gpu_sees_that_one(seen, gpu, shown):
    assert job.environment(gpu, {job.VISIBLE: seen}).get(job.VISIBLE) == shown


# The command line.


def fake_slurm(monkeypatch, sinfo=SINFO):
    monkeypatch.setattr(slurm, "present", lambda: True)
    monkeypatch.setattr(slurm, "hosts", lambda: slurm.read_hosts(sinfo))
    monkeypatch.setattr(slurm, "expand", lambda text: text.split(","))
    monkeypatch.setattr(slurm, "try_out", lambda words: None)


def options(tmp_path, *words, bench_words=TINY):
    args = flags.parser().parse_args([*words, "--archive", str(tmp_path / "results")])
    return flags.fleet_options(args, bench_words)


def test_a_partition_means_its_usable_nodes_and_names_the_others(tmp_path, monkeypatch):
    fake_slurm(monkeypatch)
    found = options(tmp_path, "--partition", "debug")
    assert [node.host for node in found.nodes] == ["n1", "n2"]
    assert found.left_out == ("n3 (drained: a fan is broken)", "n4 (idle*)")
    assert found.rules.parallel == 2
    assert not found.rules.applies


def test_a_job_a_gpu_takes_the_first_gpu_of_every_node_first(tmp_path, monkeypatch):
    fake_slurm(monkeypatch)
    found = options(tmp_path, "--hosts", "n1,n2", "--per", "gpu")
    assert [(node.host, node.gpu) for node in found.nodes] == [
        ("n1", 0), ("n2", 0), ("n1", 1), ("n2", 1), ("n2", 2), ("n2", 3),
    ]  # fmt: skip
    assert found.rules.words[-2:] == ("--device", "cuda")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--partition", "nope"], "debug, long"),
        (["--hosts", "n1,n9"], "n9"),
        (["--hosts", "n5", "--partition", "debug"], "no such node in partition debug"),
        (["--hosts", "n3"], "a fan is broken"),
        ([], "say where"),
        (["--hosts", "n1", "--retries", "-1"], "--retries is -1"),
        (["--hosts", "n1", "--time", "0"], "--time is 0"),
        (["--hosts", "n5", "--per", "gpu"], "no GPU (Gres) of n5"),
        (["--local", "--hosts", "n1"], "--hosts is Slurm's"),
    ],
)
def test_what_is_not_possible_is_refused_with_what_is(tmp_path, monkeypatch, words, said):
    fake_slurm(monkeypatch)
    with pytest.raises(UsageError) as caught:
        options(tmp_path, *words)
    assert said in str(caught.value)
    assert not (tmp_path / flags.FOLDER).exists()


@pytest.mark.parametrize(
    "words",
    [
        ["--rnns", "no_such_model"],
        ["--seqLength", "0"],
        ["--archive", "elsewhere"],
        ["--against", "latest"],
        ["--print-json"],
        ["--list"],
        ["--cpus", "3-1"],
        ["--nloops", "0"],
    ],
    ids=" ".join,
)
def test_the_benchs_arguments_are_refused_before_anything_is_submitted(tmp_path, monkeypatch, words):
    fake_slurm(monkeypatch)
    with pytest.raises((UsageError, EnvUsageError)):
        options(tmp_path, "--partition", "debug", bench_words=words)


def test_cpus_and_gpus_of_other_machines_are_theirs_to_refuse(tmp_path, monkeypatch):
    fake_slurm(monkeypatch)
    words = ["--cpus", "900-903", "--device", "cuda:3", "--rnns", "cudnn"]
    assert str(options(tmp_path, "--hosts", "n1", bench_words=words).bench.device) == "cuda:3"


def test_without_slurm_a_fleet_is_this_machine_and_hosts_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "present", lambda: False)
    found = options(tmp_path)
    assert isinstance(found.cluster, executor.Local)
    assert (len(found.nodes), found.rules.parallel) == (1, 1)
    with pytest.raises(UsageError, match="no Slurm here"):
        options(tmp_path, "--hosts", "n1")


def test_without_submitit_a_fleet_is_refused_with_the_command_that_brings_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(slurm, "present", lambda: False)
    monkeypatch.setattr(executor.importlib.util, "find_spec", lambda name: None)
    assert command.main(["--archive", str(tmp_path / "results"), "--", *TINY, "--device", "cpu"]) == 2
    said = capsys.readouterr().err
    assert "pip install 'submitit" in said
    assert len(said.splitlines()) == 1


def test_neither_torch_nor_submitit_is_imported_for_a_refusal():
    code = (
        "import sys\n"
        "from fastrnns.fleet import __main__ as command\n"
        "assert command.main(['--local', '--', '--rnns', 'no_such_model']) == 2\n"
        "assert not {'torch', 'submitit', 'numpy', 'rich'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_slurms_states_are_read_in_its_words():
    found = slurm.read_states(
        "7|PENDING||Resources\n8|COMPLETING|n1|None\n9|PREEMPTED|n2|None\n10|NODE_FAIL|n3|x\n"
    )
    assert [state.kind for state in found.values()] == [PENDING, RUNNING, ENDED, ENDED]
    assert found["7"].reason == "Resources"
    assert found["8"].host == "n1"


# The odd one out.


def nodes(*factors, processes=5, noise=0.002, seed=1, **changes):
    """Records of nodes of one hardware, each so many times as slow as the first."""
    draw = random.Random(seed)
    found = {}
    for number, factor in enumerate(factors, start=1):
        series = [[2.0 * factor * math.exp(draw.gauss(0, noise))] * 3 for _ in range(processes)]
        found[number] = bench(results=[result("aten", forward=phase(*series), backward=None)], **changes)
    return found


def test_the_slow_node_of_many_is_the_odd_one_and_no_other():
    (group,) = odd.groups(nodes(1, 1, 1, 1.05, 1, 1))
    assert [reading.node for reading in group.odd] == [4]
    assert group.odd[0].ratio == pytest.approx(1.05, rel=0.01)
    assert abs(group.odd[0].z) > odd.CUT


def test_equal_nodes_have_no_odd_one_however_many_there_are():
    for count in (2, 3, 5, 20):
        alarms = sum(
            bool(odd.groups(nodes(*[1] * count, noise=0.01, seed=seed))[0].odd) for seed in range(50)
        )
        assert alarms <= 1, count


def test_less_than_the_margin_is_of_no_interest():
    (group,) = odd.groups(nodes(1, 1, 1, 1.006, 1, 1, noise=0.0003))
    assert group.odd == ()
    assert max(abs(reading.z) for reading in group.readings) > odd.CUT


def test_of_two_nodes_both_are_named_and_it_is_said_why():
    (group,) = odd.groups(nodes(1, 1.1))
    assert {reading.node for reading in group.odd} == {1, 2}
    assert any("of two nodes" in note for note in group.notes)


def test_one_process_a_node_tells_no_node_from_noise():
    (group,) = odd.groups(nodes(1, 1, 1.5, 1, processes=1))
    assert group.odd == ()
    assert any("--processes 5" in note for note in group.notes)


def test_nodes_of_other_hardware_stand_apart_and_other_settings_are_named():
    records = nodes(1, 1, 1)
    records[3] |= {"fingerprint": fingerprint("f" * 16, "Other CPU")}
    records[2]["options"] = {**records[2]["options"], "threads": 3}
    found = odd.groups(records)
    assert [group.nodes for group in found] == [(1,), (2,), (3,)]
    assert any("threads" in note for note in found[1].notes)
    assert not any("not comparable" in note for note in found[2].notes)


def test_the_software_in_which_a_node_differs_is_named():
    records = nodes(1, 1, 1)
    records[2]["fingerprint"] = {**records[2]["fingerprint"], "software": {"driver": "550.1"}}
    assert any("node 2" in note and "driver" in note for note in odd.groups(records)[0].notes)


# The answer.


def test_an_invalid_record_is_judged_by_nothing_and_named_with_its_reason(seats):
    seats[3].whole.record["verdict"] = {"status": "invalid", "reasons": ["the watch saw a stranger"]}
    text = shown(seats, hosts=False)
    assert "not judged: node 4" in text
    assert "the watch saw a stranger" in text
    assert "3 of 5 nodes" in text


@pytest.fixture
def seats(tmp_path):
    """Three nodes with records, one slow, and one without."""
    archive, made = Archive(tmp_path / "results"), []
    for number, record in nodes(1, 1, 1, 1.2).items():
        attempt = drive.Attempt(tmp_path, outcome={"exit_code": 0})
        attempt.entries = [gather.store.read(archive.write(record))]
        made.append(Seat(Node(number, f"secret-host-{number}"), [attempt], "done"))
    made.append(
        Seat(Node(5, "secret-host-5"), [drive.Attempt(tmp_path)], "failed", "secret-host-5 was on fire")
    )
    return made


def shown(seats, **how):
    groups = odd.groups({seat.node.number: seat.whole.record for seat in seats if seat.whole})
    stream = io.StringIO()
    table.show(seats, groups, stream, **how)
    return stream.getvalue()


def test_the_table_sets_nodes_side_by_side_and_marks_the_odd_one(seats):
    text = shown(seats, hosts=True)
    odd_line = next(line for line in text.splitlines() if line.startswith("secret-host-4"))
    assert odd_line.endswith("odd")
    assert sum(line.rstrip().endswith("odd") for line in text.splitlines()) == 1
    assert "no record: secret-host-5" in text
    assert max(map(len, text.splitlines()[:6])) <= 100


def test_no_host_is_named_in_what_may_be_kept(seats):
    assert "secret" not in shown(seats, hosts=False)
    groups = odd.groups({seat.node.number: seat.whole.record for seat in seats if seat.whole})
    answer = table.as_dict(seats, groups, 1)
    assert "secret" not in json.dumps(answer)
    assert answer["nodes"][4]["reason"] == "<host> was on fire"
    assert answer["groups"][0]["odd"] == [4]


def test_many_models_are_shown_by_how_far_a_node_is_off_at_most(seats, tmp_path):
    for seat in seats[:4]:
        record = seat.whole.record
        record["results"] = [{**record["results"][0], "model": f"model{number}"} for number in range(9)]
    text = shown(seats, hosts=True)
    assert "model8 forward ms" not in text
    assert "+20" in text


def test_the_plain_display_gives_a_sign_of_life_and_counts(seats):
    clock, stream = Clock(), io.StringIO()
    plain = progress.Plain(stream, clock)
    plain.tick(seats)
    assert stream.getvalue() == ""
    clock.now = progress.PLAIN_S
    plain.tick(seats)
    assert stream.getvalue().strip() == "4 done, 1 failed"


def test_the_live_display_shows_what_each_node_does(seats, tmp_path):
    seats[0].status, seats[0].last.state = "running", State(RUNNING, "RUNNING")
    (tmp_path / job.STORY).write_text("process 1 of 5: aten\n")
    stream = io.StringIO()
    live = progress.Live(stream, Clock())
    drawn = live._table(seats)
    live.close()
    from rich.console import Console

    Console(file=stream, width=120).print(drawn)
    assert "secret-host-1" in stream.getvalue()
    assert "process 1 of 5: aten" in stream.getvalue()


def test_a_slurm_that_does_not_answer_is_said_with_what_to_do(tmp_path, monkeypatch):
    for name in ("sinfo", "sbatch"):
        tool = tmp_path / name
        tool.write_text("#!/bin/sh\necho 'sinfo: error: Unable to contact slurm controller' >&2\nexit 1\n")
        tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    with pytest.raises(
        MachineError, match=r"Slurm does not answer \(Unable to contact slurm controller\); .*--local"
    ):
        slurm.hosts()
