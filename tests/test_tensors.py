"""Claims about comparing tensors: nothing that cannot be compared passes."""

import json
import math

import pytest
import torch

from fastrnns.verify import references, tensors
from fastrnns.verify.tolerance import Tolerance, gradient_tolerance_for, tolerance_for

THRESHOLD = Tolerance(1e-3)
NAN, INF = math.nan, math.inf


def compare(got, want):
    return tensors.compare("output", got, want, "cudnn", THRESHOLD)


def test_equal_tensors_pass_with_a_difference_of_zero():
    check = compare(torch.ones(2, 3), torch.ones(2, 3))
    assert (check.ok, check.max_abs) == (True, 0.0)


def test_a_mismatch_names_the_element_and_both_values():
    got = torch.zeros(2, 3)
    got[1, 2] = 0.5
    check = compare(got, torch.zeros(2, 3))
    assert (check.ok, check.index, check.got, check.want) == (False, (1, 2), 0.5, 0.0)
    assert "differs from cudnn by 0.5 at [1, 2], allowed 0.001" in check.problem


@pytest.mark.parametrize("got", [NAN, INF, -INF])
@pytest.mark.parametrize("want", [0.0, NAN, INF])
def test_case_D1_upstream_fault_5_nan_and_infinity_never_pass(got, want):
    check = compare(torch.tensor([0.0, got]), torch.tensor([0.0, want]))
    assert not check.ok
    assert check.index == (1,)
    json.dumps(check.as_dict(), allow_nan=False)


def test_case_D1_a_control_of_nan_does_not_pass():
    assert not compare(torch.zeros(2), torch.full((2,), NAN)).ok


@pytest.mark.parametrize(("got", "want"), [(3, 2), (2, 3)])
def test_case_D1_upstream_fault_5_unequal_counts_do_not_pass(got, want):
    checks = tensors.compare_sequences(
        "outputs", [torch.zeros(2)] * got, [torch.zeros(2)] * want, "cudnn", THRESHOLD
    )
    assert len(checks) == 3
    assert [check.ok for check in checks] == [True, True, False]


def test_upstream_fault_5_shapes_that_broadcast_do_not_pass():
    assert not compare(torch.zeros(1, 3), torch.zeros(2, 3)).ok
    assert not compare(torch.zeros(3), torch.zeros(1, 3)).ok


def test_upstream_fault_5_the_threshold_reaches_nested_lists():
    got, want = [[torch.zeros(2)], [torch.full((2,), 0.01)]], [[torch.zeros(2)], [torch.zeros(2)]]
    loose = tensors.compare_sequences("states", got, want, "cudnn", Tolerance(0.1))
    tight = tensors.compare_sequences("states", got, want, "cudnn", Tolerance(1e-3))
    assert [check.ok for check in loose] == [True, True]
    assert [check.ok for check in tight] == [True, False]
    assert tight[1].tensor == "states[1][0]"


def test_a_missing_gradient_does_not_pass():
    check = compare(None, torch.zeros(2))
    assert not check.ok
    assert "no gradient" in check.problem
    assert not compare(None, None).ok


def test_another_dtype_does_not_pass():
    assert not compare(torch.zeros(2, dtype=torch.float64), torch.zeros(2)).ok
    assert not compare(torch.zeros(2), torch.zeros(2, dtype=torch.float64)).ok


def test_a_reference_may_be_in_float64_when_the_models_dtype_is_said():
    want = torch.zeros(2, dtype=torch.float64)
    assert tensors.compare("x", torch.zeros(2), want, "float64", THRESHOLD, dtype=torch.float32).ok
    assert not tensors.compare("x", want, want, "float64", THRESHOLD, dtype=torch.float32).ok


def test_nothing_to_compare_does_not_pass():
    assert not compare(torch.zeros(0), torch.zeros(0)).ok
    assert not compare(torch.tensor([]), torch.tensor([])).ok


def test_a_scalar_is_compared():
    assert compare(torch.tensor(1.0), torch.tensor(1.0)).index == ()


def test_the_tolerance_of_every_rnn_in_fp32_is_upstreams():
    for kind in references.REFERENCES:
        assert tolerance_for(kind, "fp32") == Tolerance(1e-3)


def test_upstream_fault_6_the_tolerance_in_tf32_is_another_and_is_printed():
    assert tolerance_for("lstm", "tf32") != tolerance_for("lstm", "fp32")
    assert str(tolerance_for("cnn", "fp32")) == "0.001, or 0.001 of the largest element"
    assert str(tolerance_for("lstm", "fp32")) == "0.001"


def test_shapes_and_finiteness_alone():
    assert tensors.finite("output", torch.zeros(2, 3), (2, 3)).ok
    assert not tensors.finite("output", torch.zeros(2, 3), (3, 2)).ok
    assert not tensors.finite("output", torch.tensor([0.0, NAN]), (2,)).ok
    assert not tensors.finite("output", None, (2,)).ok


def test_a_flipped_slope_passes_by_the_norm_and_a_wrong_derivative_does_not() -> None:
    allowed = gradient_tolerance_for("cnn", "fp32")
    want = torch.randn(64, 3, 7, 7, dtype=torch.float64)
    flipped = want.clone()
    flipped[3, 1, 2, 2] += 0.3
    assert tensors.compare("gradient", flipped, want, "float64", allowed).ok
    assert not tensors.compare("gradient", flipped, want, "float64", tolerance_for("cnn", "fp32")).ok
    assert not tensors.compare("gradient", 1.02 * want, want, "float64", allowed).ok
    assert not tensors.compare("gradient", torch.zeros_like(want), want, "float64", allowed).ok
    assert not tensors.compare("gradient", want, torch.zeros_like(want), "float64", allowed).ok
