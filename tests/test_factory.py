"""Claims about the creators: what a seed decides, what params is, what backward starts from."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fastrnns import factory, runner
from fastrnns.sizes import Problem
from fastrnns.verify.tensors import flatten

SMALL = Problem(5, 1, 7, 6, 3)
TWO = Problem(5, 2, 7, 6, 3)
TINY_IMAGES = {"images": 2, "image_size": 32}
ALL = [model for name, model in runner.REGISTRY.items() if name not in runner.MODERN]  # those: test_modern.py
RNNS = [model for model in ALL if model.group == "rnns"]


def made(model, seed=0, dtype="fp32", problem=None):
    overrides = TINY_IMAGES if model.group == "cnns" else {}
    problem = problem or (TWO if model.layers == "any" else SMALL)
    return runner.build(model, problem, "cpu", dtype, seed, **overrides)


def tensors_of(modeldef):
    return [leaf for _, leaf in flatten(modeldef.inputs)] + list(modeldef.params)


@pytest.mark.parametrize("model", RNNS, ids=lambda model: model.name)
def test_upstream_fault_9_the_seed_decides_every_tensor_and_zero_is_a_seed(model):
    first, again, other = (tensors_of(made(model, seed)) for seed in (0, 0, 1))
    assert all(map(torch.equal, first, again))
    assert not all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("model", ALL, ids=lambda model: model.name)
def test_upstream_fault_9_params_is_a_tuple_so_that_gradients_are_zeroed_each_time(model):
    modeldef = made(model)
    assert isinstance(modeldef.params, tuple)
    assert len(modeldef.names) == len(modeldef.params)
    assert all(param.requires_grad and param.is_leaf for param in modeldef.params)
    if modeldef.backward is None:
        return
    with runner.entered(model):
        seen = []
        for _ in range(2):
            for param in modeldef.params:
                param.grad = None
            factory.seed_generators(0, torch.device("cpu"))  # for the masks of dropout
            outputs = modeldef.forward(*modeldef.inputs)
            modeldef.backward(*modeldef.backward_setup(outputs, 0))
            seen.append([param.grad.clone() for param in modeldef.params])
    for once, twice in zip(*seen, strict=True):
        torch.testing.assert_close(once, twice, rtol=1e-3, atol=1e-4 * float(once.abs().max() + 1))


@pytest.mark.parametrize("model", RNNS, ids=lambda model: model.name)
def test_upstream_fault_9_every_tensor_is_where_it_was_asked_for(model):
    for tensor in tensors_of(made(model, dtype="fp64")):
        assert tensor.device.type == "cpu"
        assert tensor.dtype == torch.float64


@pytest.mark.cuda
@pytest.mark.parametrize("model", RNNS, ids=lambda model: model.name)
def test_upstream_fault_9_a_seed_gives_the_same_tensors_on_the_gpu(model):
    problem = TWO if model.layers == "any" else SMALL
    here = tensors_of(runner.build(model, problem, "cpu"))
    there = tensors_of(runner.build(model, problem, "cuda"))
    assert all(a.device.type == "cuda" and torch.equal(a.cpu(), b) for a, b in zip(there, here, strict=True))


def test_models_of_the_same_maths_draw_the_same_numbers():
    control = made(runner.lookup("cudnn"), problem=SMALL)
    for name in ("aten", "jit", "jit_premul_bias", "jit_stacked", "jit_multilayer", "py"):
        assert all(map(torch.equal, control.params, made(runner.lookup(name), problem=SMALL).params))


def test_upstream_fault_10_seed_zero_decides_the_random_gradient():
    output = torch.zeros(4, 3)
    assert torch.equal(factory.random_gradient(output, 0)[1], factory.random_gradient(output, 0)[1])
    assert not torch.equal(factory.random_gradient(output, 0)[1], factory.random_gradient(output)[1])


def test_the_random_gradient_of_a_seed_is_not_the_input_of_that_seed():
    modeldef = runner.build(runner.lookup("cudnn"), Problem(4, 1, 6, 6, 3), "cpu", "fp32", 17)
    outputs = modeldef.forward(*modeldef.inputs)
    gradient = modeldef.backward_setup(outputs, 17)[1]
    assert gradient.shape == modeldef.inputs[0].shape
    assert not torch.allclose(gradient, modeldef.inputs[0])


def test_a_gradients_seed_does_not_touch_the_generators():
    before = torch.default_generator.get_state()
    factory.random_gradient(torch.zeros(3), 5)
    assert torch.equal(torch.default_generator.get_state(), before)


def test_generators_are_kept():
    before = torch.default_generator.get_state()
    with factory.generators_kept(torch.device("cpu")):
        torch.rand(3)
    assert torch.equal(torch.default_generator.get_state(), before)


def test_upstream_fault_7_jit_simple_returns_states_and_its_backward_starts_from_the_last_one():
    modeldef = made(runner.lookup("jit_simple"))
    h, c = modeldef.forward(*modeldef.inputs)
    assert h.shape == c.shape == (1, 3, 6)
    assert modeldef.backward_setup((h, c))[0] is h


@pytest.mark.parametrize("name", runner.VARIABLE)
def test_lengths_are_from_30_to_99_whatever_the_sequence_length(name):
    problem = Problem(5, 1, 2, 2, 400)
    sequences = runner.build(runner.lookup(name), problem, "cpu", seed=3).inputs[0]
    lengths = {len(sequence) for sequence in sequences}
    assert min(lengths) == 30
    assert max(lengths) == 99


def test_dropout_of_a_seed_is_the_same_each_time_it_is_built():
    for name in ("cudnn_dropout", "jit_dropout"):
        model = runner.lookup(name)
        outputs = []
        for _ in range(2):
            modeldef = made(model)
            outputs.append(modeldef.forward(*modeldef.inputs)[0])
        assert torch.equal(*outputs)


def test_layernorm_bound_has_no_backward():
    assert made(runner.lookup("cudnn_layernorm")).backward is None


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("model", RNNS, ids=lambda model: model.name)
def test_every_rnn_runs_in_half_precision_on_the_cpu(model, dtype):
    modeldef = made(model, dtype=dtype)
    with runner.entered(model):
        outputs = modeldef.forward(*modeldef.inputs)
        if modeldef.backward is not None:
            modeldef.backward(*modeldef.backward_setup(outputs, 0))
            assert all(bool(torch.isfinite(param.grad).all()) for param in modeldef.params)


def test_a_backward_gives_what_autograd_gives_and_imports_no_sympy() -> None:
    script = (
        "import sys, torch\n"
        "from fastrnns.factory import simple_backward\n"
        "w = torch.randn(3, 4, requires_grad=True); g = torch.randn(2, 4)\n"
        "x = torch.randn(2, 3)\n"
        "simple_backward(x @ w, g); first = w.grad.clone()\n"
        "simple_backward(x @ w, g); assert torch.equal(w.grad, 2 * first)\n"
        "assert 'sympy' not in sys.modules, 'sympy was imported'\n"
        "w.grad = None; (x @ w).backward(g); assert torch.equal(w.grad, first)\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parent.parent)


def test_a_gradient_of_another_shape_is_refused() -> None:
    w = torch.randn(3, requires_grad=True)
    with pytest.raises(ValueError, match="gradient is"):
        factory.simple_backward(2 * w, torch.randn(1, 3))
