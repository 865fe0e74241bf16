"""What Slurm has and what it does with our jobs, asked of its own commands. No submitit."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fastrnns.errors import HarnessError, MachineError, UsageError
from fastrnns.fleet.task import ENDED, PENDING, RUNNING, State

ANSWER_SECONDS = 60.0  # a busy controller takes seconds; a minute is one that does not answer
SHOWN = 12  # names in a sentence
# squeue(1), "job state codes"; what is neither of these has ended.
BEFORE = frozenset(
    {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}
)
DURING = frozenset({"RUNNING", "COMPLETING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
# sinfo(1), "node state codes": a job can start there, now or when the node is free.
USABLE = frozenset(
    {"idle", "mixed", "allocated", "completing", "planned", "reserved", "power_down", "blocked"}
)
SUFFIX = re.compile(r"[*~#!%$@^+-]+$")  # sinfo(1): not responding, powering and the like
GPU = re.compile(r"(?:^|,)gpu(?::[\w.-]+)*?:(\d+)")


@dataclass(frozen=True)
class Host:
    """A node as sinfo tells of it."""

    name: str
    partitions: frozenset[str]
    state: str
    gpus: int
    why: str = ""  # what its administrator wrote on it

    @property
    def usable(self) -> bool:
        """Whether a job can ever start there as it is now."""
        return "*" not in self.state and SUFFIX.sub("", self.state) in USABLE

    @property
    def trouble(self) -> str:
        """Name and state, with the reason where there is one."""
        return f"{self.name} ({self.state}{f': {self.why}' if self.why else ''})"


def present() -> bool:
    """Whether this machine submits to a Slurm cluster."""
    return shutil.which("sinfo") is not None and shutil.which("sbatch") is not None


def hosts() -> dict[str, Host]:
    """Every node of the cluster by name, in sinfo's order; raises MachineError where no cluster answers."""
    try:
        return read_hosts(_ask("sinfo", "--noheader", "--all", "--Node", "--format=%N|%R|%T|%G|%E"))
    except HarnessError as error:
        raise MachineError(
            f"Slurm does not answer ({error}); see that its controller runs (scontrol ping), or measure here: --local"
        ) from None


def read_hosts(text: str) -> dict[str, Host]:
    """The nodes in sinfo's lines `name|partition|state|gres|reason`, one for each node and partition."""
    found: dict[str, Host] = {}
    for line in text.splitlines():
        name, partition, state, gres, why = [*line.split("|", 4), *[""] * 5][:5]
        if not name:
            continue
        before = found[name].partitions if name in found else frozenset()
        gpus = sum(int(count) for count in GPU.findall(gres))
        said = "" if why in {"none", "None"} else why
        found[name] = Host(name, before | {partition}, state, gpus, said)
    return found


def expand(text: str) -> list[str]:
    """The host names of Slurm's hostlist, `n[1-3],m7`; raises UsageError for what is none."""
    try:
        names = _ask("scontrol", "show", "hostnames", text).split()
    except HarnessError as error:
        raise UsageError(f"--hosts {text!r} is no list of hosts ({error}); write it as n[1-3],m7") from None
    return list(dict.fromkeys(names))


def choose(
    known: Mapping[str, Host], named: Sequence[str], partition: str | None
) -> tuple[list[Host], list[Host]]:
    """The nodes that `--hosts` and `--partition` mean, and those of the partition that cannot be used now.

    A host that was named and cannot be used is refused; raises UsageError that says what is possible.
    """
    partitions = sorted({name for host in known.values() for name in host.partitions})
    if partition is not None and partition not in partitions:
        raise UsageError(f"--partition {partition}: there is no such partition; there are {some(partitions)}")
    inside = {name: host for name, host in known.items() if partition is None or partition in host.partitions}
    unknown = [name for name in named if name not in inside]
    if unknown:
        where = f"in partition {partition}" if partition is not None else "in this cluster"
        raise UsageError(f"--hosts {some(unknown)}: no such node {where}; there are {some(inside)}")
    wanted = [inside[name] for name in named] if named else list(inside.values())
    able = [host for host in wanted if host.usable]
    unable = [host for host in wanted if not host.usable]
    if unable and (named or not able):
        usable = [name for name, host in inside.items() if host.usable]
        raise UsageError(
            f"not to be had: {some(host.trouble for host in unable)}; there are {some(usable) or 'no others'}"
        )
    return able, unable


def some(names: Iterable[str]) -> str:
    """The first names of many, and how many more there are."""
    listed = list(names)
    more = len(listed) - SHOWN
    return ", ".join(listed[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def states(jobs: Sequence[str]) -> dict[str, State]:
    """Where our jobs stand, in one question for all of them; ended ones are known for some minutes (MinJobAge)."""
    user = str(os.getuid())
    text = _ask("squeue", "--noheader", "--all", "--states=all", f"--user={user}", "--format=%i|%T|%N|%r")
    wanted = set(jobs)
    return {job: state for job, state in read_states(text).items() if job in wanted}


def read_states(text: str) -> dict[str, State]:
    """The jobs in squeue's lines `id|state|nodes|reason`."""
    found = {}
    for line in text.splitlines():
        job, word, host, reason = [*line.split("|", 3), *[""] * 4][:4]
        kind = PENDING if word in BEFORE else RUNNING if word in DURING else ENDED
        found[job] = State(kind, word, "" if reason in {"None", "none"} else reason, host)
    return found


def stop(jobs: Sequence[str]) -> None:
    """End what has not begun; send SIGTERM to what runs.

    A plain scancel would end the job after the cluster's KillWait (30 s by default), put back or not.
    """
    _tell("scancel", "--state=PENDING", *jobs)
    _tell("scancel", "--signal=TERM", *jobs)


def kill(jobs: Sequence[str]) -> None:
    """End jobs as Slurm does: SIGTERM, and SIGKILL after KillWait."""
    _tell("scancel", *jobs)


def try_out(words: Sequence[str]) -> None:
    """Have sbatch check a submission without making it; raises UsageError with what it says."""
    try:
        _ask("sbatch", "--test-only", *words, "--wrap=true")
    except HarnessError as error:
        raise UsageError(f"Slurm refuses such a job: {error}; see sinfo and sacctmgr show assoc") from None


def _ask(*words: str) -> str:
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", check=False, timeout=ANSWER_SECONDS
        )
    except OSError as error:
        raise HarnessError(
            f"{words[0]} cannot be run ({error.strerror}); install Slurm's client commands"
        ) from None
    except subprocess.TimeoutExpired:
        raise HarnessError(f"{words[0]} did not answer in {ANSWER_SECONDS:g} s; see scontrol ping") from None
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        raise HarnessError(re.sub(rf"^(?:{words[0]}: )?(?:error: )?", "", said[0].strip()))
    return done.stdout


def _tell(*words: str) -> None:
    """A request whose subject may have ended meanwhile: scancel says so and fails, and that is no failure."""
    with contextlib.suppress(HarnessError):
        _ask(*words)
