"""A fleet on a real Slurm of three virtual nodes, and on this machine without one: killed, cancelled, interrupted."""

from __future__ import annotations

import json
import os
import re

import pytest
import slurm as real

from fastrnns.archive import checking
from fastrnns.archive.store import Archive

pytestmark = pytest.mark.slow
TINY = [
    "--rnns", "aten", "--device", "cpu", "--seq-length", "4", "--hidden-size", "16", "--input-size", "16",
    "--mini-batch", "2", "--warmup", "1", "--nloops", "5",
]  # fmt: skip
ONCE = [*TINY, "--processes", "1", "--env", "ignore"]
LONG = [*TINY, "--processes", "50"]


@pytest.fixture(scope="module")
def cluster():
    if why := real.lacking():
        pytest.skip(why)
    with real.cluster(3) as made:
        yield made


@pytest.fixture
def fleet(cluster, tmp_path):
    """Starts a fleet on the real Slurm."""
    made = []

    def start(*words, bench=ONCE):
        made.append(real.Fleet(tmp_path, ["--partition", "debug", *words], bench, cluster.environment))
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
    cluster.ask("scancel", f"--user={os.getuid()}")


def whole(folder):
    """The records of an archive that has nothing to complain about."""
    report = checking.check([folder])
    assert report.bad == ()
    return Archive(folder).list()


def test_of_three_jobs_one_is_killed_outright_and_one_cancelled_and_all_nodes_give_their_record(
    fleet, cluster
):
    started = fleet()
    started.strike(2)
    started.measuring(3)
    jobs = cluster.ask("squeue", "--noheader", "--nodelist=n3", "--format=%i").split()
    cluster.ask("scancel", *jobs)
    assert started.end() == 0, started.story
    nodes = started.answer["nodes"]
    assert [node["status"] for node in nodes] == ["done"] * 3
    assert [len(node["attempts"]) for node in nodes] == [1, 2, 2]
    assert nodes[1]["attempts"][0]["exit_code"] is None  # killed: it never told
    found = {entry.id: entry.record for entry in whole(started.archive)}
    assert {node["record"] for node in nodes} <= set(found)
    for line in ("n2: job", "was killed (FAILED)", "n3: job", "CANCELLED", "trying again, 1 of 1"):
        assert line in started.story
    assert started.left_running() == []
    assert cluster.ask("squeue", "--noheader") == ""


def test_ctrl_c_ends_every_job_keeps_what_was_measured_and_leaves_nothing_running(fleet, cluster):
    started = fleet("--parallel", "2", bench=[*LONG, "--env", "check"])
    for number in (1, 2):
        started.measuring(number)
    started.interrupt()
    assert started.process.returncode == 130, started.story
    assert started.left_running() == []
    assert cluster.ask("squeue", "--noheader") == ""
    nodes = started.answer["nodes"]
    assert [[attempt["exit_code"] for attempt in node["attempts"]] for node in nodes] == [[130], [130], []]
    assert {entry.record["exit_code"] for entry in whole(started.archive)} == {130}
    assert "trying again" not in started.story


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--partition", "gpu"], "there are debug"),
        (["--hosts", "n[2-4]"], "no such node in partition debug; there are n1, n2, n3"),
        (["--time", "600"], "Slurm refuses such a job"),
    ],
)
def test_what_slurm_does_not_have_is_refused_and_nothing_is_submitted(fleet, cluster, words, said):
    before = cluster.ask("squeue", "--noheader", "--states=all", "--format=%i")
    started = fleet(*words)
    assert started.end() == 2
    assert said in started.story
    assert len(started.story.splitlines()) == 1
    assert cluster.ask("squeue", "--noheader", "--states=all", "--format=%i") == before


def test_a_job_for_each_gpu_runs_after_the_other_and_what_its_node_cannot_do_is_named_and_not_tried_again(
    fleet, cluster
):
    words = [word for word in ONCE if word not in {"--device", "cpu"}]
    refused = fleet("--per", "gpu", bench=words)
    assert refused.end() == 2
    assert "no GPU (Gres) of n2, n3" in refused.story
    started = fleet("--per", "gpu", "--hosts", "n1", bench=words)  # n1 only claims to have them
    assert started.end() == 1
    nodes = started.answer["nodes"]
    assert [node["gpu"] for node in nodes] == [0, 1]
    assert [[each["exit_code"] for each in node["attempts"]] for node in nodes] == [[2], [2]]
    assert all("no NVIDIA GPU" in node["reason"] or "CUDA" in node["reason"] for node in nodes)
    times = cluster.ask("squeue", "--noheader", "--states=all", "--nodelist=n1", "--sort=S", "--format=%S %e")
    (_, first_ended), (second_began, _) = [line.split() for line in times.splitlines()[-2:]]
    assert second_began >= first_ended


def test_a_drained_node_of_the_partition_is_left_out_and_named(fleet, cluster):
    cluster.ask("scontrol", "update", "nodename=n1", "state=drain", "reason=fan")
    try:
        started = fleet()
        assert started.end() == 0, started.story
        assert "left out: n1 (drained: fan)" in started.story
        assert len(started.answer["nodes"]) == 2
    finally:
        cluster.ask("scontrol", "update", "nodename=n1", "state=resume")


def test_no_record_and_no_answer_names_a_node(fleet):
    started = fleet("--hosts", "n3")
    assert started.end() == 0, started.story
    (entry,) = whole(started.archive)
    for text in (entry.path.read_text(), json.dumps(started.answer)):
        assert not re.search(r"\bn3\b", text)


@pytest.mark.root
def test_a_node_whose_bench_was_killed_for_good_is_put_back(fleet):
    started = fleet("--hosts", "n2", "--retries", "0", bench=[*LONG, "--env", "apply"])
    started.strike(1)
    assert started.end() == 1
    (node,) = started.answer["nodes"]
    assert (node["status"], node["put_back"]) == ("failed", True)
    # That the machine is as before is what the end of the whole run checks (conftest.py).


def test_without_slurm_the_fleet_is_this_machine_and_can_be_killed_and_interrupted(tmp_path):
    pytest.importorskip("submitit")
    started = real.Fleet(tmp_path, ["--local"], ONCE, dict(os.environ))
    started.strike(1)
    assert started.end() == 0, started.story
    assert "trying again" in started.story
    (entry,) = whole(started.archive)
    assert started.answer["nodes"][0]["record"] == entry.id
    (tmp_path / "again").mkdir()
    again = real.Fleet(tmp_path / "again", ["--local"], [*LONG, "--env", "ignore"], dict(os.environ))
    again.measuring(1)
    again.interrupt()
    assert again.process.returncode == 130, again.story
    assert again.left_running() == []
    assert [entry.record["exit_code"] for entry in whole(again.archive)] == [130]
