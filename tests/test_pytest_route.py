"""The pytest route: bench's models, contexts and region under pytest-benchmark, and its JSON as a record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastrnns.archive import imports
from fastrnns.archive.record import validate
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError

pytest.importorskip("pytest_benchmark")

ROOT = Path(__file__).parent.parent
TINY = ["--device", "cpu", "--seqLength", "3", "--inputSize", "8", "--hiddenSize", "8", "--miniBatch", "2"]


def route(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "fastrnns/test_bench.py",
            *TINY,
            *argv,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("route") / "out.json"
    words = ["--rnns", "cudnn", "jit", "cudnn_layernorm", "--rounds", "6", "--warmup-rounds", "3"]
    done = route(*words, "--benchmark-json", str(path))
    assert done.returncode == 0, done.stdout
    return path


def test_each_model_has_a_forward_and_those_with_a_backward_one_too(saved):
    found = json.loads(saved.read_text())["benchmarks"]
    assert {bench["group"] for bench in found} == {"fastrnns"}
    names = {bench["name"] for bench in found}
    assert names == {
        *(f"test_forward[{name}]" for name in ("cudnn", "jit", "cudnn_layernorm")),
        *(f"test_backward[{name}]" for name in ("cudnn", "jit")),
    }
    assert all(len(bench["stats"]["data"]) == 6 for bench in found)


def test_its_json_becomes_a_record_in_milliseconds(saved, tmp_path):
    record = imports.read(saved.read_text(), "s")
    Archive(tmp_path).write(record)
    validate(Archive(tmp_path).load("latest"))
    data = {b["name"]: b["stats"]["data"] for b in json.loads(saved.read_text())["benchmarks"]}
    for result in record["results"]:
        samples = result["forward"]["samples"][0]
        assert samples == pytest.approx([each * 1e3 for each in data[f"test_forward[{result['model']}]"]])
        assert (result["backward"] is None) == (result["model"] == "cudnn_layernorm")
    assert record["verdict"]["status"] == "tainted"
    assert any("one process" in reason for reason in record["verdict"]["reasons"])
    with pytest.raises(UsageError, match="whose times are seconds; give --unit s"):
        imports.read(saved.read_text(), "ms")


def test_a_forward_follows_a_backward_as_in_bench_and_holds_no_outputs_of_the_last_round():
    from fastrnns import test_bench

    class Outputs:
        alive = 0

        def __init__(self):
            Outputs.alive += 1

        def __del__(self):
            Outputs.alive -= 1

    calls = []

    def forward():
        calls.append(f"forward beside {Outputs.alive}")
        return (Outputs(),)

    class Benchmark:
        def __init__(self):
            self.extra_info = {}

        def pedantic(self, target, setup, rounds, warmup_rounds):
            for _ in range(warmup_rounds + rounds):
                assert setup() is None
                assert target() is None

    parameter = SimpleNamespace(grad="left")
    measured = SimpleNamespace(
        inputs=(),
        params=[parameter],
        forward=forward,
        backward_setup=None,
        backward=lambda _: calls.append("backward"),
    )
    model = SimpleNamespace(name="fake", family="lstm")
    request = SimpleNamespace(
        config=SimpleNamespace(getoption={"--rounds": 2, "--warmup-rounds": 1}.__getitem__)
    )
    test_bench.test_forward(model, measured, SimpleNamespace(type="cpu"), Benchmark(), request)
    once = "forward beside 0"
    assert calls == [once, "backward", once, "backward", once]
    assert parameter.grad is None


def test_somebody_elses_benchmarks_are_refused():
    foreign = json.dumps({"machine_info": {}, "benchmarks": [{"name": "test_x", "stats": {"data": [1.0]}}]})
    with pytest.raises(UsageError, match="names no model"):
        imports.read(foreign, "s")


def test_upstream_fault_11_each_model_is_measured_in_its_own_context(tmp_path):
    probe = tmp_path / "probe.py"
    probe.write_text(
        "import torch, pytest\n"
        "@pytest.hookimpl(wrapper=True)\n"
        "def pytest_runtest_call(item):\n"
        "    if item.name == 'test_forward[aten]':\n"
        "        assert not torch._C._get_mkldnn_enabled(), 'the context was not entered'\n"
        "    else:\n"
        "        assert torch._C._get_mkldnn_enabled()\n"
        "    return (yield)\n"
    )
    words = [
        "--rnns",
        "aten",
        "cudnn",
        "--rounds",
        "2",
        "--warmup-rounds",
        "1",
        "-p",
        "probe",
        "-k",
        "forward",
    ]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "fastrnns/test_bench.py",
            *TINY,
            *words,
        ],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--rnns", "cudn"], "cudnn"), (["--fuser", "nvfuser"], "invalid choice"), (["--device", "tpu"], "tpu")],
)
def test_a_bad_flag_is_a_sentence(words, said):
    done = route(*words)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
    assert "INTERNALERROR" not in done.stdout + done.stderr


def test_a_plain_pytest_does_not_collect_it():
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-k", "test_forward or test_backward"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert "fastrnns/test_bench.py" not in done.stdout
