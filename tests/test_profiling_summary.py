import gzip
import json

import pytest

from fastrnns.profiling import cudnn
from fastrnns.profiling.events import Event, ReportError, from_chrome, read_chrome
from fastrnns.profiling.summary import is_work, memory_peaks, merged, own_times, summarise


def operator(name, start, duration, lane="1"):
    return Event("operator", name, start, duration, lane)


def phase(name, start, duration):
    return Event("range", name, start, duration, "1")


def kernel(name, start, duration, correlation=None):
    return Event("kernel", name, start, duration, "stream 7", correlation)


def launch(start, correlation):
    return Event("launch", "cudaLaunchKernel", start, 2.0, "1", correlation)


def test_own_time_leaves_out_what_runs_inside():
    rows = own_times(
        [operator("aten::lstm", 0, 100), operator("aten::mm", 10, 60), operator("aten::add", 80, 5)]
    )
    assert {event.name: time for event, time in rows} == {"aten::lstm": 35, "aten::mm": 60, "aten::add": 5}


def test_lanes_do_not_nest_into_each_other():
    rows = own_times([operator("aten::mm", 0, 100, "1"), operator("aten::mm", 10, 60, "2")])
    assert sorted(time for _, time in rows) == [60, 100]


def test_overlapping_intervals_are_merged():
    assert merged([(5, 8), (0, 3), (2, 4)]) == [(0, 4), (5, 8)]


def test_a_cpu_phase_splits_into_operators_and_overhead():
    found = summarise(
        [
            phase("forward", 0, 100),
            operator("loop", 0, 90),
            operator("aten::mm", 10, 60),
            operator("aten::randn_like", 120, 50),  # between the phases: of neither
            phase("backward", 200, 100),
            operator("autograd::engine::evaluate_function: MmBackward0", 200, 90),
            operator("aten::mm", 210, 80),
        ],
        steps=10,
    )
    assert found["forward"]["work_ms"] == pytest.approx(0.06)
    assert found["forward"]["busy_share"] == pytest.approx(0.6)
    assert found["forward"]["overhead_us_per_step"] == pytest.approx(4.0)
    assert [row["name"] for row in found["forward"]["operators"]["rows"]] == ["aten::mm", "loop"]
    assert found["forward"]["operators"]["calls"] == 1
    assert found["backward"]["work_ms"] == pytest.approx(0.08)
    assert found["forward"]["kernels"] is None


def test_calls_and_times_are_per_iteration():
    events = []
    for start in (0, 1000):
        events += [
            phase("forward", start, 100),
            operator("aten::mm", start, 40),
            operator("aten::mm", start + 50, 20),
        ]
    (row,) = summarise(events)["forward"]["operators"]["rows"]
    assert row == {"name": "aten::mm", "calls": 2, "own_ms": pytest.approx(0.06), "share": pytest.approx(0.6)}


def test_a_gpu_phase_has_busy_share_gaps_and_kernels_a_step():
    found = summarise(
        [
            phase("forward", 0, 60),
            launch(5, 1), launch(20, 2), launch(40, 3),
            kernel("gemm", 10, 10, 1), kernel("cell", 30, 10, 2), kernel("gemm", 60, 40, 3),
        ],
        steps=1,
    )["forward"]  # fmt: skip
    assert found["wall_ms"] == pytest.approx(0.1)
    assert found["host_ms"] == pytest.approx(0.06)
    assert found["busy_share"] == pytest.approx(0.6)
    assert found["kernels"]["per_step"] == 3
    assert found["gaps"] == {
        "count": 2, "total_ms": pytest.approx(0.03), "median_us": 15, "largest_us": 20, "before_first_us": 10,
    }  # fmt: skip
    assert [row["name"] for row in found["kernels"]["rows"]] == ["gemm", "cell"]


def test_a_kernel_belongs_to_the_phase_that_launched_it():
    found = summarise(
        [
            phase("forward", 0, 10), launch(5, 1), kernel("f", 8, 100, 1),
            phase("backward", 20, 10), launch(25, 2), kernel("b", 108, 50, 2),
        ]
    )  # fmt: skip
    assert [row["name"] for row in found["forward"]["kernels"]["rows"]] == ["f"]
    assert [row["name"] for row in found["backward"]["kernels"]["rows"]] == ["b"]
    # The backward was waiting for the forward until 108: its time is what the stream shows.
    assert found["backward"]["wall_ms"] == pytest.approx(0.05)
    assert found["backward"]["busy_share"] == pytest.approx(1.0)


