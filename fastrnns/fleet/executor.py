"""Handing tasks over: to Slurm, or to processes of this machine; both through submitit."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastrnns.errors import HarnessError, UsageError
from fastrnns.fleet import job, slurm
from fastrnns.fleet.task import ENDED, RUNNING, State, Task
from fastrnns.measure.process import child_environment

MISSING = "a fleet needs submitit, which is not installed; run python -m pip install 'submitit>=1.5'"
OF_A_JOB = ("SLURM_", "SLURMD_", "SRUN_", "SUBMITIT_")
OF_A_PERSON = frozenset({"SLURM_CONF", "SLURM_JWT", "SLURM_CLUSTERS"})  # which cluster, and who asks
NOTICE_SECONDS = 120  # before the time is up: a bench has to end its iteration and put its machine back


def refuse_missing() -> None:
    """Raise UsageError where submitit is not installed."""
    if importlib.util.find_spec("submitit") is None:
        raise UsageError(MISSING)


@dataclass(frozen=True)
class Slurm:
    """Jobs of a Slurm cluster, each alone on its node."""

    folder: Path  # submitit's own files
    minutes: int
    partition: str | None = None
    account: str | None = None
    qos: str | None = None

    def check(self, host: str) -> None:
        """Have Slurm refuse now what it would refuse later: account, quality of service, time."""
        flags = {"partition": self.partition, "account": self.account, "qos": self.qos, "nodelist": host}
        given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
        slurm.try_out(["--exclusive", "--nodes=1", f"--time={self.minutes}", *given])

    def submit(self, task: Task) -> str:
        """See `Cluster`. The node is named, so that each attempt at it is one at that node."""
        from submitit import SlurmExecutor

        executor = SlurmExecutor(self.folder, max_num_timeout=0)
        gpus = {"gres": f"gpu:{task.node.gpus}"} if task.node.gpu is not None else {}
        chosen = {"partition": self.partition, "account": self.account, "qos": self.qos}
        executor.update_parameters(
            job_name="fastrnns",
            nodelist=task.node.host,
            nodes=1,
            ntasks_per_node=1,
            exclusive=True,
            mem="0",  # all of the node's, as it is ours alone
            time=self.minutes,
            signal_delay_s=NOTICE_SECONDS,
            additional_parameters={"no-requeue": True},  # whether it is tried again is decided here
            **gpus,
            **{name: value for name, value in chosen.items() if value is not None},
        )
        with _variables():
            return _submitted(executor, task, {})

    def states(self, jobs: Sequence[str]) -> Mapping[str, State]:
        """See `Cluster`."""
        return slurm.states(jobs)

    def stop(self, jobs: Sequence[str]) -> None:
        """See `Cluster`."""
        slurm.stop(jobs)

    def kill(self, jobs: Sequence[str]) -> None:
        """See `Cluster`."""
        slurm.kill(jobs)


@dataclass
class Local:
    """Processes of this machine: a fleet of one, without a scheduler."""

    folder: Path
    minutes: int
    _jobs: dict[str, Any] = field(default_factory=dict)

    def submit(self, task: Task) -> str:
        """See `Cluster`."""
        from submitit import LocalExecutor

        executor = LocalExecutor(self.folder, max_num_timeout=0)
        executor.update_parameters(timeout_min=self.minutes, signal_delay_s=NOTICE_SECONDS)
        shown = {job.VISIBLE: os.environ.get(job.VISIBLE)}  # submitit's local jobs see no GPU else
        with _variables(), _without_interrupts():
            return _submitted(executor, task, shown, self._jobs)

    def states(self, jobs: Sequence[str]) -> Mapping[str, State]:
        """See `Cluster`."""
        words = {each: self._jobs[each].get_info()["jobState"] for each in jobs}
        return {
            each: State(RUNNING if word == "RUNNING" else ENDED, word if word == "RUNNING" else "ended")
            for each, word in words.items()
        }

    def stop(self, jobs: Sequence[str]) -> None:
        """See `Cluster`. A local job's id is its controller's process id; that passes SIGTERM on."""
        for each in jobs:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(each), signal.SIGTERM)

    def kill(self, jobs: Sequence[str]) -> None:
        """See `Cluster`."""
        import psutil

        for each in jobs:
            with contextlib.suppress(psutil.NoSuchProcess):
                controller = psutil.Process(int(each))
                for process in [*controller.children(recursive=True), controller]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()


def _submitted(
    executor: Any, task: Task, variables: Mapping[str, str | None], kept: dict[str, Any] | None = None
) -> str:
    from submitit.core.utils import FailedJobError, FailedSubmissionError

    try:
        found = executor.submit(job.run, task.words, str(task.folder), task.node.gpu, dict(variables))
    except (FailedJobError, FailedSubmissionError, OSError) as error:
        lines = [line.strip() for line in str(error).splitlines() if "error" in line] or [str(error).strip()]
        raise HarnessError(f"the job could not be submitted: {lines[-1]}") from None
    if kept is not None:
        kept[found.job_id] = found
    return str(found.job_id)


@contextlib.contextmanager
def _variables() -> Iterator[None]:
    """What a job inherits: this project importable wherever it starts, and nothing of a job that we may be in."""
    before = dict(os.environ)
    try:
        os.environ |= child_environment(None)
        for name in before:
            if name.startswith(OF_A_JOB) and name not in OF_A_PERSON:
                del os.environ[name]
        yield
    finally:
        os.environ.clear()
        os.environ |= before


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Start a process that a terminal's Ctrl-C does not reach: its own end kills the task a second later."""
    try:
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    except ValueError:  # not the main thread, whose children are asked no less
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
