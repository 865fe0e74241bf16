import json

import pytest

from fastrnns.archive import record
from fastrnns.archive.store import Archive
from fastrnns.profiling import ceilings
from fastrnns.profiling.plan import Plan
from fastrnns.profiling.tools import Choice
from fastrnns.sizes import Problem

CEILINGS = {
    "device": "cpu", "threads": 2, "copy_bytes_per_s": 2e10, "matrix_flops_per_s": {"fp32": 2e11, "bf16": None},
    "launch_s": 3e-6, "grid_barrier_s": None, "reasons": {"grid_barrier_s": "a CPU has no grid"},
}  # fmt: skip
PLAN = Plan(("cudnn",), Problem(), Choice("torch", None, "", {}))


def fingerprint(hardware):
    return {
        "hardware": {},
        "software": {},
        "state": {},
        "ids": {"hardware": hardware, "software": None, "state": None},
    }


def ask(archive, hardware="a" * 16, *, wanted=None, threads=2, measured=None):
    calls = []

    def measure():
        calls.append(1)
        return {}, measured or CEILINGS

    found = ceilings.of_machine(
        PLAN.device, wanted=wanted, archive=archive, complete=lambda _: fingerprint(hardware), measure=measure,
        threads=threads, say=lambda _: None,
    )  # fmt: skip
    return found, len(calls)


def test_ceilings_are_measured_once_and_kept_as_a_record(tmp_path):
    archive = Archive(tmp_path)
    assert ask(archive) == (CEILINGS, 1)
    found, measured = ask(archive)
    assert measured == 0
    assert found["copy_bytes_per_s"] == 2e10
    (path,) = archive.files()
    kept = json.loads(path.read_bytes())
    record.validate(kept)
    assert kept["kind"] == "ceilings"
    assert found["records"] == [kept["id"]]


def test_other_hardware_and_other_threads_have_ceilings_of_their_own(tmp_path):
    archive = Archive(tmp_path)
    ask(archive)
    assert ask(archive, "b" * 16)[1] == 1
    assert ask(archive, threads=1, measured={**CEILINGS, "threads": 1})[1] == 1
    assert ask(archive)[1] == 0


def test_measuring_again_keeps_the_best_of_both(tmp_path):
    archive = Archive(tmp_path)
    ask(archive, measured={**CEILINGS, "copy_bytes_per_s": 1e10, "launch_s": 1e-6})
    found, measured = ask(archive, wanted=True)
    assert measured == 1
    assert (found["copy_bytes_per_s"], found["launch_s"]) == (2e10, 1e-6)
    assert found["matrix_flops_per_s"] == {"fp32": 2e11, "bf16": None}
    assert len(archive.files()) == 2
    assert ask(archive)[0]["copy_bytes_per_s"] == 2e10


def test_hardware_without_an_id_shares_ceilings_with_none(tmp_path):
    archive = Archive(tmp_path)
    ask(archive, None)
    assert ask(archive, None)[1] == 1


def test_a_damaged_record_is_passed_over(tmp_path):
    archive = Archive(tmp_path)
    ask(archive)
    archive.files()[0].write_text("{")
    assert ask(archive)[1] == 1


def test_without_an_archive_nothing_is_measured_unless_asked_for():
    assert ask(None) == (None, 0)
    assert ask(None, wanted=True)[1] == 1


def test_ceilings_may_be_left_out(tmp_path):
    assert ask(Archive(tmp_path), wanted=False) == (None, 0)


def test_ceilings_are_said_in_one_line():
    assert ceilings.describe(CEILINGS) == "copy 20 GB/s, fp32 200.0 GFLOP/s, launch 3.0 us"


@pytest.mark.slow
def test_a_worker_measures_this_cpu(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    hello, found = ceilings.measure("cpu")
    assert hello["torch"]["version"]
    assert found["threads"] == 1
    assert found["copy_bytes_per_s"] > 1e8
    assert found["matrix_flops_per_s"]["fp32"] > 1e8
    assert 0 < found["launch_s"] < 1e-3
    assert found["reasons"]["grid_barrier_s"] == "a CPU has no grid"