def test_without_launches_a_kernel_is_placed_by_its_own_start():
    found = summarise(
        [phase("forward", 0, 10), kernel("f", 15, 5), phase("backward", 30, 10), kernel("b", 35, 5)]
    )
    assert found["forward"]["kernels"]["count"] == 1
    assert found["backward"]["kernels"]["count"] == 1


def test_interpreters_and_autograds_nodes_are_not_operators():
    assert is_work("aten::mm")
    assert is_work("fused_sigmoid_mul")
    assert not is_work("loop")
    assert not is_work("autograd::engine::evaluate_function: AddBackward0")
    assert not is_work("torch::autograd::AccumulateGrad")


def test_the_memory_peak_is_counted_from_the_start_of_the_phase():
    def memory(start, total):
        return Event("memory", "[memory]", start, bytes_in_use=total, device="cpu")

    events = [memory(0, 100), phase("forward", 10, 50), memory(20, 400), memory(30, 300), memory(90, 900)]
    assert memory_peaks(events) == {"forward": 300}


def test_a_chrome_trace_is_read_with_its_correlations():
    rows = [
        {
            "ph": "X",
            "cat": "kernel",
            "name": "k",
            "ts": 3,
            "dur": 2,
            "pid": 0,
            "tid": 7,
            "args": {"correlation": 9},
        },
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#2",
            "ts": 0,
            "dur": 9,
            "pid": 1,
            "tid": 1,
        },
        {"ph": "M", "name": "process_name", "ts": 0, "pid": 1, "tid": 0, "args": {"name": "python"}},
    ]
    (event,) = from_chrome(rows)
    assert (event.kind, event.correlation, event.duration_us) == ("kernel", 9, 2)


def test_a_trace_that_is_missing_torn_or_empty_is_refused(tmp_path):
    with pytest.raises(ReportError, match="left no trace"):
        read_chrome(tmp_path / "none.json")
    (tmp_path / "torn.json").write_bytes(gzip.compress(b'{"traceEvents": [')[:-4])
    with pytest.raises(ReportError, match="cannot be read back"):
        read_chrome(tmp_path / "torn.json")
    (tmp_path / "empty.json").write_text(json.dumps({"traceEvents": []}))
    with pytest.raises(ReportError, match="no operator and no kernel"):
        read_chrome(tmp_path / "empty.json")


@pytest.mark.parametrize(
    ("kernels", "operators", "algorithm"),
    [
        (["void elemWiseRNNcell<float>", "ampere_sgemm_128x64_tn"], ["aten::_cudnn_rnn"], "STANDARD"),
        (["LSTM_elementWise_fp<half>", "sm90_xmma_gemm_f16f16"], ["aten::_cudnn_rnn"], "STANDARD"),
        (["RNN_blockPersist_fp_LSTM<half>", "nvjet_hsh_64x32"], ["aten::_cudnn_rnn"], "PERSIST_STATIC"),
        (["RNN_blockPersist_fp_LSTM<half>"], [], "PERSIST_STATIC"),
        (["void ampere_lstm_tile16<32, 0>(params_t)"], ["aten::_cudnn_rnn"], "PERSIST_STATIC"),
        (
            ["void ampere_lstm_bp_largeB<512>(params_t)", "void GENERIC_elementWise_bp2<__half>()"],
            ["aten::_cudnn_rnn_backward"],
            "PERSIST_STATIC",
        ),
        (["void LSTM_elementWise_bp1<float>", "cutlass::Kernel2<cutlass_80_simt_sgemm>"], [], "STANDARD"),
        (["something_new"], ["aten::_cudnn_rnn"], "unknown"),
    ],
)
def test_cudnns_algorithm_is_read_from_its_kernels(kernels, operators, algorithm):
    assert cudnn.algorithm(kernels, operators)["algorithm"] == algorithm


def test_atens_own_kernels_are_not_taken_for_cudnns():
    kernels = [
        "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<float>",
        "ampere_sgemm_128x64_tn",
    ]
    assert cudnn.algorithm(kernels) is None
    assert cudnn.algorithm(kernels, ["aten::_thnn_fused_lstm_cell"]) is None
