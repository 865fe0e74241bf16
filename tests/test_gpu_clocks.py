"""The gpu step on a fake NVML: recorded always, locked only on request, reset after a kill, never a guess."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from env import gpu, helper, machine
from env.__main__ import main
from env.errors import UsageError
from env.gpu_clocks import GpuClocks, parse
from env.journal import Journal
from env.owner import Owner
from env.privilege import Privilege
from env.step import Host, Wanted
from env.sysfs import Files
from fastrnns import errors as harness
from fastrnns.machine_flags import add_machine_flags, machine_from

OFFERED = (1980, 1965, 1410, 345)


class NVMLError(Exception):
    """As pynvml's."""


class FakeNvml(SimpleNamespace):
    """Two GPUs that can be locked, and what they were told."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__(told=[], refuses="")

    def nvmlInit(self):
        pass

    def nvmlDeviceGetHandleByIndex(self, index):
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        return uuid

    def nvmlDeviceGetUUID(self, index):
        return f"GPU-{index}-cafe".encode()

    def nvmlDeviceGetName(self, index):
        return b"NVIDIA H200"

    def nvmlDeviceGetPowerManagementLimit(self, index):
        return 700_000

    def nvmlDeviceGetMaxClockInfo(self, index, kind):
        return OFFERED[0]

    def nvmlDeviceGetSupportedMemoryClocks(self, index):
        return [3201, 2619]

    def nvmlDeviceGetSupportedGraphicsClocks(self, index, memory):
        return list(OFFERED) if memory == 3201 else [345]

    def nvmlDeviceSetGpuLockedClocks(self, uuid, low, high):
        if self.refuses:
            raise NVMLError(self.refuses)
        self.told.append(("lock", uuid, low, high))

    def nvmlDeviceResetGpuLockedClocks(self, uuid):
        if self.refuses:
            raise NVMLError(self.refuses)
        self.told.append(("reset", uuid))


@pytest.fixture
def nvml(monkeypatch) -> FakeNvml:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(gpu, "_started", {})
    return fake


def host(tmp_path: Path, clocks: str | None, *, index: int | None = 1) -> Host:
    """A machine with root's rights, whose journal is in a scratch folder."""
    files = Files("/", euid=0)
    made = Host(files, Privilege(files), Wanted(gpu=index, gpu_clocks=clocks))
    made.journal = Journal.create(tmp_path / "journal" / "j.jsonl", "hold", Owner.me("test"), "boot")
    return made


def test_by_default_it_is_recorded_and_never_set(nvml, tmp_path):
    step = GpuClocks(host(tmp_path, None))
    step.apply()
    state = step.probe()
    assert state.status == "stable"
    assert state.current == "NVIDIA H200, up to 1980 MHz, 700 W, ECC unknown, persistence unknown"
    assert "--lock-gpu-clocks base would lock" in state.reason
    assert nvml.told == []
    assert step.restore([]) == []
    assert nvml.told == []


def test_asked_for_it_is_locked_after_the_journal_says_so_and_let_go_again(nvml, tmp_path):
    made = host(tmp_path, "1410")
    step = GpuClocks(made)
    assert step.probe().status == "unstable"
    assert step.plan() == ["lock the clocks of GPU 1 at 1410 MHz"]
    step.apply()
    step.apply()
    assert nvml.told == [("lock", "GPU-1-cafe", 1410, 1410)]
    assert step.probe().status == "stable"
    assert step.probe().current.startswith("clocks locked at 1410 MHz")
    assert step.restore(made.journal.of("gpu", operations=True)) == []
    assert nvml.told[1:] == [("reset", "GPU-1-cafe")]
    assert step.probe().status == "unstable"


def test_base_is_the_drivers_own_word_for_it(nvml, tmp_path):
    step = GpuClocks(host(tmp_path, "base"))
    step.apply()
    assert nvml.told == [("lock", "GPU-1-cafe", helper.BASE_CLOCK, helper.BASE_CLOCK)]
    assert step.probe().current.startswith("clocks locked at the base clock")


def test_what_a_killed_command_locked_is_let_go_from_its_journal(nvml, tmp_path):
    made = host(tmp_path, "1410")
    GpuClocks(made).apply()
    journal = Journal.load(made.journal.path)
    assert journal is not None
    later = host(tmp_path / "later", None, index=None)  # the next command measures on no GPU at all
    assert GpuClocks(later).restore(journal.of("gpu", operations=True)) == []
    assert nvml.told[1:] == [("reset", "GPU-1-cafe")]


def test_a_killed_command_between_journal_and_lock_resets_what_was_never_locked(nvml, tmp_path):
    made = host(tmp_path, "1410")
    made.journal.operation("gpu", "lock-clocks", uuid="GPU-1-cafe", mhz=1410)
    assert GpuClocks(made).restore(made.journal.of("gpu", operations=True)) == []
    assert nvml.told == [("reset", "GPU-1-cafe")]


