"""The machine as one thing: set up until restored, repaired after kills, one owner at a time, nothing on a full disk."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import trees
from machines import snapshot

from env import machine
from env.__main__ import main
from env.errors import EnvError
from env.hold import hold
from env.journal import Disk, Journal
from env.lock import locked
from env.sysfs import Files

ROOT = Path(__file__).parent.parent
GOVERNOR = "sys/devices/system/cpu/cpufreq/policy1/scaling_governor"


@pytest.fixture
def folder(tmp_path):
    trees.lay_out(tmp_path, "A10_each_its_own")
    return tmp_path


def command(*args: str, **more) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "env", *args], cwd=ROOT, capture_output=True, text=True, timeout=60, **more
    )


def test_setup_lasts_until_restore_and_leaves_nothing_behind(folder):
    before = snapshot(folder)
    assert main(["apply", "--root", str(folder)]) == 0
    assert (folder / GOVERNOR).read_text() == "performance\n"
    assert main(["apply", "--root", str(folder)]) == 0  # idempotent: what there was before stays known
    assert main(["restore", "--root", str(folder)]) == 0
    assert snapshot(folder) == before
    assert main(["restore", "--root", str(folder)]) == 0  # nothing to undo is no error


def test_a_bench_under_a_standing_setup_neither_applies_nor_restores(folder):
    machine.setup(str(folder))
    standing = snapshot(folder)
    with hold("apply", root=str(folder)) as held:
        assert held.before[0]["status"] == "stable"
    assert snapshot(folder) == standing
    machine.put_back(str(folder))


def test_dry_run_says_what_would_be_done_and_does_nothing(folder, capsys):
    before = snapshot(folder)
    assert main(["apply", "--dry-run", "--root", str(folder)]) == 0
    assert "write performance" in capsys.readouterr().out
    assert snapshot(folder) == before


def test_a_reboot_has_put_everything_back_by_itself(folder, capsys):
    machine.setup(str(folder))
    (folder / "proc/sys/kernel/random/boot_id").write_text("another\n")
    (folder / GOVERNOR).write_text("ondemand\n")
    assert main(["restore", "--root", str(folder)]) == 0
    assert "rebooted" in capsys.readouterr().err
    assert (folder / GOVERNOR).read_text() == "ondemand\n"
    assert not (folder / "run/fastrnns").exists()


def test_an_unfinished_setup_is_undone_by_the_next_command_whichever_it_is(folder):
    before = snapshot(folder)
    machine.setup(str(folder))
    journal = Journal.load(folder / "run/fastrnns/setup.jsonl")
    assert journal is not None
    journal.mark("applying")  # as if it had been killed before its end
    machine.check(str(folder))
    assert snapshot(folder) == before


def test_a_second_user_is_told_who_holds_the_machine_and_since_when(folder):
    with locked(Files(str(folder))):
        done = command("apply", "--root", str(folder))
    assert done.returncode == 3
    assert re.search(rf"held by pid {os.getpid()} \(\w+\), since 20", done.stderr)
    assert "Traceback" not in done.stderr


def test_with_a_full_disk_for_the_journal_nothing_is_touched(folder, monkeypatch):
    before = snapshot(folder)

    def full(self, path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Disk, "append", full)
    with pytest.raises(EnvError, match="No space left"):
        machine.setup(str(folder))
    monkeypatch.undo()
    assert snapshot(folder) == before


def test_case_F5_sigterm_puts_the_machine_back(folder):
    before = snapshot(folder)
    script = (
        "import sys, time; from env.hold import hold\n"
        "with hold('apply', root=sys.argv[1]):\n    print('held', flush=True); time.sleep(60)\n"
    )
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            assert snapshot(folder) != before
            child.send_signal(number)
            child.wait(30)
        assert snapshot(folder) == before


def test_case_F5_what_sigkill_leaves_is_repaired_by_the_next_command(folder):
    before = snapshot(folder)
    script = (
        "import sys, time; from env.hold import hold\n"
        "with hold('apply', root=sys.argv[1]):\n    print('held', flush=True); time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)], cwd=ROOT, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    time.sleep(0.05)
    assert command("check", "--root", str(folder)).returncode == 0
    assert snapshot(folder) == before


def test_setup_restore_and_bench_survive_a_storm_of_kills():
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests/benchmarks/kill_storm.py"), "--rounds", "24", "--cpus", "16"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["not_put_back"] == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["check", "--root", "/no/such/folder"], 2, "no such folder"),
        (["check", "--cpus", "3-1"], 2, "3-1"),
        (["check", "--cpus", "200999000000-100999000000"], 2, "--cpus"),
        (["check", "--skip", "nonsense"], 2, "there is no such step"),
        (["run"], 2, "needs a command"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(args, code, said):
    done = command(*args)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_overall_is_stable_only_when_the_essential_steps_are_known_to_be():
    right = {"status": "stable", "current": "", "wanted": "", "reason": "", "source": ""}
    every = [{"name": name, **right} for name in machine.NAMES]
    assert machine.overall(every) == "stable"
    for name in machine.NAMES:
        other = [{**row, "status": "unavailable"} if row["name"] == name else row for row in every]
        assert machine.overall(other) == ("unstable" if name in machine.ESSENTIAL else "stable")
    assert machine.overall([row for row in every if row["name"] != "turbo"]) == "unstable"
    assert machine.overall([]) == "unstable"


def test_a_value_that_could_not_be_written_back_is_not_overwritten(folder, capsys):
    (folder / GOVERNOR).write_text("\x01garbage; rm -rf\n")
    before = snapshot(folder)
    main(["apply", "--root", str(folder)])
    assert (folder / GOVERNOR).read_text() == before[GOVERNOR]
    assert main(["restore", "--root", str(folder)]) == 0
    assert snapshot(folder) == before
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [machine.check, machine.put_back])
def test_an_empty_folder_of_a_command_that_was_killed_at_its_first_word_goes(folder, command):
    before = snapshot(folder)
    (folder / "run/fastrnns").mkdir()
    command(str(folder))
    assert snapshot(folder) == before
    assert not (folder / "run/fastrnns").exists()
