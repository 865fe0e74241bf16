"""Claims about the checks of models: every model passes, and every way of being wrong fails by name."""

from dataclasses import replace

import pytest
import torch

from fastrnns import factory, runner
from fastrnns.errors import HarnessError
from fastrnns.sizes import Problem
from fastrnns.verify import checks, references
from fastrnns.verify.checks import Settings, Verifier
from fastrnns.verify.tolerance import tolerance_for

CPU = torch.device("cpu")
RNNS = [m for m in runner.REGISTRY.values() if m.group == "rnns" and m.name not in runner.MODERN]
SMALL = Settings(Problem(5, 1, 7, 6, 3), CPU, images=2, image_size=32)


def settings_for(model, seed=17):
    layers = 2 if model.layers == "any" else 1
    return replace(SMALL, problem=replace(SMALL.problem, num_layers=layers), seed=seed)


@pytest.mark.parametrize("model", RNNS, ids=lambda m: m.name)
def test_every_rnn_agrees_with_float64_and_its_control(model):
    found = Verifier(settings_for(model)).verify(model)
    assert [f"{check.tensor}: {check.problem}" for check in found.checks if not check.ok] == []
    assert "float64" in {check.against for check in found.checks}
    assert model.control is None or model.control in {check.against for check in found.checks}
    gradients = [check for check in found.checks if check.tensor.startswith("gradient of ")]
    assert bool(gradients) == model.has_backward
    worst = max(check.max_abs for check in found.checks if check.against == "float64")
    assert worst < 5e-5  # at these sizes fp32 is far inside the threshold: a wrong formula is not


@pytest.mark.parametrize("name", ["resnet18", pytest.param("resnet18_jit", marks=pytest.mark.slow)])
def test_a_network_agrees_with_float64_and_its_control(name):
    model = runner.lookup(name)
    found = Verifier(SMALL).verify(model)
    assert found.ok
    assert any("2 images of 3x32x32" in note for note in found.notes)
    assert any(check.tensor.startswith("evaluating: gradient of ") for check in found.checks)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("name", ["cudnn", "aten", "jit", "py", "vl_cudnn", "gru"])
def test_half_precision_agrees_with_float64_of_the_rounded_numbers(name, dtype):
    model = runner.lookup(name)
    found = Verifier(replace(settings_for(model), dtype=dtype)).verify(model)
    assert found.ok
    beside = [check for check in found.checks if check.against == "float64"]
    assert all(check.allowed >= tolerance_for(model.verify, dtype).absolute for check in beside)
    assert max(check.max_abs for check in beside) > 1e-5  # it was computed in half precision: fp32 is nearer


def test_half_precision_that_is_only_claimed_fails():
    wrong = broken("py", outputs_changed(lambda out: (out[0].float(), out[1])))
    found = problems(wrong, replace(SMALL, dtype="bf16", check_grad=False))
    assert "its dtype is torch.float32, it should be torch.bfloat16" in found["output", "float64"]


def test_a_networks_gradients_are_not_held_to_float64_in_half_precision():
    found = Verifier(replace(SMALL, dtype="bf16")).verify(runner.lookup("resnet18"))
    assert found.ok
    assert any("its gradients are not compared with float64" in note for note in found.notes)
    against = {check.tensor: check.against for check in found.checks}
    assert against["evaluating: output"] == "float64"
    assert {against[name] for name in against if "gradient of" in name} == {"its shape"}


def test_odd_sizes_and_one_of_everything():
    for problem in (Problem(1, 1, 1, 1, 1), Problem(3, 1, 5, 33, 2), Problem(7, 3, 2, 4, 1)):
        for name in ("cudnn", "jit", "jit_multilayer", "gru", "jit_stacked", "bidirectional"):
            model = runner.lookup(name)
            if model.layers == "any" or problem.num_layers == 1:
                assert Verifier(replace(SMALL, problem=problem)).verify(model).ok


def broken(name, change, **options):
    """A model like another whose creator's ModelDef is changed; its control and reference stay."""
    good = runner.lookup(name)

    def create(problem, **given):
        return change(getattr(factory, good.creator)(problem, **given))

    return replace(good, name=f"broken_{name}", creator=create, legacy=False, **options)


def outputs_changed(change):
    def apply(made):
        return replace(made, forward=lambda *inputs: change(made.forward(*inputs)))

    return apply


def problems(model, settings=SMALL):
    found = Verifier(settings).verify(model)
    assert not found.ok
    return {(check.tensor, check.against): check.problem for check in found.checks if not check.ok}


def test_case_D1_an_output_of_nan_fails():
    wrong = broken("py", outputs_changed(lambda out: (out[0] * float("nan"), out[1])))
    assert "nan at [0, 0, 0]" in problems(wrong)["output", "cudnn"]


def test_case_D1_one_infinity_fails():
    def spoil(out):
        output = out[0].clone()
        output[1, 0, 2] = float("inf")
        return output, out[1]

    assert "inf at [1, 0, 2]" in problems(broken("py", outputs_changed(spoil)))["output", "cudnn"]


def test_case_D1_a_missing_state_fails():
    wrong = broken("py", outputs_changed(lambda out: (out[0], out[1][0])))
    assert ("state c", "float64") in problems(wrong)


def test_a_wrong_gradient_fails_though_the_outputs_are_right():
    def backward(made):
        def wrong(tensor, gradient):
            factory.simple_backward(tensor, gradient)
            made.params[1].grad.mul_(1.01)

        return replace(made, backward=wrong)

    found = problems(broken("py", backward))
    assert {tensor for tensor, _ in found} == {"gradient of weight_hh_l0"}


