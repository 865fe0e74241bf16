"""Claims about TF32 and number formats."""

import pytest
import torch

from fastrnns import precision


@pytest.mark.parametrize("on", [True, False])
def test_upstream_fault_6_case_D9_tf32_is_pinned_for_both_and_put_back(on):
    before = precision.facts()

    def run():
        with precision.tf32(on) as now:
            assert now == {"matmul_tf32": on, "cudnn_tf32": on}
            raise ValueError("inside")

    with pytest.raises(ValueError, match="inside"):
        run()
    assert precision.facts() == before


def test_tf32_tensors_are_fp32():
    assert precision.torch_dtype("tf32") == torch.float32
