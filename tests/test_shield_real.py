"""Claims about real cpusets on this machine: the worker inside, everybody else outside, everything as before."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from env import tasks
from env.hold import hold
from env.journal import Journal
from env.lock import HeldError, locked
from env.owner import Owner
from env.privilege import Privilege
from env.shield import ShieldStep
from env.shields.cset import SETS, Cset, hierarchy
from env.step import Host, Wanted
from env.sysfs import Files

FILES = Files("/")
PROJECT = Path(__file__).parent.parent


def reason() -> str | None:
    if os.geteuid() != 0:
        return "needs root"
    why = Cset(Host(FILES, Privilege(FILES))).unusable()
    if why is not None:
        return why
    return None if len(os.sched_getaffinity(0)) > 1 else "one CPU cannot be shielded"


WHY = reason()
pytestmark = [pytest.mark.root, pytest.mark.skipif(WHY is not None, reason=WHY or "")]
THREADS = """
import sys, threading, time
sys.stdin.readline()
threads = [threading.Thread(target=lambda: time.sleep(30), daemon=True) for _ in range(4)]
[thread.start() for thread in threads]
print("running", flush=True)
sys.stdin.readline()
"""


def standing() -> list[str]:
    where = hierarchy(FILES)
    assert where is not None
    return [name for name in SETS if FILES.is_dir(where.folder(name))]


def journal_in(folder: Path) -> Journal:
    return Journal.create(folder / "journal" / "j.jsonl", "hold", Owner.me("test"), "boot")


@pytest.fixture
def machine_is_ours() -> Iterator[None]:
    """Nobody else of this program holds the machine meanwhile."""
    try:
        with locked(FILES):
            if standing():
                pytest.skip("a shield stands on this machine; not ours to touch")
            yield
    except HeldError as error:
        pytest.skip(str(error))


@pytest.fixture
def step(tmp_path, machine_is_ours) -> Iterator[ShieldStep]:
    host = Host(FILES, Privilege(FILES), Wanted(shield="cset"))
    host.journal = journal_in(tmp_path)
    made = ShieldStep(host)
    try:
        yield made
    finally:
        made.restore(host.journal.of("shield", operations=True))
        assert standing() == []


@pytest.fixture
def pinned() -> Iterator[dict[int, frozenset[int]]]:
    """Bystanders pinned to each CPU: what a shield would forget."""
    cpus = sorted(os.sched_getaffinity(0))
    children = []
    for cpu in cpus:
        child = subprocess.Popen(["sleep", "60"])
        os.sched_setaffinity(child.pid, {cpu})
        children.append(child)
    yield {child.pid: frozenset({cpu}) for child, cpu in zip(children, cpus, strict=True)}
    for child in children:
        child.kill()
        child.wait()


def test_the_worker_is_inside_with_all_its_threads_and_others_are_outside(step):
    step.apply()
    assert step.probe().status == "stable", step.probe().reason
    bench = set(step.host.bench)
    with subprocess.Popen(
        [sys.executable, "-c", THREADS], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        step.adopt(child.pid)
        child.stdin.write(b"go\n")
        child.stdin.flush()
        child.stdout.readline()
        inside = tasks.place(FILES, child.pid)
        child.kill()
    assert inside.group == "/fastrnns-bench"
    assert len(inside.threads) > 1
    assert all(set(thread.cpus) == bench for thread in inside.threads)
    assert not os.sched_getaffinity(0) & bench


def test_every_mask_is_as_before_and_no_set_remains(step, pinned):
    step.apply()
    assert step.restore(step.host.journal.of("shield", operations=True)) == []
    assert standing() == []
    assert {pid: frozenset(os.sched_getaffinity(pid)) for pid in pinned} == pinned


def test_the_next_command_takes_down_what_a_killed_one_left(pinned):
    script = """
from env.hold import hold
print("up", flush=True)
with hold("apply", shield="cset", skip=frozenset({"irq", "perf", "cstate"})):
    pass
"""
    for delay in (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4):
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=PROJECT) as victim:
            victim.stdout.readline()
            time.sleep(delay)
            victim.kill()
        with hold("check") as held:
            if held.reasons:
                pytest.skip(held.reasons[0])
        assert standing() == []
        assert {pid: frozenset(os.sched_getaffinity(pid)) for pid in pinned} == pinned