def test_a_clock_that_the_gpu_lacks_is_refused_before_the_first_write(nvml, tmp_path):
    step = GpuClocks(host(tmp_path, "1400"))
    with pytest.raises(UsageError, match="no such clock; the nearest are 1410, 1965, 1980"):
        step.changes()
    assert nvml.told == []
    assert step.host.journal.entries == []


def test_a_driver_that_refuses_is_quoted_and_nothing_is_claimed(nvml, tmp_path):
    nvml.refuses = "Not Supported"  # a MIG instance, a GPU before Volta
    made = host(tmp_path, "1410")
    step = GpuClocks(made)
    step.apply()
    state = step.probe()
    assert state.status == "locked"
    assert "the driver says: Not Supported" in state.reason
    assert step.restore(made.journal.of("gpu", operations=True)) == []  # it was never locked


def test_clocks_that_cannot_be_let_go_are_reported_with_what_to_do(nvml, tmp_path):
    made = host(tmp_path, "1410")
    step = GpuClocks(made)
    step.apply()
    nvml.refuses = "Insufficient Permissions"
    (said,) = step.restore(made.journal.of("gpu", operations=True))
    assert said.startswith("the clocks of GPU-1-cafe could not be let go: the driver says: Insufficient")
    assert said.endswith("`sudo nvidia-smi -i GPU-1-cafe --reset-gpu-clocks` does it")


def test_without_root_it_is_locked_to_us_and_says_what_an_administrator_runs(nvml, tmp_path):
    files = Files("/", euid=12345)
    made = Host(files, Privilege(files, sudo=("false",)), Wanted(gpu=0, gpu_clocks="base"))
    step = GpuClocks(made)
    step.apply()
    assert step.probe().status == "locked"
    assert "sudo nvidia-smi --lock-gpu-clocks" in step.probe().reason
    assert nvml.told == []


def test_a_python_of_root_without_the_binding_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reply = helper.answer('{"op": "gpu_clocks", "uuid": "GPU-1", "mhz": 1410}')
    assert not reply["ok"]
    assert "nvidia-ml-py is not installed for the Python that runs as root" in reply["error"]


@pytest.mark.parametrize(
    "request_",
    ['"uuid": "GPU-1; rm", "mhz": 1', '"uuid": "GPU-1", "mhz": 0', '"uuid": "GPU-1", "mhz": 99999'],
)
def test_the_helper_takes_no_other_gpu_and_no_absurd_clock(nvml, request_):
    assert helper.answer(f'{{"op": "gpu_clocks", {request_}}}')["refused"]
    assert nvml.told == []


def test_a_tree_and_a_machine_without_a_named_gpu_have_nothing_to_lock(tmp_path, nvml):
    tree = Files(str(tmp_path))
    state = GpuClocks(Host(tree, Privilege(tree), Wanted(gpu=0, gpu_clocks="base"))).probe()
    assert (state.status, state.reason) == ("unavailable", "a tree has no GPU driver behind it")
    state = GpuClocks(host(tmp_path, None, index=None)).probe()
    assert state.status == "unavailable"
    assert state.name in machine.NAMES
    assert state.name not in machine.ESSENTIAL


@pytest.mark.parametrize("text", ["", "1.5", "-3", "boost", "100000"])
def test_a_clock_that_is_none_is_refused_on_the_command_line(text):
    with pytest.raises(UsageError, match="give MHz as a whole number, such as 1410, or `base`"):
        parse(text)


def test_the_command_line_of_env_asks_for_the_gpu(capsys):
    assert main(["apply", "--lock-gpu-clocks", "base"]) == 2
    assert "name it with --gpu N" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "device", "said"),
    [
        (["--env", "apply"], "cpu", "has no clock to lock on cpu; add --device cuda"),
        ([], "cuda", "changes the machine; add --env apply"),
    ],
)
def test_a_command_that_runs_models_refuses_a_lock_that_could_not_be(words, device, said):
    parser = argparse.ArgumentParser()
    add_machine_flags(parser)
    args = parser.parse_args(["--lock-gpu-clocks", "1410", *words])
    with pytest.raises(harness.UsageError, match=said):
        machine_from(args, device)


def test_steps_to_skip_are_named_one_or_several_and_recorded():
    parser = argparse.ArgumentParser()
    add_machine_flags(parser)
    found = machine_from(parser.parse_args(["--skip", "irq,perf", "--skip", "smt"]), "cpu")
    assert found.recorded()["skip"] == ["irq", "perf", "smt"]
    with pytest.raises(UsageError, match="--skip fan: there is no such step; there are governor"):
        machine_from(parser.parse_args(["--skip", "fan"]), "cpu")