def test_a_missing_gradient_fails():
    def detached(made):
        forward = made.forward
        return replace(made, forward=lambda x, state, a, b, c, d: forward(x, state, a, b, c.detach(), d))

    found = problems(broken("py", detached))
    assert "no gradient" in found["gradient of bias_ih_l0", "cudnn"]


def test_other_weights_than_the_controls_are_the_first_thing_said():
    def other(made):
        with torch.no_grad():
            made.params[0].add_(0.1)
        return made

    model = broken("py", other)
    found = Verifier(SMALL).verify(model)
    assert {check.tensor for check in found.checks if not check.ok} == {"weight_ih_l0"}
    assert any("nothing else was compared" in note for note in found.notes)


def test_a_parameter_too_many_fails():
    def more(made):
        return replace(made, params=(*made.params, torch.zeros(2, requires_grad=True)))

    assert ("parameter 4", "cudnn") in problems(broken("py", more))


def test_a_model_in_another_dtype_fails():
    wrong = broken("py", outputs_changed(lambda out: (out[0].double(), out[1])))
    assert "torch.float64" in problems(wrong)["output", "float64"]


def test_dropout_that_never_acts_fails():
    model = runner.lookup("jit_dropout")
    lazy = replace(model, name="lazy", options={"dropout": 0.4}, creator=without_dropout)
    assert ("share dropped", "p = 0.4") in problems(lazy, settings_for(model))


def without_dropout(problem, *, dropout, **given):
    return factory.stacked_lstm(problem, dropout=0.0, **given)


def test_dropout_that_does_not_scale_fails():
    def unscaled(problem, *, dropout, **given):
        made = factory.stacked_lstm(problem, dropout=dropout, **given)
        if dropout:
            with torch.no_grad():
                made.params[0].mul_(1 - dropout)
        return made

    model = runner.lookup("jit_dropout")
    wrong = replace(model, name="unscaled", creator=unscaled)
    assert any(tensor == "scale of what is kept" for tensor, _ in problems(wrong, settings_for(model)))


def test_the_seed_of_cudnns_dropout_is_not_asked_for_twice():
    from fastrnns.verify.dropout import seed_decides

    assert seed_decides(runner.lookup("cudnn_dropout"), CPU)
    assert not seed_decides(runner.lookup("cudnn_dropout"), torch.device("cuda"))
    assert seed_decides(runner.lookup("jit_dropout"), torch.device("cuda"))


def test_gradients_can_be_left_out():
    found = Verifier(replace(SMALL, check_grad=False)).verify(runner.lookup("py"))
    assert found.ok
    assert not [check for check in found.checks if check.tensor.startswith("gradient")]


def test_upstream_fault_7_jit_simple_is_compared_by_its_states():
    found = Verifier(SMALL).verify(runner.lookup("jit_simple"))
    assert found.ok
    assert {"state h", "state c"} <= {check.tensor for check in found.checks}


def test_the_control_of_aten_runs_with_the_libraries_on():
    before = torch._C._get_mkldnn_enabled()
    assert Verifier(SMALL).verify(runner.lookup("aten")).ok
    assert torch._C._get_mkldnn_enabled() == before


def test_the_error_of_the_control_is_beside_the_models():
    found = Verifier(SMALL).verify(runner.lookup("py"))
    beside = [check for check in found.checks if check.against == "float64"]
    assert all(check.control_max_abs is not None for check in beside)


def test_sequences_near_a_relus_kink_give_no_gradient_and_are_counted(monkeypatch):
    monkeypatch.setattr(checks, "NEAR_KINK", 0.02)
    found = Verifier(SMALL).verify(runner.lookup("rnn_relu"))
    assert found.ok
    assert any("of 3 sequences" in note for note in found.notes)


def test_layer_norm_is_checked_over_fewer_steps_and_says_so():
    settings = replace(SMALL, problem=replace(SMALL.problem, seq_length=40))
    found = Verifier(settings).verify(runner.lookup("jit_layernorm"))
    assert found.ok
    assert any("over 10 of the 40 steps" in note for note in found.notes)


def test_an_unknown_reference_is_said():
    with pytest.raises(HarnessError, match="does not exist"):
        Verifier(SMALL).verify(replace(runner.lookup("py"), verify="nothing"))


def test_a_shared_reference_is_computed_once(monkeypatch):
    calls = []
    real = references.lstm

    def counted(inputs, weights):
        calls.append(1)
        return real(inputs, weights)

    monkeypatch.setitem(references.REFERENCES, "lstm", counted)
    verifier = Verifier(SMALL)
    for name in ("cudnn", "aten", "py", "jit_premul"):
        assert verifier.verify(runner.lookup(name)).ok
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("kind", "module"), [("lstm", torch.nn.LSTM), ("gru", torch.nn.GRU), ("rnn_tanh", torch.nn.RNN)]
)
def test_the_references_agree_with_torch_nn_in_float64(kind, module):
    torch.default_generator.manual_seed(0)
    rnn = module(3, 4, 2).double()
    x, h, c = (torch.randn(*s, dtype=torch.float64) for s in ((5, 2, 3), (2, 2, 4), (2, 2, 4)))
    inputs = (x, h, c) if kind == "lstm" else (x, h)
    output, _ = rnn(x, (h, c) if kind == "lstm" else h)
    found = references.REFERENCES[kind](inputs, tuple(rnn.parameters()))
    torch.testing.assert_close(found["output"], output, rtol=0, atol=1e-12)


@pytest.mark.cuda
@pytest.mark.parametrize("model", RNNS, ids=lambda m: m.name)
def test_every_rnn_agrees_on_the_gpu(model):
    from fastrnns import precision

    with precision.tf32(False):
        found = Verifier(replace(settings_for(model), device=torch.device("cuda", 0))).verify(model)
    assert [f"{check.tensor}: {check.problem}" for check in found.checks if not check.ok] == []
