import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastrnns.measure.process import Child, ChildDied, ChildSilent, child_environment, how_it_ended

WORKER = """
import os, sys, json
print("printed before the wire opens")
from fastrnns.measure import wire
job = wire.read_job()
{body}
"""


@pytest.fixture
def child(tmp_path):
    children = []

    def start(body, **options):
        (tmp_path / "fake_worker.py").write_text(WORKER.format(body=body))
        path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
        environment = {**options.pop("env", {}), "PYTHONPATH": path + os.pathsep + str(Path.cwd())}
        started = Child("fake_worker", env=environment, **options)
        children.append(started)
        return started

    yield start
    for started in children:
        started.stop()


def test_a_child_gets_its_job_and_its_events_come_back_in_order(child):
    started = child("for n in range(3): wire.emit({'event': 'n', 'n': n + job['add']})")
    started.send({"add": 10})
    assert [event["n"] for event in started.events(timeout=20)] == [10, 11, 12]


def test_what_a_library_prints_cannot_corrupt_the_events(child):
    started = child("print('{\"event\": \"fake\"}'); os.write(1, b'noise\\n'); wire.emit({'event': 'real'})")
    started.send({})
    assert [event["event"] for event in started.events(timeout=20)] == ["real"]
    assert "noise" in started.stderr_tail
    assert "before the wire opens" in started.stderr_tail


def test_messages_can_be_polled_between_batches(child):
    started = child(
        "assert wire.read_message() is None\nwire.emit({'event': 'ready'})\n"
        "wire.emit({'event': 'got', 'message': wire.wait_message()})"
    )
    started.send({})
    assert started.receive(20) == {"event": "ready"}
    started.send({"stop": True})
    assert started.receive(20) == {"event": "got", "message": {"stop": True}}


def test_a_killed_child_is_named_by_its_signal_after_what_it_said(child):
    started = child("wire.emit({'event': 'alive'}); os.kill(os.getpid(), 9)")
    started.send({})
    assert started.receive(20) == {"event": "alive"}
    with pytest.raises(ChildDied, match="SIGKILL") as died:
        started.receive(20)
    assert died.value.signal == signal.SIGKILL


def test_case_E7_last_words_that_are_not_utf8_are_kept_with_replacement(child):
    started = child("os.write(2, b'50 \\xc2\\xb0C \\xff broken\\n'); sys.exit(7)", env={"LC_ALL": "C"})
    started.send({})
    with pytest.raises(ChildDied, match="status 7: 50 °C � broken"):
        list(started.events(timeout=20))


def test_a_silent_child_does_not_hold_its_parent_for_ever(child):
    started = child("import time; time.sleep(60)")
    started.send({})
    with pytest.raises(ChildSilent):
        list(started.events(timeout=0.2))


def test_a_child_that_ignores_sigterm_is_still_stopped(child):
    started = child(
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); wire.emit({'event': 'deaf'}); time.sleep(60)"
    )
    started.send({})
    assert started.receive(20) == {"event": "deaf"}
    assert started.stop(grace=0.2) == -signal.SIGKILL
    assert started.stop() == -signal.SIGKILL


def test_a_child_is_pinned_before_its_job_arrives(child):
    cpu = min(os.sched_getaffinity(0))
    started = child(
        "wire.emit({'event': 'on', 'cpus': sorted(os.sched_getaffinity(0)), 'omp': os.environ['OMP_NUM_THREADS']})",
        cpus=[cpu],
        env={"OMP_NUM_THREADS": "1"},
    )
    assert os.sched_getaffinity(started.pid) == {cpu}
    started.send({})
    assert started.receive(20) == {"event": "on", "cpus": [cpu], "omp": "1"}


def test_a_worker_ends_when_its_parent_is_killed(tmp_path):
    (tmp_path / "fake_worker.py").write_text(
        WORKER.format(body="wire.emit({'event': 'up'})\nimport time\ntime.sleep(60)")
    )
    parent = (
        "import os, sys\nfrom fastrnns.measure.process import Child\n"
        "c = Child('fake_worker'); c.send({}); c.receive(20); print(c.pid, flush=True)\nos.kill(os.getpid(), 9)"
    )
    path = os.pathsep.join([str(tmp_path), str(Path.cwd())])
    done = subprocess.run(
        [sys.executable, "-c", parent], capture_output=True, env={**os.environ, "PYTHONPATH": path}
    )
    pid = int(done.stdout)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and _runs(pid):
        time.sleep(0.02)
    assert not _runs(pid)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_thread_counts_fit_the_cpus_unless_the_user_chose_them():
    chosen = child_environment([2, 3], base={"MKL_NUM_THREADS": "8"})
    assert (chosen["OMP_NUM_THREADS"], chosen["MKL_NUM_THREADS"]) == ("2", "8")
    assert "OMP_NUM_THREADS" not in child_environment(None, base={})


def test_how_a_worker_ended_is_one_sentence():
    assert how_it_ended(-11, "") == "the worker process was killed by SIGSEGV"
    assert how_it_ended(3, "a\nlast words\n\n") == "the worker process ended with status 3: last words"
    assert "out of memory?" in how_it_ended(-9, "")
