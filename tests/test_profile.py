import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fastrnns import profile
from fastrnns.archive import record
from fastrnns.archive.store import Archive
from fastrnns.profiling import files

SMALL = ["--seqLength", "4", "--inputSize", "8", "--hiddenSize", "8", "--miniBatch", "2", "--device", "cpu"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(*arguments, env=None):
    return subprocess.run(
        [sys.executable, "-m", "fastrnns.profile", *arguments],
        capture_output=True,
        text=True,
        env=env or ONE_THREAD,
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("profile")
    done = run(
        *SMALL, "--rnns", "cudnn", "jit", "--nloops", "2", "--sleep-between-seconds", "0", "--env", "ignore",
        "--no-roofline", "--archive", str(folder),
    )  # fmt: skip
    (path,) = folder.glob("*/*-profile-*.json")
    return done, path, json.loads(path.read_bytes())


def test_a_profile_says_where_the_time_goes(profiled):
    done, _, _ = profiled
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cudnn (oneDNN")
    assert "  forward  " in done.stdout
    assert "bench's clock gives" in done.stdout
    assert "  not ncu: ncu sees NVIDIA GPUs only, and the device is cpu" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_profile_is_a_record_with_files_that_can_be_read_without_this_tool(profiled):
    _, path, found = profiled
    record.validate(found)
    assert (found["kind"], found["options"]["tool"]) == ("profile", "torch")
    assert files.check(path, found) == []
    names = {entry["name"] for entry in found["files"]}
    assert {"cudnn.trace.json.gz", "cudnn.operators.csv", "cudnn.summary.json", "jit.graph.txt"} <= names


def test_each_phase_of_a_profile_has_its_numbers(profiled):
    _, _, found = profiled
    cudnn, jit = found["results"]
    for phase in ("forward", "backward"):
        facts = jit["profile"][phase]
        assert facts["iterations"] == 2
        assert facts["steps"] == 4
        assert 0 < facts["busy_share"] <= 1
        assert facts["memory_peak_bytes"] > 0
        assert {"name", "calls", "own_ms", "share"} == set(facts["operators"]["rows"][0])
        assert facts["roofline"]["counted_agrees"] is True
        assert len(jit[phase]["samples"][0]) == 4  # before the profiled iterations, and after
    assert cudnn["profile"]["forward"]["roofline"]["counted_note"].endswith("counted through py")
    assert "differentiated by the JIT" in jit["profile"]["jit"] or "fused" in jit["profile"]["jit"]


def test_an_earlier_profile_is_compared_with(profiled, tmp_path):
    _, path, found = profiled
    words = [*SMALL, "--rnns", "cudnn", "--nloops", "1", "--env", "ignore", "--archive", str(tmp_path)]
    done = run(*words, "--against", str(path))
    assert done.returncode == 0, done.stderr
    assert f"against {found['id']}:" in done.stdout
    assert Archive(tmp_path).list("profile")[0].record["details"]["against"] == found["id"]
    assert "cudnn forward: " in done.stdout


def test_the_profiled_child_runs_a_model_and_prints_nothing():
    done = run("--internal-run", *SMALL, "--rnns", "cudnn", "--nloops", "1", "--warmup", "1")
    assert (done.returncode, done.stdout) == (0, "")


def test_json_is_the_record_and_nothing_else():
    done = run(*SMALL, "--rnns", "cudnn", "--nloops", "1", "--env", "ignore", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["results"][0]["profile"]["forward"]["reading"]


def test_verbose_prints_the_graph_and_what_was_fused():
    done = run(*SMALL, "--rnns", "jit", "--nloops", "1", "--env", "ignore", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "jit: the graph that the JIT ran\ngraph(" in done.stdout
    assert "nothing was fused" in done.stdout or "fused into one kernel" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--rnns", "cudn"], 2, "did you mean cudnn"),
        (["--tool", "gprof"], 2, "choose one of auto, torch"),
        (["--tool", "ncu"], 3, "ncu sees NVIDIA GPUs only"),
        (["--nloops", "0"], 2, "--nloops is 0; it must be at least 1"),
        (["--rnns", "jit", "--numLayers", "2"], 2, "jit computes one layer"),
        (["--rnns"], 2, "no model is named"),
        (["--against", "latest", "--archive", "nowhere"], 2, "latest"),
    ],
)
def test_what_cannot_run_is_refused_in_one_sentence(arguments, code, said, capsys, tmp_path):
    arguments = [str(tmp_path) if word == "nowhere" else word for word in arguments]
    assert profile.main(["--device", "cpu", "--env", "ignore", *arguments]) == code
    captured = capsys.readouterr()
    assert said in captured.err
    assert captured.out == ""


def test_case_D12_a_profile_inside_nsys_is_refused_before_anything_runs():
    done = run(*SMALL, env={**ONE_THREAD, "NSYS_PROFILING_SESSION_ID": "1"})
    assert done.returncode == 3
    assert "runs under nsys already" in done.stderr


def test_upstreams_flags_are_accepted_with_dashes_and_underscores():
    from fastrnns.profiling import flags

    args = flags.parser().parse_args(["--sleep_between_seconds", "3", "--internal_run", "--seq_length", "7"])
    assert (args.sleep_between_seconds, args.internal_run, args.seq_length) == (3.0, True, 7)
    plain = flags.parser().parse_args([])
    assert (plain.nloops, plain.sleep_between_seconds, plain.rnns) == (5, 1.0, None)
    assert flags.plan_from(flags.parser().parse_args(["--device", "cpu"])).models == ("cudnn", "aten", "jit")


def test_the_parent_imports_no_torch_and_refuses_early():
    code = (
        "import sys; from fastrnns import profile; "
        "code = profile.main(['--rnns', 'nothing']); "
        "print(code, [name for name in ('torch', 'scipy', 'jsonschema') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "2 []"


@pytest.mark.parametrize("command", ["bench", "test", "compare", "measure.worker"])
def test_nothing_of_the_profiler_is_imported_outside_of_it(command):
    module = Path(profile.__file__).parent / f"{command.replace('.', '/')}.py"
    if not module.exists():
        pytest.skip(f"there is no fastrnns.{command}")
    code = (
        f"import sys, fastrnns.{command}; "
        "print([name for name in sys.modules if name.startswith('fastrnns.profil')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.cuda
def test_on_a_gpu_a_profile_counts_kernels_and_names_cudnns_algorithm(tmp_path):
    done = run(
        "--rnns",
        "cudnn",
        "jit",
        "--seqLength",
        "20",
        "--device",
        "cuda",
        "--archive",
        str(tmp_path),
        "--json",
    )
    assert done.returncode == 0, done.stderr
    cudnn, jit = json.loads(done.stdout)["results"]
    assert cudnn["profile"]["forward"]["cudnn_algorithm"]["algorithm"] in {"STANDARD", "PERSIST_STATIC"}
    for result in (cudnn, jit):
        for phase in ("forward", "backward"):
            facts = result["profile"][phase]
            assert 0 < facts["busy_share"] <= 1
            assert facts["kernels"]["per_step"] > 0
            assert facts["memory_peak_bytes"] > 0
            assert 0 < facts["roofline"]["limit"]["share"] < 1


@pytest.mark.cuda
def test_on_a_gpu_a_grid_barrier_costs_microseconds():
    from fastrnns.profiling import ceilings

    _, found = ceilings.measure("cuda:0")
    assert 1e-7 < found["grid_barrier_s"] < 1e-4
    assert found["matrix_flops_per_s"]["bf16"] > found["matrix_flops_per_s"]["fp32"]
