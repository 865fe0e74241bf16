"""The part that runs as root: a fixed list of operations, and the pipe between it and who asks."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from env import helper
from env.errors import EnvError
from env.journal import Journal
from env.owner import Owner
from env.privilege import HELPER, Privilege, RootsDisk, helper_command
from env.sysfs import Files

GOVERNOR = "/sys/devices/system/cpu/cpufreq/policy0/scaling_governor"


def asked(**request) -> dict:
    return helper.answer(json.dumps(request))


@pytest.fixture
def sudo(tmp_path):
    """What starts the helper as this user, and so says that it is root only where it is."""
    script = tmp_path / "sudo"
    script.write_text(
        f'#!/bin/sh\nexec env -i PATH=/usr/bin {sys.executable} -c "\n'
        "import os, sys, runpy\nos.geteuid = lambda: 0\n"  # env_reset, and a word that it is root
        f"sys.argv = ['helper']\nrunpy.run_path('{HELPER}', run_name='__main__')\n\"\n"
    )
    script.chmod(0o755)
    return Privilege(Files("/", euid=12345), sudo=(str(script),))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("/etc/passwd", "x"),
        ("/sys/devices/system/cpu/../../../etc/passwd", "1"),
        (GOVERNOR, "performance; reboot"),
        (GOVERNOR, "performance\nx"),
        ("/sys/fs/cgroup/system.slice/cpuset.cpus", "0"),
        ("/sys/fs/cgroup/fastrnns-bench/cpuset.cpus.partition", "owner"),
        ("/proc/sys/kernel/core_pattern", "|/bin/sh"),
    ],
)
def test_a_write_that_is_not_on_the_list_is_refused(path, value):
    reply = asked(op="write", path=path, value=value)
    assert reply["refused"]
    assert "not one of this program's operations" in reply["error"]


@pytest.mark.parametrize(
    "path", ["/sys/fs/cgroup/docker", "/sys/fs/cgroup/fastrnns/../docker", "/tmp/fastrnns"]
)
@pytest.mark.parametrize("op", ["mkdir", "rmdir"])
def test_only_our_own_groups_are_made_and_removed(op, path):
    assert asked(op=op, path=path)["refused"]


@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("sh", ["-c", "id"]),
        ("cset", ["shield", "--reset"]),
        ("cset", ["shield", "--reset", "--userset=/docker", "--sysset=/system"]),
        ("cset", ["shield", "--cpu=1", "--kthread=on", "--userset=/fastrnns-bench", "--sysset=/x", "--exec"]),
        ("systemctl", ["stop", "sshd.service"]),
        ("systemctl", ["set-property", "--runtime", "sshd.service", "AllowedCPUs=0"]),
    ],
)
def test_only_listed_programs_run_and_only_with_listed_arguments(program, arguments):
    assert asked(op="run", program=program, arguments=arguments)["refused"]


@pytest.mark.parametrize(
    ("action", "name"), [("create", "../x"), ("append", "setup.jsonl"), ("truncate", "hold")]
)
def test_only_the_two_journals_are_written(action, name):
    assert asked(op="journal", action=action, name=name)["refused"]


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"op": "fly"}', '{"op": "write"}', "{", '{"op": "affinity", "tid": "x"}']
)
def test_nonsense_is_answered_and_does_not_end_it(line):
    reply = helper.answer(line)
    assert not reply["ok"]
    assert reply["errno"] == errno.EINVAL


def test_an_answer_carries_the_number_of_its_request():
    assert asked(op="hello", id=7)["id"] == 7
    assert asked(op="fly", id=8)["id"] == 8


def test_it_needs_nothing_but_the_standard_library():
    done = subprocess.run(
        [sys.executable, "-I", "-S", HELPER],
        input='{"op": "hello", "id": 1}\n',
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["version"] == helper.version(HELPER)


def test_it_ends_when_its_input_closes_whatever_signal_came():
    with subprocess.Popen(
        [sys.executable, "-I", HELPER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        child.stdin.write('{"op": "hello"}\n')
        child.stdin.flush()
        assert child.stdout.readline()
        for number in (2, 15, 1):
            child.send_signal(number)
        child.stdin.write('{"op": "hello"}\n')
        child.stdin.flush()
        assert child.stdout.readline()
        child.stdin.close()
        assert child.wait(timeout=10) == 0


def test_a_request_that_was_cut_short_does_not_lend_its_answer_to_the_next(sudo):
    assert sudo.available()
    child = sudo._child
    child.stdin.write('{"op": "hello", "id": 0}\n')  # as if Ctrl-C had come before its answer was read
    child.stdin.flush()
    failure = sudo.affinity(2**22 + 1, "0")
    assert failure is not None
    assert failure.errno == errno.ESRCH
    sudo.close()


def test_a_helper_that_dies_is_a_failure_with_a_sentence(sudo):
    assert sudo.available()
    sudo._child.kill()
    sudo._child.wait()
    failure = sudo.affinity(os.getpid(), "0")
    assert failure is not None
    assert "ended unexpectedly; run this again" in failure.reason
    sudo.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [(("false",), "`sudo -n` is not allowed here"), (("no-such-sudo",), "there is no sudo here")],
)
def test_without_it_what_needs_root_says_so(words, said):
    privilege = Privilege(Files("/", euid=12345), sudo=words)
    assert not privilege.available()
    assert said in privilege.denied
    with pytest.raises(OSError, match="needs root"):
        RootsDisk(privilege).create(Path("/run/fastrnns/hold.jsonl"))


def test_the_copy_that_root_owns_is_preferred_and_run_by_the_systems_python(tmp_path):
    assert helper_command(str(tmp_path / "none"))[-1] == HELPER
    installed = tmp_path / "helper.py"
    installed.touch()
    assert helper_command(str(installed)) == ["/usr/bin/python3", "-I", str(installed)]


def test_a_journal_is_whole_or_not_there_when_the_disk_is_full(tmp_path, monkeypatch):
    journal = Journal.create(tmp_path / "j" / "hold.jsonl", "hold", Owner.me("test"), "boot")
    before = journal.path.read_bytes()
    calls = []

    def full(fd, data):
        calls.append(len(data))
        if len(calls) == 1:
            return real(fd, bytes(data)[:5])  # a torn write, and then nothing more fits
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.write
    monkeypatch.setattr(helper.os, "write", full)
    with pytest.raises(EnvError, match=r"No space left on device\), so nothing more is changed; make room"):
        journal.operation("shield", "cset", cpus=[1])
    monkeypatch.undo()
    assert journal.path.read_bytes() == before
    assert Journal.load(journal.path).entries == []


def test_a_journal_is_never_written_through_a_link(tmp_path):
    target = tmp_path / "precious"
    target.write_text("")
    (tmp_path / "hold.jsonl").symlink_to(target)
    with pytest.raises(EnvError, match="cannot be written"):
        Journal.create(tmp_path / "hold.jsonl", "hold", Owner.me("test"), "boot")
    with pytest.raises(OSError, match="symbolic"):
        helper.append_file(str(tmp_path / "hold.jsonl"), b"x")
    assert target.read_text() == ""


def test_everybody_may_read_a_journal_whatever_the_umask(tmp_path):
    before = os.umask(0o077)
    try:
        helper.create_file(str(tmp_path / "j" / "hold.jsonl"))
    finally:
        os.umask(before)
    assert (tmp_path / "j").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "j" / "hold.jsonl").stat().st_mode & 0o777 == 0o644
