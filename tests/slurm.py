"""A real Slurm for tests: munged, slurmctld and one slurmd a virtual node, all below one folder, and torn down."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).parent.parent

DAEMONS = ("munged", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
START_SECONDS = 30
GPUS = (
    "/dev/zero",
    "/dev/full",
)  # that the first node claims to have: Slurm asks only whether they are devices
CONFIGURATION = """
ClusterName=fastrnns
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=2
EnforcePartLimits=ALL
KillWait=30
MinJobAge=300
"""


def lacking() -> str:
    """Why there can be no Slurm here; empty where there can."""
    path = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
    missing = [name for name in (*DAEMONS, *CLIENTS) if shutil.which(name, path=path) is None]
    if missing:
        return f"no Slurm here: {', '.join(missing)} missing (apt-get install slurm-wlm munge)"
    return ""


class Cluster:
    """Virtual nodes n1, n2, ... of this machine, each with a slurmd of its own."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.folder = folder
        self.names = [f"n{number}" for number in range(1, nodes + 1)]
        self.configuration = folder / "slurm.conf"
        self._processes: list[tuple[str, subprocess.Popen[bytes]]] = []

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which Slurm's commands find this cluster and no other."""
        return {**os.environ, "SLURM_CONF": str(self.configuration)}

    def start(self) -> None:
        """Start everything, and wait until all nodes are idle."""
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(1024))
        self._run(
            "munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
            f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
            f"--seed-file={self.folder}/munged.seed",
        )  # fmt: skip
        self._until((self.folder / "munge.socket").exists, "munged")
        ports = free_ports(1 + len(self.names))
        lines = [CONFIGURATION.format(port=ports[0], user=getpass.getuser(), folder=self.folder)]
        for name, port in zip(self.names, ports[1:], strict=True):
            (self.folder / f"spool-{name}").mkdir()
            where = "NodeHostname=localhost NodeAddr=127.0.0.1"
            gpus = f"Gres=gpu:{len(GPUS)}" if name == self.names[0] else ""
            lines.append(f"NodeName={name} {where} Port={port} CPUs=4 {gpus} State=UNKNOWN")
        gres = [f"NodeName={self.names[0]} Name=gpu File={device}\n" for device in GPUS]
        (self.folder / "gres.conf").write_text("".join(gres))
        lines.append("PartitionName=debug Nodes=ALL Default=YES MaxTime=120 State=UP\n")
        self.configuration.write_text("\n".join(lines))
        self._run("slurmctld", "-D", "-f", str(self.configuration))
        for name in self.names:
            self._run("slurmd", "-D", "-N", name, "-f", str(self.configuration))
        self._until(
            lambda: (
                self.ask("sinfo", "--noheader", "--Node", "--format=%T").split() == ["idle"] * len(self.names)
            ),
            "slurmd",
        )

    def ask(self, *words: str) -> str:
        """What one of Slurm's commands says; empty where it fails."""
        return subprocess.run(words, env=self.environment, capture_output=True, text=True).stdout

    def stop(self) -> None:
        """End all jobs and all daemons, whatever state they are in, and leave no process behind."""
        self.ask("scancel", f"--user={os.getuid()}")
        until = time.monotonic() + 20
        while self.ask("squeue", "--noheader") and time.monotonic() < until:
            time.sleep(0.2)
        for _, process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for _, process in reversed(self._processes):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _run(self, program: str, *words: str) -> None:
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        assert path is not None
        with (self.folder / f"{program}-{len(self._processes)}.out").open("wb") as output:
            made = subprocess.Popen(
                [path, *words], env=self.environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
        self._processes.append((program, made))

    def _until(self, ready, what: str) -> None:
        until = time.monotonic() + START_SECONDS
        while not ready():
            gone = [name for name, process in self._processes if process.poll() is not None]
            if gone or time.monotonic() > until:
                said = "".join(path.read_text(errors="replace")[-1500:] for path in self.folder.glob("*.out"))
                raise RuntimeError(f"{', '.join(gone) or what} did not start: {said}")
            time.sleep(0.2)


class Fleet:
    """`python -m fastrnns.fleet` under way, with its archive and its jobs' folders below one folder."""

    def __init__(self, folder: Path, words: list[str], bench: list[str], environment: dict[str, str]) -> None:
        self.archive = folder / "results"
        self._jobs = folder / "jobs"
        self._output, self._story = (folder / name for name in ("fleet.out", "fleet.err"))
        kept = ["--archive", str(self.archive), "--folder", str(self._jobs), "--json"]
        with self._output.open("wb") as output, self._story.open("wb") as story:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "fastrnns.fleet", *kept, *words, "--", *bench],
                cwd=ROOT, env={**environment, "OMP_NUM_THREADS": "1"}, stdin=subprocess.DEVNULL,
                stdout=output, stderr=story,
            )  # fmt: skip

    def measuring(self, number: int, attempt: int = 1) -> psutil.Process:
        """The bench on a node, once it measures; its parent is the job."""
        until = time.monotonic() + START_SECONDS * 3
        while time.monotonic() < until and self.process.poll() is None:
            for folder in self._jobs.glob(f"*/node-{number:04d}/attempt-{attempt}"):
                with contextlib.suppress(OSError, ValueError, psutil.NoSuchProcess):
                    if "process 1" in (folder / "stderr.txt").read_text():
                        return psutil.Process(int((folder / "pid").read_text()))
            time.sleep(0.1)
        raise RuntimeError(f"node {number} does not measure: {self.story}")

    def strike(self, number: int) -> None:
        """Kill a node's job outright, the bench and its workers with it, as a crash would."""
        bench = self.measuring(number)
        for process in [*bench.parents()[:1], bench, *bench.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()

    def interrupt(self) -> float:
        """Ctrl-C, once; the seconds until the command has ended."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        self.process.wait(200)
        return time.monotonic() - started

    def end(self) -> int:
        """Wait; its exit code."""
        return self.process.wait(280)

    @property
    def story(self) -> str:
        """What it has told a person."""
        return self._story.read_text()

    @property
    def answer(self) -> dict[str, Any]:
        """What it answered."""
        return json.loads(self._output.read_text())

    def left_running(self) -> list[int]:
        """Processes of its jobs that still are."""
        mark = str(self._jobs)
        return [each.pid for each in psutil.process_iter(["cmdline", "cwd"]) if mark in str(each.info)]


@contextlib.contextmanager
def cluster(nodes: int) -> Iterator[Cluster]:
    """A Slurm of so many virtual nodes for the body, in a folder whose sockets' paths are short enough."""
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        Path(folder).chmod(0o755)  # munged's socket must be reachable by whoever may read the key's daemon
        made = Cluster(Path(folder), nodes)
        try:
            made.start()
            yield made
        finally:
            made.stop()


def free_ports(count: int) -> list[int]:
    """Ports that nothing listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
