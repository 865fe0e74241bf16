"""Claims about the registry: what it holds, what it refuses, and that asking it costs no torch."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

from fastrnns import runner
from fastrnns.errors import HarnessError, UsageError
from fastrnns.sizes import Problem

ROOT = Path(__file__).parent.parent
UPSTREAM = {
    "cudnn", "aten", "jit", "jit_premul", "jit_premul_bias", "jit_simple", "jit_multilayer", "py",
    "cudnn_dropout", "cudnn_layernorm", "jit_layernorm", "jit_layernorm_decom", "jit_dropout",
    "vl_cudnn", "vl_jit", "vl_py", "resnet18", "resnet18_jit", "resnet50", "resnet50_jit",
}  # fmt: skip
TORCHVISION_BROKEN = "operator torchvision::nms does not exist"


def broken_torchvision(monkeypatch):
    real = importlib.import_module

    def fake(name, *rest):
        if name == "torchvision":
            raise RuntimeError(TORCHVISION_BROKEN)
        return real(name, *rest)

    monkeypatch.setattr(runner.importlib, "import_module", fake)


def test_all_of_upstreams_models_are_there():
    assert set(runner.REGISTRY) >= UPSTREAM
    assert len(UPSTREAM) == 20


def test_asking_the_registry_does_not_import_torch():
    code = (
        "import sys; from fastrnns import runner; runner.table(); runner.lookup('cudnn');"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_default_matrix_is_upstreams():
    assert runner.DEFAULT["rnns"] == (
        "cudnn", "aten", "jit", "jit_premul", "jit_premul_bias", "jit_simple", "jit_multilayer", "py",
    )  # fmt: skip
    assert runner.DEFAULT["cnns"] == ("resnet18", "resnet18_jit", "resnet50", "resnet50_jit")
    assert runner.VARIABLE == ("vl_cudnn", "vl_jit", "vl_py")


@pytest.mark.parametrize("model", runner.REGISTRY.values(), ids=lambda model: model.name)
def test_every_row_names_only_models_that_exist(model):
    assert model.comparable_with is None or model.comparable_with in runner.REGISTRY
    assert model.control is None or model.control in runner.REGISTRY
    assert model.comparable_note, "say what its time may be compared with"
    assert len(model.summary) < 100


def test_upstream_fault_15_an_unknown_model_is_refused_with_the_near_names():
    with pytest.raises(UsageError, match="no model is named 'jit_premull'; did you mean jit_premul"):
        runner.lookup("jit_premull")


def test_a_model_of_the_other_group_is_refused_with_its_flag():
    with pytest.raises(UsageError, match="name it with --cnns"):
        runner.lookup("resnet18", "rnns")


@pytest.mark.parametrize("name", [m.name for m in runner.REGISTRY.values() if m.layers == "one"])
def test_upstream_fault_8_two_layers_of_a_one_layer_model_are_refused_with_the_models_that_can(name):
    model = runner.lookup(name)
    with pytest.raises(UsageError, match=f"{name} computes one layer and --numLayers is 2; .*: ") as refused:
        runner.check_supported(model, Problem(num_layers=2), "cpu")
    able = str(refused.value).rpartition(": ")[2].split()
    assert able
    assert all(runner.lookup(other).layers == "any" for other in able)


def test_the_models_that_can_compute_the_same_maths():
    with pytest.raises(UsageError, match=r"cudnn aten jit_multilayer jit_stacked onednn$"):
        runner.check_supported(runner.lookup("jit"), Problem(num_layers=3), "cpu")
    with pytest.raises(UsageError, match=r": gru$"):
        runner.check_supported(runner.lookup("jit_gru"), Problem(num_layers=3), "cpu")


def test_tf32_on_a_cpu_is_refused():
    with pytest.raises(UsageError, match="NVIDIA"):
        runner.check_supported(runner.lookup("cudnn"), Problem(), "cpu", "tf32")


def test_a_deviation_over_one_hidden_unit_is_refused():
    with pytest.raises(UsageError, match="use jit_layernorm"):
        runner.check_supported(runner.lookup("jit_layernorm_decom"), Problem(hidden_size=1), "cpu")


def test_upstream_fault_7_jit_simple_says_that_its_time_is_not_comparable():
    model = runner.lookup("jit_simple")
    assert model.comparable_with is None
    assert "not comparable" in model.comparable_note
    assert "backward" in model.comparable_note


def test_case_D10_torchvision_that_cannot_be_imported_does_not_hurt_the_rnns(monkeypatch):
    broken_torchvision(monkeypatch)
    assert runner.unsupported_reason(runner.lookup("cudnn")) is None
    reason = runner.unsupported_reason(runner.lookup("resnet18"))
    assert TORCHVISION_BROKEN in reason
    for package in ("torch", "torchvision"):
        assert importlib.metadata.version(package) in reason


def test_case_D10_torchscript_is_unsupported_from_python_3_14_and_the_reason_names_both_versions(monkeypatch):
    monkeypatch.setattr(runner.sys, "version_info", (3, 14, 0, "final", 0))
    reason = runner.unsupported_reason(runner.lookup("jit"))
    assert "Python 3.14.0" in reason
    assert importlib.metadata.version("torch") in reason
    assert runner.unsupported_reason(runner.lookup("cudnn")) is None


def test_case_D10_a_torchscript_that_fails_is_a_reason_not_a_crash(monkeypatch):
    from fastrnns import cells

    def script(function):
        raise AttributeError("__annotations__")

    monkeypatch.setattr(cells, "scripted", script)
    assert "AttributeError: __annotations__" in runner.unsupported_reason(runner.lookup("jit"))


@pytest.mark.parametrize(
    ("value", "scripted", "plain"), [("1", True, False), ("0", False, True), (None, True, True)]
)
def test_pytorch_jit_decides_which_models_may_run(monkeypatch, value, scripted, plain):
    monkeypatch.delenv("PYTORCH_JIT", raising=False)
    if value is not None:
        monkeypatch.setenv("PYTORCH_JIT", value)
    assert (runner.unsupported_reason(runner.lookup("py")) is None) == plain
    if value == "0":
        assert "PYTORCH_JIT" in runner.unsupported_reason(runner.lookup("jit"))
    elif scripted:
        assert runner.unsupported_reason(runner.lookup("jit")) is None


def test_py_refuses_to_be_entered_where_the_jit_must_be_on(monkeypatch):
    monkeypatch.setenv("PYTORCH_JIT", "1")
    with pytest.raises(HarnessError, match="PYTORCH_JIT"), runner.entered(runner.lookup("py")):
        pass


def test_upstream_fault_16_cudnn_on_a_cpu_names_what_really_runs():
    import torch

    name = runner.backend(runner.lookup("cudnn"), "cpu")
    assert "cuDNN" not in name
    assert name.startswith("oneDNN" if torch.backends.mkldnn.is_available() else "ATen")


def test_aten_on_a_cpu_is_really_aten_and_everything_is_put_back():
    import torch

    before = torch.backends.cudnn.enabled, torch._C._get_mkldnn_enabled(), torch.backends.cudnn.allow_tf32
    assert runner.backend(runner.lookup("aten"), "cpu") == "ATen"
    model = runner.lookup("aten")

    def run():
        with runner.entered(model):
            assert not torch.backends.cudnn.enabled
            assert not torch._C._get_mkldnn_enabled()
            assert torch.backends.cudnn.allow_tf32 == before[2]
            raise ValueError("in the block")

    with pytest.raises(ValueError, match="in the block"):
        run()
    now = torch.backends.cudnn.enabled, torch._C._get_mkldnn_enabled(), torch.backends.cudnn.allow_tf32
    assert now == before


def test_asking_for_the_backend_draws_nothing():
    import torch

    before = torch.default_generator.get_state()
    runner.backend(runner.lookup("cudnn"), "cpu")
    assert torch.equal(torch.default_generator.get_state(), before)


def test_a_scripted_models_backend_names_the_fuser():
    assert runner.backend(runner.lookup("jit"), "cpu").startswith("TorchScript (")


def test_a_row_can_be_added_and_is_gone_afterwards():
    row = runner.Model("mine", "rnns", "lstm", "mine", creator="nn_rnn", options={"kind": "lstm"})
    with runner.registered(row):
        assert runner.lookup("mine") is row
    with pytest.raises(UsageError):
        runner.lookup("mine")


def test_a_second_model_of_a_name_is_refused():
    row = runner.Model("cudnn", "rnns", "lstm", "mine", creator="nn_rnn")
    with pytest.raises(UsageError, match="registered already"), runner.registered(row):
        pass
    assert runner.lookup("cudnn").summary != "mine"


def test_the_example_of_the_documentation_runs_and_is_verified():
    import torch

    from fastrnns import factory
    from fastrnns.verify.checks import Settings, Verifier

    text = (ROOT / "docs/add_a_model.md").read_text(encoding="utf-8")
    creator, row = (part.partition("```")[0] for part in text.split("```python\n")[1:])
    names = dict(vars(factory))
    exec(creator, names)
    model = eval(row, {"Model": runner.Model})
    assert model.creator == "half_lstm"
    factory.half_lstm = names["half_lstm"]
    try:
        with runner.registered(model):
            found = Verifier(Settings(Problem(5, 2, 7, 6, 3), torch.device("cpu"))).verify(model)
    finally:
        del factory.half_lstm
    assert found.ok
    assert {check.against for check in found.checks} == {"float64"}


def test_a_creator_may_stand_in_another_module():
    row = runner.Model(
        "elsewhere", "rnns", "lstm", "x", creator="fastrnns.factory:nn_rnn", options={"kind": "gru"}
    )
    assert len(runner.build(row, Problem(2, 1, 3, 4, 2), "cpu").params) == 4
