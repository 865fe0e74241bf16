"""Reproducing: what a record ran is asked for again as it took effect, elsewhere it is refused with the reason."""

from __future__ import annotations

import copy
import math
import random
import sys

import pytest
from records import bench, fingerprint, phase, result

from fastrnns import options as command_line
from fastrnns import reproduce
from fastrnns.archive import compare, store
from fastrnns.errors import MachineError, UsageError


def record(level=10.0, seed=1, **changes):
    rng = random.Random(f"{level} {seed}")
    times = [[level * math.exp(rng.gauss(0, 0.002))] * 5 for _ in range(10)]
    here = reproduce.software_here()
    machine = fingerprint()
    machine["software"] = {"python": {"version": f"{here.python}.0"}}
    made = bench("cudnn", results=[result(forward=phase(*times), backward=None)], fingerprint=machine)
    made["options"] = {
        "device": "cpu", "dtype": "fp32", "tf32": False, "seed": 0, "fuser": "te", "executor": None, "warmup": 3,
        "nloops": None, "cuda_pointwise": {"block_size": 128, "loop_level": None}, "precision": 0.01,
        "budget_s": 45.0, "env": "check", "cpus": None, "processes": 5, "processes_run": 10, "torch": here.torch,
    }  # fmt: skip
    return made | changes


def test_the_flags_say_what_took_effect_and_bench_understands_them():
    flags = reproduce.bench_flags(record())
    args = command_line.parser().parse_args(flags)
    options = command_line.bench_options(flags, args)
    assert options.models == ("cudnn",)
    assert options.plan.processes == 10
    assert options.plan.warmup == 3
    assert options.plan.nloops is None
    assert options.seed == 0
    assert options.cuda_pointwise["block_size"] == 128
    assert options.problem.as_dict() == record()["problem"]


def test_a_record_without_results_cannot_be_repeated():
    with pytest.raises(UsageError, match="no results"):
        reproduce.bench_flags(record(results=[]))


def test_another_machine_is_refused_with_what_differs():
    with pytest.raises(MachineError, match=r"cannot be reproduced here: hardware\.cpu\.brand"):
        reproduce.refuse_elsewhere(record(), fingerprint("f" * 16, "Another CPU"))
    reproduce.refuse_elsewhere(record(), fingerprint())


def test_the_same_software_is_this_interpreter_and_another_is_said():
    here = reproduce.software_here()
    assert reproduce.interpreter(here, None, install=False) == sys.executable
    other = reproduce.Software(here.python, "1.0.0")
    with pytest.raises(MachineError, match=r"torch 1\.0\.0"):
        reproduce.interpreter(other, None, install=False)
    assert reproduce.interpreter(other, "/opt/python", install=False) == "/opt/python"


def test_a_python_that_is_not_here_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MachineError, match=r"python2\.1 is not on the PATH"):
        reproduce.interpreter(reproduce.Software("2.1", "2.0"), None, install=True)


def test_the_answer_is_the_worst_of_all_models():
    same = compare.compare(record(), record(seed=2), margin=0.02)
    assert reproduce.answer(same) == reproduce.REPRODUCED
    slower = compare.compare(record(), record(11.0), margin=0.02)
    assert reproduce.answer(slower) == reproduce.NOT_REPRODUCED
    few = record(11.0)
    few["results"][0]["forward"]["samples"] = [[11.0]]
    assert reproduce.answer(compare.compare(record(), few)) == reproduce.UNDECIDED


@pytest.mark.parametrize(("level", "code"), [(10.0, 0), (11.0, 1)])
def test_the_command_runs_again_answers_and_archives(tmp_path, monkeypatch, capsys, level, code):
    archive = store.Archive(tmp_path)
    first = archive.write(record())
    monkeypatch.setattr(reproduce, "repeat", lambda old, python: copy.deepcopy(record(level, seed=5)))
    monkeypatch.setattr("env.fingerprint.collect", dict)
    monkeypatch.setattr("env.fingerprint.complete", lambda facts: fingerprint())
    assert reproduce.main([str(first), "--archive", str(tmp_path)]) == code
    out = capsys.readouterr()
    assert "cudnn" in out.out
    kept = archive.load("latest")
    assert kept["kind"] == "reproduce"
    assert kept["details"]["of"] == store.read(first).id
    assert kept["details"]["answer"] == ("reproduced" if code == 0 else "not reproduced")


def test_a_record_that_is_no_bench_is_a_usage_error(tmp_path):
    archive = store.Archive(tmp_path)
    path = archive.write(record(kind="verify"))
    assert reproduce.main([str(path), "--archive", str(tmp_path)]) == 2


def test_an_invalid_record_is_refused_before_anything_runs(tmp_path, capsys):
    archive = store.Archive(tmp_path)
    path = archive.write(record(verdict={"status": "invalid", "reasons": ["interrupted"]}))
    assert reproduce.main([str(path), "--archive", str(tmp_path)]) == 2
    assert "interrupted" in capsys.readouterr().err
