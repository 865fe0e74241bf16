"""Doing what needs root: directly as root, else through the one helper that `sudo -n` starts."""

from __future__ import annotations

import contextlib
import errno as codes
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from env import helper, tree
from env.cpulist import parse_list
from env.journal import Disk
from env.sysfs import Failure, Files

HELPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "helper.py")
# Where an administrator puts a copy that root owns, so that a user may be allowed that file and nothing else.
INSTALLED = "/usr/local/lib/fastrnns/helper.py"
SYSTEM_PYTHON = "/usr/bin/python3"
NO_ROOT = "needs root, and `sudo -n` is not allowed here; docs/privileges.md says how to allow this alone"


@dataclass(frozen=True)
class Completed:
    """What an external program did; `failure` when it could not be run at all."""

    returncode: int
    stdout: str = ""
    stderr: str = ""
    failure: Failure | None = None

    @property
    def message(self) -> str:
        """What it said last, for a sentence."""
        lines = [line.strip() for line in (self.stderr + "\n" + self.stdout).splitlines() if line.strip()]
        return (
            self.failure.reason
            if self.failure
            else (lines[-1] if lines else f"exit status {self.returncode}")
        )


class Privilege:
    """The operations of `env.helper`, done here when we may, else by the helper as root.

    Below a root everything is a plain file that the caller may write, and programs come from `ROOT/bin`.
    """

    def __init__(self, files: Files, *, sudo: Sequence[str] | None = None) -> None:
        self.files = files
        self._sudo = ("sudo", "-n") if sudo is None else tuple(sudo)
        self._child: subprocess.Popen[str] | None = None
        self.denied = ""  # why there is no helper, once one was asked for
        self._latency: int | None = None
        self._asked = 0
        self.keep: tuple[int, ...] = ()  # the lock of the machine: tools hold it while they run

    @property
    def direct(self) -> bool:
        """Whether no helper is needed."""
        return not self.files.real or self.files.euid == 0

    def available(self) -> bool:
        """Whether operations can be done as root at all."""
        return self.direct or self._start()

    def unwritable(self, path: str) -> Failure | None:
        """Why a write to `path` is sure to fail, as far as known without writing."""
        failure = self.files.unwritable(path)
        if failure and failure.errno in {codes.EACCES, codes.EPERM} and not self.direct and self._start():
            return None
        return failure

    def write(self, path: str, value: str) -> Failure | None:
        """Write a value to a listed kernel file."""
        helper.check_write(path, value)
        if not self.files.real and path.endswith("/cgroup.subtree_control"):
            return self._control(path, value)
        if self.direct or os.access(self.files.path(path), os.W_OK):
            return self.files.write(path, value)
        return self._failure(path, self._ask("write", path=path, value=value))

    def _control(self, path: str, value: str) -> Failure | None:
        try:
            tree.control(self.files.path(path), value)
        except OSError as error:
            return self.files.failure(path, error.errno or codes.EIO, writing=True)
        return None

    def mkdir(self, path: str) -> Failure | None:
        """Make one of our cgroups."""
        helper.check_folder(path)
        return self._folder("mkdir", path)

    def rmdir(self, path: str) -> Failure | None:
        """Remove one of our cgroups."""
        helper.check_folder(path)
        return self._folder("rmdir", path)

    def _folder(self, op: str, path: str) -> Failure | None:
        if not self.direct:
            return self._failure(path, self._ask(op, path=path))
        try:
            if self.files.real:
                (os.mkdir if op == "mkdir" else os.rmdir)(path)
            else:  # no kernel makes a group's files there
                (tree.mkdir if op == "mkdir" else tree.rmdir)(self.files.path(path))
        except OSError as error:
            return self.files.failure(path, error.errno or codes.EIO, writing=True)
        return None

    def affinity(self, tid: int, cpus: str) -> Failure | None:
        """Give one thread an affinity mask (again); a tree has no threads."""
        if not self.files.real:
            return None
        request = {"tid": tid, "cpus": sorted(parse_list(cpus))}
        if self.direct:
            return self._failure(f"/proc/{tid}", helper.answer(json.dumps({"op": "affinity", **request})))
        return self._failure(f"/proc/{tid}", self._ask("affinity", **request))

    def run(
        self, program: str, arguments: Sequence[str], *, timeout: float = 30.0, root: bool = True
    ) -> Completed:
        """Run a listed program as root (or as the caller, when it needs no root)."""
        helper.check_command(program, arguments)
        if root and not self.direct:
            reply = self._ask("run", program=program, arguments=list(arguments), timeout=timeout)
            if not reply.get("ok"):
                return Completed(127, failure=self._failure(program, reply))
            return Completed(reply["returncode"], reply["stdout"], reply["stderr"])
        found = self.files.which(program)
        if found is None:
            return Completed(127, failure=Failure(program, codes.ENOENT, f"{program} is not installed"))
        try:
            done = subprocess.run(
                [found, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                env={**os.environ, "LC_ALL": "C", "FASTRNNS_ROOT": self.files.root},
                pass_fds=self.keep,  # a tool that outlives us keeps the machine locked until it has ended
                start_new_session=True,  # Ctrl-C is ours to answer: a tool cut short leaves half a shield
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Completed(
                124, failure=Failure(program, codes.ETIMEDOUT, f"{program} gave no answer in {timeout:g} s")
            )
        except OSError as error:
            reason = f"{program} cannot be run: {error.strerror}"
            return Completed(126, failure=Failure(program, error.errno or codes.EIO, reason))
        return Completed(
            done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")
        )

    def gpu_clocks(self, uuid: str, mhz: int | None) -> Failure | None:
        """Lock the clocks of a GPU, or (None) let the driver choose again."""
        request = {"uuid": uuid, "mhz": mhz}
        if self.direct:
            reply = helper.answer(json.dumps({"op": "gpu_clocks", **request}))
        else:
            reply = self._ask("gpu_clocks", **request)
        return None if reply.get("ok") else Failure(uuid, int(reply["errno"]), str(reply["error"]))

    def hold_latency(self, us: int) -> Failure | None:
        """Hold the wake-up latency down until `close` (or the end of this process, however it comes)."""
        if not self.files.real:  # a tree has no kernel behind it: the file is opened, not changed
            if self._latency is None:
                try:
                    self._latency = os.open(self.files.path(helper.LATENCY), os.O_RDONLY | os.O_CLOEXEC)
                except OSError as error:
                    return self.files.failure(helper.LATENCY, error.errno or codes.EIO, writing=True)
            return None
        if self.direct:
            return self._failure(helper.LATENCY, helper.answer(json.dumps({"op": "latency", "us": us})))
        return self._failure(helper.LATENCY, self._ask("latency", us=us))

    def release_latency(self) -> None:
        """Let the wake-up latency go."""
        if self._latency is not None:
            os.close(self._latency)
            self._latency = None
        elif self.files.real and self.direct:
            helper.op_release()
        elif self._child is not None:
            self._ask("release")

    def close(self) -> None:
        """Let go of the latency and of the helper."""
        self.release_latency()
        self._end()

    def settle(self) -> None:
        """Wait for a tool that the helper of a killed command may still be running."""
        if self._child is not None:
            self._ask("settle")

    def journal(self, action: str, path: Path, data: str = "") -> None:
        """Write a journal that root keeps, through the helper; raises OSError."""
        reply = self._ask("journal", action=action, name=path.stem, data=data)
        if not reply.get("ok"):
            raise OSError(int(reply.get("errno") or codes.EIO), str(reply["error"]))

    def _failure(self, path: str, reply: dict[str, Any]) -> Failure | None:
        if reply.get("ok"):
            return None
        number = int(reply.get("errno") or codes.EIO)
        if reply.get("refused") or reply.get("denied"):
            return Failure(path, number, str(reply["error"]))
        return Files("/", euid=0).failure(path, number, writing=True)

    def _ask(self, op: str, **arguments: Any) -> dict[str, Any]:
        if not self._start():
            return {"ok": False, "errno": codes.EACCES, "error": self.denied, "denied": True}
        child = self._child
        assert child is not None  # noqa: S101 - it was started with pipes
        assert child.stdin is not None  # noqa: S101 - it was started with pipes
        assert child.stdout is not None  # noqa: S101 - it was started with pipes
        self._asked += 1
        try:
            child.stdin.write(json.dumps({"id": self._asked, "op": op, **arguments}) + "\n")
            child.stdin.flush()
            for line in child.stdout:
                reply: dict[str, Any] = json.loads(line)
                if reply["id"] == self._asked:  # one before it is of a request that Ctrl-C cut short
                    return reply
        except OSError:
            pass
        self._end()
        self.denied = "the helper that runs as root ended unexpectedly; run this again"
        return {"ok": False, "errno": codes.EPIPE, "error": self.denied, "denied": True}

    def _start(self) -> bool:
        if self._child is not None:
            return True
        if self.denied:
            return False
        self.denied = NO_ROOT
        try:
            # Its own session: Ctrl-C reaches us, and we decide when the machine is let go.
            self._child = subprocess.Popen(
                [*self._sudo, *helper_command(INSTALLED)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                start_new_session=True,
            )
        except OSError:
            self.denied = "needs root, and there is no sudo here"
            return False
        self.denied = ""
        answer = self._ask("hello")
        if answer.get("euid") != 0:
            self.denied = NO_ROOT
        elif answer.get("version") != helper.version(HELPER):
            self.denied = (
                f"needs root, and {INSTALLED} is of another version; install it again (docs/privileges.md)"
            )
        if self.denied:
            self._end()
        return not self.denied

    def _end(self) -> None:
        """Let the helper go: it ends when its input closes."""
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            assert child.stdin is not None  # noqa: S101 - it was started with pipes
            child.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=5)
        if child.stdout is not None:
            child.stdout.close()


class RootsDisk(Disk):
    """The journals that everybody can read and root alone writes: through the helper where we are not root."""

    def __init__(self, privilege: Privilege) -> None:
        self._privilege = privilege

    def available(self) -> bool:
        """Whether we may write there at all."""
        return self._privilege.available()

    def create(self, path: Path) -> None:
        """As `Disk.create`."""
        self._privilege.journal("create", path)

    def append(self, path: Path, data: bytes) -> None:
        """As `Disk.append`."""
        self._privilege.journal("append", path, data.decode())

    def remove(self, path: Path) -> None:
        """As `Disk.remove`."""
        self._privilege.journal("remove", path)


def helper_command(installed: str) -> list[str]:
    """How the helper is started: the copy that root owns where there is one, with the system's own Python."""
    if os.path.exists(installed):
        return [SYSTEM_PYTHON, "-I", installed]
    return [os.path.abspath(sys.executable), "-I", HELPER]
