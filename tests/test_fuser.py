"""Claims about the JIT's switches."""

import pytest

from fastrnns import fuser
from fastrnns.errors import UsageError
from fastrnns.fuser import CudaPointwise, fusers_and_executor

ALL = [(f, e) for f in fuser.FUSERS for e in (None, *fuser.EXECUTORS)]


@pytest.mark.parametrize(("name", "executor"), ALL)
def test_upstream_fault_13_the_jit_is_afterwards_as_it_was(name, executor):
    before = fuser.current()
    with fusers_and_executor(name, executor, CudaPointwise(4, 16, 64)):
        pass
    assert fuser.current() == before


def test_upstream_fault_13_the_jit_is_put_back_after_an_error():
    before = fuser.current()
    with pytest.raises(ValueError, match="inside"), fusers_and_executor("none", "legacy"):
        raise ValueError("inside")
    assert fuser.current() == before


def test_upstream_fault_13_unknown_names_are_refused():
    with pytest.raises(UsageError, match="no executor is named 'profiled'"):
        fuser.switches("te", "profiled")
    with pytest.raises(UsageError, match="no fuser is named 'nvfuser'"):
        fuser.switches("nvfuser")


def test_te_means_what_it_means_upstream():
    with fusers_and_executor("te") as now:
        assert (now.profiling_executor, now.profiling_mode) == (True, True)
        assert (now.gpu_fusion, now.cpu_fusion, now.tensor_expressions) == (True, False, True)


def test_old_means_what_it_means_upstream():
    with fusers_and_executor("old") as now:
        assert (now.profiling_executor, now.profiling_mode) == (False, False)
        assert (now.gpu_fusion, now.tensor_expressions) == (True, False)


def test_none_switches_everything_off():
    with fusers_and_executor("none") as now:
        assert not any(
            (
                now.profiling_executor,
                now.profiling_mode,
                now.gpu_fusion,
                now.cpu_fusion,
                now.tensor_expressions,
            )
        )


def test_default_touches_nothing():
    before = fuser.current()
    with fusers_and_executor("default", "default") as now:
        assert now == before


@pytest.mark.parametrize(
    ("executor", "wanted"),
    [("profiling", (True, True)), ("simple", (True, False)), ("legacy", (False, False))],
)
@pytest.mark.parametrize("name", fuser.FUSERS)
def test_an_executor_is_applied_over_the_fuser(name, executor, wanted):
    with fusers_and_executor(name, executor) as now:
        assert (now.profiling_executor, now.profiling_mode) == wanted


def test_the_pointwise_knobs_are_set():
    with fusers_and_executor("te", None, CudaPointwise(loop_level=4, block_count=16)) as now:
        assert (now.pointwise_loop_level, now.pointwise_block_count) == (4, 16)


def test_the_setting_is_described_in_words():
    with fusers_and_executor("te"):
        assert fuser.describe() == "TensorExpr fuser, profiling executor"
    with fusers_and_executor("none"):
        assert fuser.describe() == "no fuser, legacy executor"
