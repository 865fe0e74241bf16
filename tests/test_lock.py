"""The lock of the machine: one owner, whoever the user, who is named by pid and command."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from env import lock, owner, places
from env.errors import MachineError
from env.lock import HeldError, holder, locked
from env.owner import Owner
from env.privilege import Privilege
from env.sysfs import Files

ROOT = Path(__file__).parent.parent
OWNER = """
import os, subprocess, sys
from env.lock import locked
from env.sysfs import Files
with locked(Files(sys.argv[1])) as fd:
    tool = subprocess.Popen(["sleep", sys.argv[2]], pass_fds=(fd,), stdout=subprocess.DEVNULL)
    print("mine", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def files(tmp_path) -> Files:
    return Files(str(tmp_path))


@pytest.fixture
def another(tmp_path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the machine, and a tool of it that runs for a second longer."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), "1.5"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_free_machine_has_no_holder_and_asking_leaves_it_free(files):
    assert holder(files) is None
    with locked(files):
        pass
    assert list(Path(files.root).iterdir()) == []


def test_the_holder_is_named_by_pid_command_and_time(files, another):
    said = holder(files)
    assert said is not None
    assert re.fullmatch(rf"pid {another.pid} \(python[\d.]*\), since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d", said)
    with pytest.raises(HeldError, match=rf"held by pid {another.pid} .*; wait for it to end"), locked(files):
        pytest.fail("there were two owners")


def test_a_killed_owner_holds_the_machine_no_longer_than_its_tool(files, another):
    another.kill()
    another.wait()
    assert holder(files) is None
    with locked(files):  # the tool was waited for: a HeldError would name it
        assert holder(files) is not None
    assert holder(files) is None


def test_a_table_of_locks_that_cannot_be_read_only_costs_the_name(files, another, monkeypatch, tmp_path):
    monkeypatch.setattr(lock, "TABLE", tmp_path / "none")
    assert holder(files) == "another command"


def test_a_machine_without_the_folder_is_refused_in_a_sentence(tmp_path):
    gone = Files(str(tmp_path / "gone"))
    with (
        pytest.raises(MachineError, match=r"cannot be locked .*and without a lock nothing is changed"),
        locked(gone),
    ):
        pytest.fail("it was locked")


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/home/alice/v/bin/python", "-m", "fastrnns.bench", "--rnns", "cudnn"], "fastrnns.bench"),
        (["python3", "-I", "-m", "env", "apply", "--cpus", "1"], "env apply"),
        (["/opt/secret/tool", "--token=1"], "tool"),
        ([], "?"),
    ],
)
def test_a_command_is_shown_to_others_without_paths_and_arguments(argv, said):
    assert owner.short(argv) == said


def test_a_process_that_is_gone_is_told_from_a_later_one_of_its_pid():
    me = Owner.me("test")
    assert me.alive()
    assert not Owner(me.pid, (me.starttime or 0) + 1, "test", 0.0).alive()
    assert str(Owner.of(2**22 + 1)) == f"pid {2**22 + 1}"


def test_root_has_one_place_for_journals_and_a_user_a_second_of_their_own(tmp_path):
    assert [p.folder for p in places.places(Files("/", euid=0), Privilege(Files("/", euid=0)))] == [
        Path("/run/fastrnns")
    ]
    user = Files("/", euid=4_000_000)
    where = places.places(user, Privilege(user, sudo=("false",)))
    assert [p.folder for p in where] == [Path("/run/fastrnns"), Path("/tmp/fastrnns-4000000")]
    assert places.writable(where) is where[1]


def test_a_folder_that_others_may_write_or_that_is_a_link_is_not_trusted(tmp_path, monkeypatch):
    folder = Path(f"/tmp/fastrnns-{os.geteuid()}")
    if os.path.lexists(folder) or Path(f"/run/user/{os.geteuid()}").is_dir():
        pytest.skip("there is such a folder already")
    try:
        folder.symlink_to(tmp_path)
        with pytest.raises(MachineError, match="does not belong to you alone"):
            places.own(os.geteuid())
        folder.unlink()
        folder.mkdir()
        folder.chmod(0o777)
        with pytest.raises(MachineError, match="have it removed"):
            places.own(os.geteuid())
        folder.chmod(0o755)
        assert places.own(os.geteuid()) == folder
    finally:
        folder.unlink() if folder.is_symlink() else folder.rmdir()
