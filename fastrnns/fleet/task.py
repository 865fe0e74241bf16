"""What a fleet is made of: a node (or one GPU of it), one attempt at it as a task, and how that ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PENDING, RUNNING, ENDED = "pending", "running", "ended"
STOP = "stop"  # a file in the run's folder: no attempt begins any more


@dataclass(frozen=True)
class Node:
    """One place to measure at: a machine, or one of its GPUs."""

    number: int  # from 1, in the order asked for; what may be told of a node where its name may not
    host: str | None = None  # as Slurm names it; None: this machine
    gpu: int | None = None  # its index among the job's GPUs; None: the job has them all
    gpus: int = 0  # how many GPUs its host has

    @property
    def name(self) -> str:
        """For a person's eyes: the host, and the GPU where it is one of several places."""
        host = self.host or "this machine"
        return host if self.gpu is None else f"{host} gpu {self.gpu}"

    @property
    def label(self) -> str:
        """For files: the number alone."""
        return f"node-{self.number:04d}"


@dataclass(frozen=True)
class Task:
    """One attempt at a node: what runs there, and the folder, which that machine and this one share."""

    node: Node
    words: tuple[str, ...]  # after the interpreter
    folder: Path
    label: str


@dataclass(frozen=True)
class State:
    """Where a job stands: one of three, and the scheduler's own word and reason."""

    kind: str
    word: str = ""
    reason: str = ""
    host: str = ""


class Cluster(Protocol):
    """What runs tasks."""

    def submit(self, task: Task) -> str:
        """Hand a task over; its job's id. Raises HarnessError where it is refused."""

    def states(self, jobs: Sequence[str]) -> Mapping[str, State]:
        """Where jobs stand; one that is not known any more is absent. Raises HarnessError for no answer."""

    def stop(self, jobs: Sequence[str]) -> None:
        """Ask jobs to put their machine back and end; those that have not begun never begin."""

    def kill(self, jobs: Sequence[str]) -> None:
        """End jobs that did not listen."""
