"""A user without root, allowed one helper and nothing else by sudo: real sudo, real cset, another user id."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from env import helper, machine
from env.errors import MachineError
from env.lock import HeldError, locked
from env.privilege import INSTALLED, SYSTEM_PYTHON
from env.shields.backend import BENCH
from env.sysfs import Files

ROOT = Path(__file__).parent.parent
FILES = Files("/")
RULES = Path("/etc/sudoers.d/fastrnns-test")
CPUSETS = Path("/sys/fs/cgroup/cpuset")
USER = "nobody"

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root, to become a user"),
    pytest.mark.skipif(shutil.which("sudo") is None, reason="sudo is not installed"),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed"),
    pytest.mark.skipif(not Path(SYSTEM_PYTHON).exists(), reason=f"there is no {SYSTEM_PYTHON}"),
    pytest.mark.skipif(not CPUSETS.is_dir() or shutil.which("cset") is None, reason="no cset on cgroup v1"),
]


class User:
    """Somebody without root who may run `python -m env` from a copy that they can read."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        who = pwd.getpwnam(USER)
        return subprocess.Popen(
            [
                *("setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"),
                *(SYSTEM_PYTHON, "-m", "env", *arguments),
            ],
            cwd=self.home,
            env={
                "PATH": os.environ["PATH"],
                "LC_ALL": "C.UTF-8",
                "PYTHONPATH": str(self.home / "site"),
                "PYTHONDONTWRITEBYTECODE": "1",
                "OMP_NUM_THREADS": "3",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str, str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=60)
        assert "Traceback" not in err
        return process.returncode, out, err


@pytest.fixture(scope="module")
def copy() -> Iterator[Path]:
    """The `env` package, and what it imports, where every user can read it."""
    if subprocess.run(
        [SYSTEM_PYTHON, "-c", "import sys; sys.exit(sys.version_info < (3, 10))"], check=False
    ).returncode:
        pytest.skip(f"{SYSTEM_PYTHON} is older than this program supports")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "env", folder / "env", ignore=shutil.ignore_patterns("__pycache__"))
        site = Path(psutil.__file__).parent.parent
        for package in ("psutil", "cpuinfo"):  # psutil's extension is of the stable interface of Python
            shutil.copytree(site / package, folder / "site" / package)
        subprocess.run(["chmod", "-R", "a+rX", name], check=True)
        yield folder


@pytest.fixture
def user(copy: Path) -> Iterator[User]:
    """A user of the copy; sudo's rules and the installed helper are as before afterwards."""
    if FILES.exists(helper.JOURNALS) or FILES.exists(INSTALLED):
        pytest.skip("this machine is set up; not ours to touch")
    try:
        with locked(FILES):
            pass
    except HeldError as error:
        pytest.skip(str(error))
    try:
        yield User(copy)
    finally:
        RULES.unlink(missing_ok=True)
        shutil.rmtree(Path(INSTALLED).parent, ignore_errors=True)
        with contextlib.suppress(MachineError):
            machine.put_back()
        assert not FILES.exists(helper.JOURNALS)
        assert not (CPUSETS / BENCH).exists()


def allow(text: bytes | None = None) -> None:
    """What docs/privileges.md tells the administrator to do."""
    Path(INSTALLED).parent.mkdir(parents=True)
    Path(INSTALLED).write_bytes(Path(helper.__file__).read_bytes() if text is None else text)
    RULES.write_text(f"{USER} ALL=(root) NOPASSWD: {SYSTEM_PYTHON} -I {INSTALLED}\n")
    RULES.chmod(0o440)


def test_the_administrators_page_names_the_very_files():
    page = (ROOT / "docs/privileges.md").read_text(encoding="utf-8")
    assert f"NOPASSWD: {SYSTEM_PYTHON} -I {INSTALLED}" in page
    assert f"env/helper.py {INSTALLED}" in page


def test_a_user_who_is_allowed_the_helper_shields_a_command_and_all_is_put_back(user):
    allow()
    masks = {pid: os.sched_getaffinity(pid) for pid in (os.getpid(), 1)}
    code, out, err = user.run(
        "run",
        "--",
        "sh",
        "-c",
        'id -un; cat /proc/self/cpuset; echo "$OMP_NUM_THREADS" "$1"',
        "x",
        "a $HOME b",
    )
    assert (code, out.splitlines()) == (0, [USER, f"/{BENCH}", "3 a $HOME b"]), err
    assert not FILES.exists(helper.JOURNALS)
    assert {pid: os.sched_getaffinity(pid) for pid in masks} == masks


def test_the_journal_of_a_user_lies_where_root_finds_it_and_root_repairs_after_a_kill(user):
    allow()
    process = user.start("run", "--", "sleep", "60")
    try:
        deadline = time.monotonic() + 30
        while not (CPUSETS / BENCH / "tasks").exists() or not (CPUSETS / BENCH / "tasks").read_text().strip():
            assert time.monotonic() < deadline
            assert process.poll() is None, process.stderr.read() if process.stderr else ""
            time.sleep(0.05)
        inside = [int(pid) for pid in (CPUSETS / BENCH / "tasks").read_text().split()]
        assert Path(helper.JOURNALS).stat().st_uid == 0
        with pytest.raises(HeldError, match=rf"held by pid {process.pid} \(env run\), since 20"):
            machine.setup()
    finally:
        process.kill()
        process.wait()
    machine.check()
    for pid in inside:  # what the killed command had started goes on, outside the shield
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()
    assert not FILES.exists(helper.JOURNALS)
    assert not (CPUSETS / BENCH).exists()


def test_what_root_set_up_is_seen_by_a_user_who_may_not_change_it(user):
    machine.setup()
    code, out, _ = user.run("check")
    assert "shielded (cset)" in out
    for word in ("restore", "apply"):
        code, _, err = user.run(word)
        assert code == 3
        assert "as root, and only root can change that; run `sudo python -m env restore`" in err
        assert len(err.splitlines()) == 1
    assert (CPUSETS / BENCH).exists()
    machine.put_back()


def test_without_leave_the_steps_are_locked_with_what_to_do(user):
    code, out, err = user.run("check")
    assert code == 0
    assert "locked" in out
    assert "`sudo -n` is not allowed here; docs/privileges.md" in err


def test_a_helper_of_another_version_is_not_used(user):
    allow(Path(helper.__file__).read_bytes() + b"# another\n")
    _, _, err = user.run("check")
    assert "of another version; install it again" in err


def test_the_helper_does_nothing_that_is_not_on_its_list(user):
    allow()
    who = pwd.getpwnam(USER)
    done = subprocess.run(
        [
            *("setpriv", f"--reuid={who.pw_uid}", f"--regid={who.pw_gid}", "--clear-groups"),
            *("sudo", "-n", SYSTEM_PYTHON, "-I", INSTALLED),
        ],
        input='{"op": "write", "path": "/etc/passwd", "value": "x"}\n'
        '{"op": "journal", "action": "create", "name": "../../etc/cron.d/x"}\n'
        '{"op": "run", "program": "sh", "arguments": ["-c", "id"]}\n',
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.stdout.count('"refused": true') == 3
    assert done.stdout.count('"ok": true') == 0
