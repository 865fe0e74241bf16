from fastrnns.profiling.reading import account, limit_text, reading, short


def gpu(busy, per_step=14, name="void gemm<float>(int)", share=0.4, **more):
    rows = [{"name": name, "share": share, "own_ms": 1.0, "calls": 1}]
    return {
        "busy_share": busy, "wall_ms": 10.0, "work_ms": busy * 10.0, "host_ms": 9.0, "overhead_us_per_step": 60.0,
        "kernels": {"per_step": per_step, "count": 1400, "rows": rows}, "gaps": {"count": 1399},
        "operators": {"calls": 2000, "rows": []}, **more,
    }  # fmt: skip


def cpu(busy, share, calls=24, steps=100):
    rows = [{"name": "aten::mm", "share": share, "own_ms": 1.0, "calls": 1}]
    return {
        "busy_share": busy, "wall_ms": 10.0, "work_ms": busy * 10.0, "overhead_us_per_step": 1.0, "steps": steps,
        "kernels": None, "gaps": None, "operators": {"calls": calls, "rows": rows},
    }  # fmt: skip


def test_a_gpu_that_waits_is_launch_bound():
    assert reading(gpu(0.38), device_type="cuda") == "launch-bound: 38% busy, 14 kernels a step"


def test_a_busy_gpu_is_read_by_what_runs():
    assert reading(gpu(0.97, 2, share=0.72), device_type="cuda") == (
        "kernel-bound: 97% busy, 72% of it in matrix products, 2.0 kernels a step"
    )
    assert "55% in lstm_cell" in reading(
        gpu(0.97, 2, name="lstm_cell<float>", share=0.55), device_type="cuda"
    )


def test_a_gpu_on_which_nothing_ran_is_called_that():
    assert reading({**cpu(0.9, 0.9)}, device_type="cuda") == "nothing ran on the GPU"


def test_a_cpu_is_read_by_its_operators():
    assert reading(cpu(0.99, 0.98), device_type="cpu").startswith(
        "one operator: 99% in operators, 98% in aten::mm"
    )
    assert (
        reading(cpu(0.4, 0.1, 4000), device_type="cpu")
        == "dispatch-bound: 40% in operators, 40 operators a step"
    )


def test_work_that_agrees_with_bench_needs_no_explanation():
    found = account(cpu(0.99, 0.98), 10.2)
    assert found["within_10_percent"]
    assert found["text"] == "operators sum to 9.9 ms of the 10.2 ms that bench's clock gives (97%)"


def test_a_gap_to_bench_is_explained_by_the_waiting_gpu():
    found = account(gpu(0.38), 9.0)
    assert not found["within_10_percent"]
    assert "the GPU waits for the host 6.2 ms in 1399 gaps between kernels, 60 us a step" in found["text"]
    assert "the profiler makes the call 11% slower" in found["text"]


def test_work_above_bench_is_put_down_to_the_profiler():
    text = account(cpu(0.99, 0.5, calls=4000), 5.0)["text"]
    assert "the profiler makes the call 100% slower" in text
    assert "us for each of 4000 operators" in text


def test_work_far_above_bench_is_put_down_to_the_machine():
    assert "the machine was unsteady" in account(cpu(0.99, 0.98, calls=18), 5.0)["text"]


def test_nothing_is_accounted_without_a_time_of_bench():
    assert account(cpu(0.9, 0.9), None) is None


def test_the_limit_is_said_with_what_sets_it():
    facts = {"limit_ms": 0.5, "bound": "compute", "share": 0.25, "barriers_ms": 0.1}
    assert (
        limit_text(facts)
        == "25.0% of the compute limit, 0.5 ms at best; 0.1 ms if each step cost one grid barrier"
    )
    assert limit_text({**facts, "share": 1.4}).startswith(
        "above the compute ceiling, which was measured on a disturbed"
    )
    assert limit_text({"limit_ms": None}) == "no ceiling known"


def test_a_kernels_name_is_shortened_for_a_line():
    assert short("void at::native::vectorized<4, float>(int, float)") == "at::native::vectorized"
    assert short("x" * 60).endswith("...")
    assert (
        short("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64>(T1::Params)")
        == "cutlass_80_simt_sgemm_64x64"
    )
    assert short("void at::<unnamed>::distribution_kernel<float, 4>()") == "at::distribution_kernel"
    assert short("void at::native::(anonymous namespace)::fill<float>()") == "at::native::fill"
