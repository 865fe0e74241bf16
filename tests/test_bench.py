import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastrnns import bench, interrupts, runner, session
from fastrnns.archive.store import Archive

ROOT = Path(__file__).parent.parent
TINY = ["--seqLength", "3", "--inputSize", "8", "--hiddenSize", "8", "--miniBatch", "2", "--device", "cpu"]
QUICK = [*TINY, "--warmup", "2", "--nloops", "4"]


def command(*argv, **options):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **options.pop("env", {})}
    return [sys.executable, "-m", "fastrnns.bench", *argv], {"env": environment, "text": True, **options}


def run(*argv, **options):
    argv, options = command(*argv, **options)
    return subprocess.run(argv, capture_output=True, timeout=240, **options)


def record_in(folder):
    return Archive(folder).load("latest")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """One real run, in a folder whose name has blanks, looked at by several tests."""
    folder = tmp_path_factory.mktemp("with blanks in it") / "a b" / ("long" * 35)
    done = run("--rnns", "cudnn", "jit", "cudnn_layernorm", *QUICK, "--processes", "2", "--print-json",
               "--archive", str(folder), cwd=tmp_path_factory.mktemp("c d"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done, record_in(folder)


def test_json_is_shaped_as_upstreams_and_alone_on_stdout(measured):
    done, record = measured
    printed = json.loads(done.stdout)
    assert set(printed) == {"lstm", "lstm-backward"}
    assert set(printed["lstm"]) == {"cudnn", "jit", "cudnn_layernorm"}
    assert set(printed["lstm-backward"]) == {"cudnn", "jit"}
    assert printed["lstm"]["jit"] == record["results"][1]["forward"]["mean"]


def test_upstream_fault_1_a_cpu_run_is_recorded_in_milliseconds(measured):
    _, record = measured
    for result in record["results"]:
        total_s = sum(sum(series) for series in result["forward"]["samples"]) / 1e3
        assert 0 < total_s < record["duration_s"]
        spans = zip(result["started_ns"][0], result["started_ns"][0][1:])  # noqa: B905 - neighbours
        shortest_ms = min(later - earlier for earlier, later in spans) / 1e6
        assert min(result["forward"]["samples"][0]) <= shortest_ms
        assert min(result["forward"]["samples"][0]) > 1e-3  # seconds would be a thousandth


def test_counts_that_were_asked_for_are_kept_exactly(measured):
    _, record = measured
    for result in record["results"]:
        assert [len(series) for series in result["forward"]["samples"]] == [4, 4]
        assert [len(series) for series in result["forward"]["warmup"]] == [2, 2]
        assert [len(series) for series in result["started_ns"]] == [4, 4]


def test_the_record_says_what_ran_and_where(measured):
    _, record = measured
    options = record["options"]
    assert options["threads"] == 1
    assert options["processes_run"] == 2
    assert (options["seed"], options["fuser"], options["tf32"]) == (17, "te", False)
    assert options["products"] == {"matmul_tf32": False, "cudnn_tf32": False}
    assert record["fingerprint"]["software"]["torch"]["version"] == options["torch"]
    assert record["fingerprint"]["ids"]["hardware"]
    assert [result["model"] for result in record["results"]] == ["cudnn", "jit", "cudnn_layernorm"]
    assert record["results"][1]["order"] == [{"process": 0, "position": 1}, {"process": 1, "position": 2}]
    assert record["exit_code"] == 0


def test_upstream_fault_16_cudnn_on_a_cpu_is_not_called_cudnn(measured):
    _, record = measured
    assert "cudnn" not in record["results"][0]["backend"].lower()


def test_a_machine_of_which_nothing_is_known_is_not_called_valid(measured):
    done, record = measured
    if not Path("/sys/devices/system/cpu/cpu0/cpufreq").exists():
        assert record["verdict"]["status"] != "valid"
        assert record["verdict"]["reasons"]
        assert f"verdict: {record['verdict']['status']}" in done.stderr


def test_case_F6_paths_with_blanks_are_used_as_they_are(measured):
    done, _ = measured
    line = next(line for line in done.stderr.splitlines() if line.startswith("record: "))
    assert "/a b/" in line


def test_nothing_private_is_in_the_record(measured):
    _, record = measured
    seen = json.loads(json.dumps(record))
    seen["fingerprint"]["software"]["torch"].pop(
        "build_config"
    )  # where the wheel was built, not where it runs
    assert str(Path.home()) not in json.dumps(seen)


def test_pep_prints_one_line_an_iteration_and_the_table_is_for_people(tmp_path):
    done = run("--rnns", "cudnn", *QUICK, "--print-json", "pep", "--env", "ignore")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * 4
    for line in lines:
        name, _, text = line.partition(" ")
        fact = json.loads(text)
        assert (name, fact["type"], fact["unit"]) == ("Caffe2Observer", "NET", "ms")
        assert fact["metric"] in {"lstm-cudnn", "lstm-backward-cudnn"}
        assert isinstance(fact["value"], str)
        assert float(fact["value"]) > 0
    assert "cudnn" in done.stderr


def test_the_table_is_the_data_without_json(tmp_path):
    done = run("--rnns", "cudnn", *QUICK, "--env", "ignore", "--sep", ",")
    assert done.stdout.splitlines()[1].startswith("cudnn,forward,")


def test_ctrl_c_keeps_what_was_measured_and_ends_with_130(tmp_path):
    argv, options = command("--rnns", "cudnn", "py", *TINY, "--warmup", "2", "--nloops", "1000000", "--env", "ignore",
                            "--archive", str(tmp_path))  # fmt: skip
    options["start_new_session"] = True
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as child:
        seen = ""
        for line in child.stderr:  # the first plain sign of life says that iterations are timed
            seen += line
            if " timed after" in line:
                break
        os.killpg(child.pid, signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert child.returncode == 130, seen + err
    record = record_in(tmp_path)
    assert record["exit_code"] == 130
    assert record["options"]["interrupted"] is True
    assert record["results"][0]["forward"]["n"] > 0
    assert "interrupted" in record["results"][0]["details"]["marks"]
    assert record["results"][1]["error"] == "interrupted before it was measured"
    assert any("interrupted" in reason for reason in record["verdict"]["reasons"])
    assert not children_of(child.pid)


def children_of(pid):
    return [
        stat
        for stat in Path("/proc").glob("[0-9]*/stat")
        if _fields(stat)[1:2] == [str(pid)] and _fields(stat)[0] != "Z"
    ]


def _fields(stat):
    try:
        return stat.read_text().rpartition(")")[2].split()
    except OSError:
        return [""]


def test_a_worker_that_is_killed_is_a_failed_model_and_the_rest_is_measured(tmp_path):
    argv, options = command("--rnns", "cudnn", "aten", *TINY, "--warmup", "2", "--nloops", "20000", "--env", "ignore",
                            "--print-json", "--archive", str(tmp_path))  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as child:
        worker = None
        deadline = time.monotonic() + 60
        while worker is None and time.monotonic() < deadline:
            time.sleep(0.05)
            for stat in children_of(child.pid):
                if b"fastrnns.measure.worker" in (stat.parent / "cmdline").read_bytes():
                    worker = int(stat.parent.name)
        maps = Path(f"/proc/{worker}/maps")
        while "libtorch_python" not in maps.read_text() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(3.0)
        os.kill(worker, signal.SIGKILL)
        out, err = child.communicate(timeout=120)
    assert child.returncode == 1, err
    assert "Traceback" not in err
    first, second = record_in(tmp_path)["results"]
    failed = first if first["status"] == "failed" else second
    assert "SIGKILL" in failed["error"]
    assert json.loads(out)["lstm"][failed["model"]] is None


def test_upstream_fault_4_a_model_that_raises_is_null_in_the_json_and_the_exit_code_is_1(monkeypatch, capsys):
    def fake(options, against=None):
        ok = {"median": 1.0, "ci95": None, "mean": 1.5, "std": None, "min": 1.0, "n": 1, "samples": [[1.5]]}
        row = {"group": "rnns", "family": "lstm", "notes": [], "backend": None, "details": {"marks": []}}
        results = [
            {**row, "model": "cudnn", "status": "ok", "error": None, "forward": ok, "backward": ok},
            {
                **row,
                "model": "jit",
                "status": "failed",
                "error": "RuntimeError: no",
                "forward": None,
                "backward": None,
            },
        ]
        verdict = {"status": "tainted", "reasons": ["because"]}
        return session.Run({"results": results, "verdict": verdict}, exit_code=1)

    monkeypatch.setattr(session, "run", fake)
    assert bench.main(["--rnns", "cudnn", "jit", "--print-json", "--device", "cpu"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "lstm": {"cudnn": 1.5, "jit": None},
        "lstm-backward": {"cudnn": 1.5, "jit": None},
    }
    assert "jit: failed: RuntimeError: no" in err


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--help"], 0, "usage"),
        (["--list"], 0, "jit_layernorm_decom"),
        (["--rnns", "jti"], 2, "did you mean jit"),
        (["--numLayers", "2", "--rnns", "jit"], 2, "jit_multilayer"),
        (["--device", "cuda"], 2, "use --device cpu"),
        (["--nloops", "0"], 2, "--nloops"),
        (["--no-such-flag"], 2, "usage"),
    ],
)
def test_case_F1_answers_come_before_torch_and_before_the_machine_is_touched(argv, code, said):
    probe = (
        "import sys, json\nfrom fastrnns import bench\n"
        "try:\n    code = bench.main(json.loads(sys.argv[1]))\nexcept SystemExit as ended:\n    code = ended.code or 0\n"
        "heavy = {'torch', 'scipy', 'numpy', 'jsonschema', 'psutil', 'env.hold'} & set(sys.modules)\n"
        "print('heavy', sorted(heavy), 'code', code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", probe, json.dumps(argv)], capture_output=True, text=True, env=environment
    )
    assert f"heavy [] code {code}" in done.stdout
    assert said in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_the_parent_never_imports_torch(tmp_path):
    probe = (
        "import sys\nfrom fastrnns import bench\n"
        f"code = bench.main({['--rnns', 'cudnn', *QUICK, '--env', 'ignore', '--archive', str(tmp_path)]!r})\n"
        "print('torch' in sys.modules, code)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, env=environment)
    assert done.stdout.splitlines()[-1] == "False 0", done.stderr


def test_case_E7_an_archive_whose_name_is_no_text_is_written_and_named(tmp_path):
    folder = os.fsencode(tmp_path) + b"/caf\xe9 \xff"
    done = run(
        "--rnns", "cudnn", *QUICK, "--env", "ignore", "--archive", os.fsdecode(folder), env={"LC_ALL": "C"}
    )
    assert done.returncode == 0, done.stderr
    assert len(list(Path(os.fsdecode(folder)).glob("*/*.json"))) == 1
    assert "record: " in done.stderr


def test_upstream_fault_11_aten_runs_without_the_library(tmp_path):
    done = run("--rnns", "aten", *QUICK, "--env", "ignore", "--archive", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert record_in(tmp_path)["results"][0]["backend"] == "ATen"


def test_a_request_to_stop_is_counted_and_the_handlers_are_put_back(capsys):
    before = signal.getsignal(signal.SIGTERM)
    with interrupts.interruptible() as asked:
        assert not asked.requested
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked.requested
        os.kill(os.getpid(), signal.SIGTERM)  # nox sends more of them
    assert signal.getsignal(signal.SIGTERM) is before
    assert capsys.readouterr().err.count("interrupted") == 1


def test_a_person_who_insists_is_obeyed():
    with interrupts.interruptible():
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_cautions_are_said_only_of_models_that_need_them():
    assert session.caution(runner.lookup("jit")) == ""
    assert session.caution(runner.lookup("cudnn")) == ""
    assert "not comparable" in session.caution(runner.lookup("jit_simple"))


def test_upstream_fault_7_the_result_of_jit_simple_says_that_it_does_less(tmp_path):
    done = run("--rnns", "jit_simple", *QUICK, "--env", "ignore")
    assert re.search(r"jit_simple: not comparable: .*less work", done.stderr)


FORBIDS = """
import importlib.abc, sys
class Forbidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "fastrnns.profiling":
            raise ImportError("fastrnns.profiling was imported")
sys.meta_path.insert(0, Forbidden())
"""


def test_without_roofline_nothing_of_the_profiler_is_imported_by_parent_or_worker(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(FORBIDS)
    path = f"{tmp_path}{os.pathsep}{ROOT}"
    words = ("--rnns", "cudnn", *QUICK, "--env", "ignore", "--archive", str(tmp_path / "archive"))
    done = run(*words, env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    done = run(*words, "--roofline", env={"PYTHONPATH": path})
    assert "fastrnns.profiling was imported" in done.stderr  # the guard guards


def test_roofline_adds_the_share_of_the_limit_and_keeps_the_ceilings_for_the_next(tmp_path):
    words = ("--rnns", "cudnn", "vl_cudnn", *QUICK, "--env", "ignore", "--archive", str(tmp_path))
    first = run(*words, "--roofline")
    assert first.returncode == 0, first.stderr
    assert "of limit" in first.stdout
    assert "limit: copy" in first.stderr
    assert "measuring this machine's ceilings" in first.stderr
    second = run(*words, "--roofline")
    assert "measuring this machine's ceilings" not in second.stderr
    record = record_in(tmp_path)
    for result in record["results"]:
        for phase in ("forward", "backward"):
            limit = result["roofline"][phase]["limit"]
            assert limit["share"] == pytest.approx(limit["limit_ms"] / result[phase]["median"])
    assert "of limit" not in run(*words).stdout
    assert Archive(tmp_path).load("latest")["results"][0].get("roofline") is None
