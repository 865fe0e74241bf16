"""Claims about running any command inside the held machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from machines import lay_out, snapshot

from env.errors import MachineError, UsageError
from env.hold import hold
from env.run import run, run_held

ROOT = Path(__file__).parent.parent
SHOW = "import json,os,sys; open(sys.argv[1],'w').write(json.dumps([sys.argv[2:], dict(os.environ), os.getuid(), sys.executable]))"


def nothing(pid: int) -> None:
    pass


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_commands_exit_code_is_ours(script, code):
    assert run(["sh", "-c", script], nothing) == code


def test_a_command_that_is_not_there_is_said_in_a_sentence(capfd):
    assert run(["no-such-command-here"], nothing) == 127
    assert capfd.readouterr().err == "env run: no-such-command-here was not found; check its name and PATH\n"


def test_a_file_that_is_no_program_is_said_in_a_sentence(tmp_path, capfd):
    (tmp_path / "x").write_text("")
    assert run([str(tmp_path / "x")], nothing) == 126
    assert "cannot be executed" in capfd.readouterr().err


def test_no_command_is_a_usage_error():
    with pytest.raises(UsageError, match="after --"):
        run([], nothing)


def test_the_command_begins_only_after_it_was_adopted(tmp_path):
    mark = tmp_path / "began"

    def adopt(pid: int) -> None:
        time.sleep(0.1)
        assert not mark.exists()
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})

    assert run(["sh", "-c", f"touch {mark}"], adopt) == 0
    assert mark.exists()


def test_a_command_that_could_not_be_adopted_never_begins(tmp_path):
    def refuse(pid: int) -> None:
        raise MachineError("the worker could not be put into the shield")

    with pytest.raises(MachineError):
        run(["sh", "-c", f"touch {tmp_path}/began"], refuse)
    assert not (tmp_path / "began").exists()


def seen(tmp_path: Path, name: str, adopt) -> list:
    out = tmp_path / name
    argv = [sys.executable, "-c", SHOW, str(out), "a b", "$HOME", "--cpu=3", "--", "-x", "q\"uo'te", ""]
    assert run(argv, adopt) == 0
    return json.loads(out.read_text())


def test_case_B7_user_interpreter_and_environment_are_the_same_inside(tmp_path, monkeypatch):
    for name, value in {"CUDA_VISIBLE_DEVICES": "1", "PYTORCH_JIT": "1", "LD_LIBRARY_PATH": "/x"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    with hold("check") as held:
        inside = seen(tmp_path, "inside", held.adopt)
        assert "OMP_NUM_THREADS" not in held.environment()
    outside = seen(tmp_path, "outside", nothing)
    assert inside[1:] == outside[1:]
    assert inside[1]["OMP_NUM_THREADS"] == "3"
    assert inside[2] == os.getuid()
    assert (tmp_path / "inside").stat().st_uid == os.getuid()


def test_case_B8_the_argument_list_is_the_same_inside(tmp_path):
    with hold("check") as held:
        inside = seen(tmp_path, "inside", held.adopt)
    assert inside[0] == ["a b", "$HOME", "--cpu=3", "--", "-x", "q\"uo'te", ""]
    assert inside[0] == seen(tmp_path, "outside", nothing)[0]


def test_case_B9_threads_are_set_to_fit_unless_the_user_chose(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    with hold("check") as held:
        assert held.environment() == {"OMP_NUM_THREADS": str(len(held.cpus))}


def test_a_pipe_that_closes_ends_the_command_as_in_a_shell():
    assert run(["sh", "-c", "yes | head -1 > /dev/null; exit 5"], nothing) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_case_F5_a_signal_to_us_reaches_the_command_and_its_end_is_ours(number):
    script = "from env.run import run\nimport sys\nsys.exit(run(['sh','-c','echo up; exec sleep 30'], lambda pid: None))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as ours:
        ours.stdout.readline()
        ours.send_signal(number)
        assert ours.wait(timeout=20) == 128 + number


def test_case_F5_ctrl_c_is_the_commands_to_answer_however_often():
    command = (
        "trap 'echo caught' INT; echo up; i=0; while [ $i -lt 60 ]; do sleep 0.05; i=$((i+1)); done; exit 9"
    )
    script = f"from env.run import run\nimport sys\nsys.exit(run(['sh','-c',{command!r}], lambda pid: None))"
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT, start_new_session=True
    ) as ours:
        ours.stdout.readline()
        for _ in range(3):
            os.killpg(ours.pid, signal.SIGINT)
            time.sleep(0.1)
        assert ours.wait(timeout=30) == 9


def test_a_command_runs_inside_the_applied_machine_and_all_is_as_before(tmp_path):
    machine = lay_out(tmp_path / "machine", "A11_smt_sibling", "B1_cgroup2_only", "A11_smt_sibling")
    (machine / "run").mkdir()
    before = snapshot(machine)
    group = machine / "sys/fs/cgroup/fastrnns-bench/run/cgroup.procs"
    out = tmp_path / "seen"
    script = f"read pid < {group}; echo $pid $$ > {out}; exit 4"
    assert run_held(["sh", "-c", script], root=str(machine)) == 4
    adopted, itself = out.read_text().split()
    assert adopted == itself
    assert snapshot(machine) == before
