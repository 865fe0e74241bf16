"""Claims about the LSTMs of today: what each row is made sure to be, and why it is unsupported where it is."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fastrnns import backends, factory, runner
from fastrnns.archive.store import Archive
from fastrnns.errors import UnsupportedError, UsageError
from fastrnns.sizes import Problem
from fastrnns.verify.checks import Settings, Verifier

ROOT = Path(__file__).parent.parent
CPU = torch.device("cpu")
SMALL = Problem(4, 1, 5, 6, 3)
COMPILED = [name for name in runner.MODERN if runner.REGISTRY[name].compiled]


def test_the_group_names_every_row_that_is_compiled_or_captured():
    modern = {m.name for m in runner.REGISTRY.values() if m.compiled or m.name.startswith("cudagraph_")}
    assert modern <= set(runner.MODERN) <= set(runner.REGISTRY)


def test_what_would_compile_for_minutes_is_in_no_default_matrix():
    for device in ("cpu", "cuda"):
        for group in ("rnns", "cnns"):
            assert not any(runner.lookup(name).compiled for name in runner.default(group, device))
    assert set(runner.default("rnns", "cuda")) - set(runner.default("rnns", "cpu")) == set(
        runner.DEFAULT_ON_GPU
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("g++"), reason="no C++ compiler")
@pytest.mark.parametrize("name", [name for name in COMPILED if "cpu" in runner.REGISTRY[name].devices])
def test_a_compiled_model_agrees_with_float64_and_the_eager_loop(name, tmp_path):
    if reason := runner.unsupported_reason(runner.lookup(name)):
        pytest.skip(reason)
    # In a process of its own, as users run it: Inductor imports setuptools, which may not follow distutils.
    sizes = ["--seqLength", "4", "--inputSize", "5", "--hiddenSize", "6", "--miniBatch", "3"]
    done = subprocess.run(
        [sys.executable, "-m", "fastrnns.test", "--rnns", name, "--device", "cpu", "--env", "ignore", *sizes,
         "--archive", str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (result,) = Archive(tmp_path).load("latest")["results"]
    assert all(check["ok"] for check in result["checks"])
    assert {"py", "float64"} <= {check["against"] for check in result["checks"]}
    assert result["backend"] == "torch.compile (Inductor, C++)"


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_onednn_is_onednn_or_says_what_would_run_in_its_place(dtype):
    model = runner.lookup("onednn")
    small = factory.nn_rnn(SMALL, device=CPU, dtype=torch.float32 if dtype == "fp32" else torch.bfloat16, seed=0,
                           kind="lstm")  # fmt: skip
    if "oneDNN" in backends.library_of(small.forward(*small.inputs)):
        found = Verifier(Settings(SMALL, CPU, dtype=dtype)).verify(model)
        assert found.ok
        assert runner.backend(model, "cpu", dtype).startswith("oneDNN")
    else:
        with pytest.raises(UnsupportedError, match="not oneDNN"):
            runner.build(model, SMALL, "cpu", dtype)


def test_onednn_is_refused_where_onednn_is_off():
    with backends.libraries_off(), pytest.raises(UnsupportedError, match="ATen runs an LSTM") as error:
        runner.build(runner.lookup("onednn"), SMALL, "cpu")
    assert runner.status_of(runner.lookup("onednn"), error.value) == "unsupported"


@pytest.mark.parametrize("name", ["cudagraph_cudnn", "cudagraph_aten", "compile_reduce_overhead"])
def test_what_needs_a_gpu_is_refused_on_a_cpu_by_name(name):
    with pytest.raises(UsageError, match="does not run on cpu; it runs on cuda"):
        runner.check_supported(runner.lookup(name), SMALL, "cpu")


def test_without_a_compiler_torch_compile_is_unsupported_and_says_so(monkeypatch):
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def none():
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    reason = runner.unsupported_reason(runner.lookup("compile"), "cpu")
    assert "torch.compile does not work on the cpu" in reason
    assert "C++ compiler" in reason
    assert runner.unsupported_reason(runner.lookup("py"), "cpu") is None


def test_triton_without_a_c_compiler_is_a_reason_too(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(runner.shutil, "which", lambda _name: None)
    monkeypatch.setattr(runner.importlib, "import_module", lambda _name: None)
    assert "needs a C compiler" in runner.unsupported_reason(runner.lookup("compile"), "cuda")


def test_what_the_compiler_refuses_is_unsupported_and_all_else_is_a_failure():
    from torch._dynamo.exc import Unsupported

    try:
        refusal = Unsupported("no scan here", case_name="a test")
    except TypeError:  # an older signature
        refusal = Unsupported("no scan here")
    assert runner.status_of(runner.lookup("scan"), refusal) == "unsupported"
    assert runner.status_of(runner.lookup("scan"), ValueError("no")) == "failed"
    assert runner.status_of(runner.lookup("py"), refusal) == "failed"


@pytest.mark.cuda
@pytest.mark.parametrize("name", [n for n in runner.MODERN if "cuda" in runner.REGISTRY[n].devices])
def test_a_row_of_the_gpu_agrees_with_float64_and_its_control(name):
    found = Verifier(Settings(SMALL, torch.device("cuda"))).verify(runner.lookup(name))
    assert [check.problem for check in found.checks if not check.ok] == []


@pytest.mark.cuda
def test_a_replay_reads_the_gradient_it_is_given_and_gives_its_own_back():
    made = runner.build(runner.lookup("cudagraph_cudnn"), SMALL, "cuda")
    outputs = made.forward(*made.inputs)
    output, start = made.backward_setup(outputs, 3)
    made.backward(output, start)
    once = [parameter.grad.clone() for parameter in made.params]
    made.forward(*made.inputs)
    made.backward(output, 2 * start)
    for first, second in zip(once, (parameter.grad for parameter in made.params), strict=True):
        torch.testing.assert_close(2 * first, second)


class Replay:
    """A captured graph that only counts."""

    times = 0

    def replay(self):
        self.times += 1


def test_a_replayed_model_names_the_library_under_its_graph():
    from fastrnns import graphs

    made = factory.nn_rnn(SMALL, device=CPU, dtype=torch.float32, seed=0, kind="lstm")
    outputs = made.forward(*made.inputs)
    captured = graphs.Graphs(
        Replay(), Replay(), outputs, torch.ones_like(outputs[0]), (None,) * len(made.params)
    )
    replayed = graphs.replayed(made, captured)
    assert replayed.backend == f"CUDA graph of {backends.library_of(outputs)}"
    assert replayed.forward(*replayed.inputs) is outputs
    replayed.backward(*replayed.backward_setup(outputs, seed=1))
    assert (captured.forward.times, captured.backward.times) == (1, 1)
