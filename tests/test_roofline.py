import subprocess
import sys

import pytest

from fastrnns.profiling import roofline
from fastrnns.runner import REGISTRY
from fastrnns.sizes import Problem

SMALL = Problem(seq_length=7, num_layers=1, input_size=12, hidden_size=20, mini_batch=5)
RECURRENT = [name for name, row in REGISTRY.items() if roofline.cell_of(row) is not None]
LSTMS = [name for name in RECURRENT if REGISTRY[name].family in {"lstm", "vl_lstm", "bilstm", "mi_lstm"}]


def work(name, phase, dtype="fp32", problem=Problem(), **options):  # noqa: B008 - frozen
    return roofline.for_result(name, problem, dtype, phase, **options)


def test_the_default_problem_has_the_counts_of_the_closed_form():
    assert work("cudnn", "forward")["flops"] == pytest.approx(26.84e9, rel=1e-3)
    assert work("cudnn", "backward")["flops"] == 2 * work("cudnn", "forward")["flops"]
    assert work("cudnn", "backward")["flops_without_input_gradient"] == pytest.approx(40.27e9, rel=1e-3)


@pytest.mark.parametrize(
    ("dtype", "phase", "least", "implementation"),
    [("fp32", "forward", 100.2, 205.0), ("fp32", "backward", 121.7, 279.0),
     ("bf16", "forward", 50.1, 102.5), ("bf16", "backward", 60.8, 139.5)],
)  # fmt: skip
def test_the_default_problem_moves_the_megabytes_of_the_byte_model(dtype, phase, least, implementation):
    found = work("cudnn", phase, dtype)
    assert found["bytes"] / 1e6 == pytest.approx(least, abs=0.06)
    assert found["implementation_bytes"] / 1e6 == pytest.approx(implementation, abs=0.06)


def test_the_gradient_of_the_input_is_counted_apart():
    found = work("cudnn", "backward")
    assert found["flops"] - found["flops_without_input_gradient"] == pytest.approx(13.42e9, rel=1e-3)
    assert (found["bytes_with_input_gradient"] - found["bytes"]) / 1e6 == pytest.approx(13.1, abs=0.05)


def test_a_second_layer_needs_the_gradient_of_its_input():
    one = work("cudnn", "backward", problem=SMALL)
    sizes = Problem(SMALL.seq_length, 2, SMALL.hidden_size, SMALL.hidden_size, SMALL.mini_batch)
    two = work("cudnn", "backward", problem=sizes)
    a_product = 2 * 7 * 5 * 4 * 20 * 20
    assert two["flops_without_input_gradient"] == (3 + 4) * a_product
    assert two["serial_steps"] == 2 * one["serial_steps"]


def test_a_model_without_a_backward_has_no_work_there():
    assert work("cudnn_layernorm", "backward") is None


def test_a_convolutional_network_has_no_closed_form():
    assert work("resnet18", "forward") is None


def test_varying_lengths_need_the_lengths():
    assert work("vl_py", "forward") is None
    assert work("vl_py", "forward", lengths=[100] * 64)["flops"] == work("py", "forward")["flops"]


@pytest.mark.parametrize("name", [name for name in RECURRENT if "cpu" in REGISTRY[name].devices])
def test_the_closed_form_is_what_torchs_counter_counts(name):
    import torch

    from fastrnns import runner
    from fastrnns.profiling import flops

    row = REGISTRY[name]
    if reason := runner.unsupported_reason(row):
        pytest.skip(reason)
    device = torch.device("cpu")
    lengths = None
    if row.family == "vl_lstm":
        lengths = [len(sequence) for sequence in runner.build(row, SMALL, device, seed=3).inputs[0]]
    counted = flops.count(row, SMALL, device, "fp32", 3)
    assert counted.forward == work(name, "forward", problem=SMALL, lengths=lengths)["flops_done"] > 0
    if row.has_backward:
        assert counted.backward == work(name, "backward", problem=SMALL, lengths=lengths)["flops_done"] > 0


@pytest.mark.parametrize("name", ["cudnn", "jit_multilayer", "jit_stacked", "jit_bidirectional"])
def test_the_closed_form_holds_for_several_layers(name):
    import torch

    from fastrnns import runner
    from fastrnns.profiling import flops

    problem = Problem(5, 3, 12, 20, 4)
    if reason := runner.unsupported_reason(REGISTRY["jit_multilayer"]):
        pytest.skip(reason)
    counted = flops.count(REGISTRY[name], problem, torch.device("cpu"), "fp32", 3)
    assert counted.forward == work(name, "forward", problem=problem)["flops_done"]
    assert counted.backward == work(name, "backward", problem=problem)["flops_done"]


def test_a_fused_operator_says_that_it_was_counted_through_another_model():
    import torch

    from fastrnns.profiling import flops

    counted = flops.count(REGISTRY["cudnn"], SMALL, torch.device("cpu"), "fp32", 3)
    assert counted.through == "py"
    assert "counted through py" in counted.note


def test_the_slower_of_products_and_memory_sets_the_limit():
    facts = work("cudnn", "forward")
    ceilings = {"matrix_flops_per_s": {"fp32": 50e12}, "copy_bytes_per_s": 4e12, "grid_barrier_s": 1e-6}
    found = roofline.limit(facts, ceilings, "fp32", 2.32)
    assert found["bound"] == "compute"
    assert found["limit_ms"] == pytest.approx(0.537, abs=0.001)
    assert found["share"] == pytest.approx(0.537 / 2.32, abs=0.001)
    assert found["barriers_ms"] == pytest.approx(0.1)
    slow = {"matrix_flops_per_s": {"fp32": 50e15}, "copy_bytes_per_s": 4e9}
    assert roofline.limit(facts, slow, "fp32", None)["bound"] == "memory"


def test_a_result_of_a_record_gets_its_work_and_share_a_phase():
    ceilings = {"matrix_flops_per_s": {"fp32": 50.9e12, "tf32": 412e12}, "copy_bytes_per_s": 4.25e12}
    result = {"model": "cudnn", "dtype": "fp32", "forward": {"median": 2.32}, "backward": {"median": 3.46}}
    found = roofline.of_result(result, Problem(), ceilings)
    assert roofline.percent(found, "forward") == "23%"
    assert roofline.percent(found, "backward") == "23%"
    with_tf32 = roofline.of_result(result, Problem(), ceilings, tf32=True)
    assert roofline.percent(with_tf32, "forward") == "2.8%"
    assert roofline.of_result({**result, "model": "resnet18"}, Problem(), ceilings) is None
    assert roofline.percent(None, "forward") == "-"


def test_no_ceiling_sets_no_limit():
    found = roofline.limit(work("cudnn", "forward"), {"matrix_flops_per_s": {"fp32": None}}, "fp32", 1.0)
    assert found["limit_ms"] is None
    assert found["share"] is None


def test_the_closed_form_does_not_import_torch():
    code = (
        "import sys; from fastrnns.profiling import roofline; from fastrnns.sizes import Problem; "
        "assert roofline.for_result('cudnn', Problem()); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
