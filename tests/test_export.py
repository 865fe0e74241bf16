"""Exports say what the record says, in each format's unit; each is opened by its own reader where that is installed."""

import csv
import io
import json
import statistics
import subprocess
import sys

import pytest
from records import bench, environment, fingerprint, phase, result

from fastrnns.archive import __main__ as command
from fastrnns.archive import export, record
from fastrnns.archive.export import FORMATS, rows
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError

FORWARD = [[1.0, 1.25, 1.5], [2.0, 2.25, 2.5]]  # ms
BACKWARD = [[4.0, 4.5, 5.0], [6.0, 6.5, 7.0]]


@pytest.fixture
def found():
    """A record of one good model, one failed, and one without a backward."""
    forward = phase(*FORWARD, warmup=[9.0]) | {"ci95": [1.0, 2.0], "median": 1.75, "excluded": [[1], []]}
    good = result(
        "cudnn", forward=forward, backward=phase(*BACKWARD), started_ns=[[10, 20, 30], [40, 50, 60]]
    )
    failed = result("jit", status="failed", error="out of memory", forward=None, backward=None)
    bound = result("cudnn_layernorm", forward=phase([3.0, 3.0]), backward=None)
    print_of = fingerprint()
    print_of["hardware"] |= {"topology": {"cpus": 8}, "memory_gib": 16.0}
    print_of["software"] = {
        "kernel": {"system": "Linux", "release": "6.1"},
        "python": {"version": "3.11.7"},
        "torch": {"version": "2.14.1"},
        "project": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    }
    return record.seal(
        bench(results=[good, failed, bound], fingerprint=print_of)
        | {"verdict": {"status": "tainted", "reasons": ["no governor"]}}
    )


def text_of(found, form):
    return export.export(found, form).data


@pytest.mark.parametrize("form", [form for form in FORMATS if form != "parquet"])
def test_every_format_is_strict_text_and_says_what_it_leaves_out(found, form):
    made = export.export(found, form)
    if form != "csv":
        json.loads(made.data, parse_constant=pytest.fail)
    said = " ".join(made.remarks)
    assert "no place for" in said
    assert "tainted: no governor" in said
    assert "jit is not in it: failed (out of memory)" in said
    assert "jit/" not in made.data


def test_pyperf_has_seconds_a_run_a_process_and_warm_up_beside(found):
    suite = json.loads(text_of(found, "pyperf"))
    names = [one["metadata"]["name"] for one in suite["benchmarks"]]
    assert names == ["rnns/cudnn/forward", "rnns/cudnn/backward", "rnns/cudnn_layernorm/forward"]
    assert suite["benchmarks"][0]["runs"][0]["values"] == [0.001, 0.00125, 0.0015]
    assert suite["benchmarks"][0]["runs"][0]["warmups"] == [[1, 0.009]]
    assert suite["metadata"]["fastrnns_verdict"] == "tainted"


def test_pyperf_itself_reads_it(found, tmp_path):
    pyperf = pytest.importorskip("pyperf")
    (tmp_path / "x.json").write_text(text_of(found, "pyperf"))
    suite = pyperf.BenchmarkSuite.load(str(tmp_path / "x.json"))
    read = suite.get_benchmark("rnns/cudnn/forward")
    assert read.get_values() == tuple(value / 1000 for series in FORWARD for value in series)
    assert read.get_nrun() == 2
    ran = tool("pyperf", "compare_to", str(tmp_path / "x.json"), str(tmp_path / "x.json"))
    assert "rnns/cudnn/forward" in ran


def test_pytest_benchmark_has_seconds_and_the_statistics_of_its_own_definition(found):
    report = json.loads(text_of(found, "pytest-benchmark"))
    stats = report["benchmarks"][0]["stats"]
    pooled = [value / 1000 for series in FORWARD for value in series]
    assert stats["data"] == pooled
    assert stats["mean"] == pytest.approx(statistics.fmean(pooled))
    assert stats["rounds"] == 6
    assert report["benchmarks"][0]["name"] == "test_forward[cudnn]"


def test_pytest_benchmark_itself_agrees_with_our_statistics(found):
    theirs = pytest.importorskip("pytest_benchmark.stats")
    ours = json.loads(text_of(found, "pytest-benchmark"))["benchmarks"]
    for one in ours:
        stats = theirs.Stats()
        for value in one["stats"]["data"]:
            stats.update(value)
        for field in ("min", "max", "mean", "stddev", "median", "iqr", "q1", "q3", "rounds", "total", "ops",
                      "ld15iqr", "hd15iqr", "iqr_outliers", "stddev_outliers", "outliers"):  # fmt: skip
            wanted, said = getattr(stats, field), one["stats"][field]
            assert said == (pytest.approx(wanted) if not isinstance(wanted, str) else wanted), field


def test_pytest_benchmark_itself_compares_it(found, tmp_path):
    pytest.importorskip("pytest_benchmark")
    (tmp_path / "x.json").write_text(text_of(found, "pytest-benchmark"))
    shown = tool("pytest_benchmark", "compare", str(tmp_path / "x.json"), cwd=tmp_path)
    assert "test_backward[cudnn]" in shown
    assert "5.5000" in shown  # ms, the mean of BACKWARD


def test_asv_has_seconds_and_needs_a_commit(found):
    results = json.loads(text_of(found, "asv"))
    row = dict(
        zip(results["result_columns"], results["results"]["fastrnns.rnns.cudnn.time_forward"], strict=True)
    )
    assert row["result"] == [0.00175]
    assert row["samples"] == [[0.001, 0.00125, 0.0015, 0.002, 0.00225, 0.0025]]
    assert results["date"] == pytest.approx(results["date"] // 1)
    found["fingerprint"]["software"]["project"]["commit"] = None
    with pytest.raises(UsageError, match="by commit"):
        export.export(found, "asv")


def test_asv_itself_shows_it(found, tmp_path):
    pytest.importorskip("asv")
    where = tmp_path / "where"
    git = ["git", "-C", str(where), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q", "-b", "main"], ["commit", "-q", "--allow-empty", "-m", "one"]):
        where.mkdir(exist_ok=True)
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run(
        [*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
    ).stdout.strip()
    found["fingerprint"]["software"]["project"]["commit"] = commit
    Archive(tmp_path / "archive").write(found)
    run(tmp_path / "archive", "asv", "--output", str(tmp_path / "results"))
    settings = {"version": 1, "repo": str(where), "branches": ["main"], "environment_type": "existing"}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings | {"project": "x", "results_dir": "results"}))
    shown = tool("asv", "show", "--machine", "test-9000-01234567", "--details", commit[:8], cwd=tmp_path)
    assert "time_forward" in shown
    assert "1.75" in shown
    assert "5.50" in shown


def test_google_benchmark_has_milliseconds_a_repetition_a_process_and_no_cpu_time(found):
    report = json.loads(text_of(found, "google-benchmark"))
    mine = [row for row in report["benchmarks"] if row["run_name"] == "rnns/cudnn/forward"]
    repetitions = [row for row in mine if row["run_type"] == "iteration"]
    assert [row["real_time"] for row in repetitions] == [1.25, 2.25]
    assert {row["time_unit"] for row in mine} == {"ms"}
    assert {row["aggregate_name"]: row["real_time"] for row in mine if row["run_type"] == "aggregate"} == {
        "mean": 1.75, "median": 1.75, "stddev": pytest.approx(statistics.stdev([1.25, 2.25])),
    }  # fmt: skip
    assert "cpu_time" not in text_of(found, "google-benchmark")
    assert not [
        row for row in report["benchmarks"] if row["run_type"] == "aggregate" and "layernorm" in row["name"]
    ]


def test_bmf_has_nanoseconds_and_bounds_only_where_there_are_some(found):
    report = json.loads(text_of(found, "bmf"))
    assert report["rnns/cudnn/forward"] == {
        "latency": {"value": 1.75e6, "lower_value": 1e6, "upper_value": 2e6}
    }
    assert set(report["rnns/cudnn_layernorm/forward"]["latency"]) == {"value"}


def test_github_action_has_milliseconds_and_half_the_interval(found):
    first, *_, last = json.loads(text_of(found, "github-action"))
    assert (first["name"], first["unit"], first["value"], first["range"]) == (
        "rnns/cudnn/forward",
        "ms",
        1.75,
        "0.5",
    )
    assert "range" not in last


def test_pytorch_v3_has_the_medians_of_the_processes_and_text_in_its_maps(found):
    first = json.loads(text_of(found, "pytorch-v3"))[0]
    assert first["metric"]["benchmark_values"] == [1.25, 2.25]
    assert first["model"]["name"] == "cudnn"
    for part in (first["benchmark"], first["metric"]):
        assert all(isinstance(value, str) for value in part["extra_info"].values())


def test_csv_has_a_row_an_iteration_with_its_start_and_whether_it_is_left_out(found):
    read = list(csv.DictReader(io.StringIO(text_of(found, "csv"))))
    timed = [
        row
        for row in read
        if row["phase"] == "forward" and row["part"] == "timed" and row["model"] == "cudnn"
    ]
    assert [float(row["time_ms"]) for row in timed] == [1.0, 1.25, 1.5, 2.0, 2.25, 2.5]
    assert [row["started_ns"] for row in timed] == ["10", "20", "30", "40", "50", "60"]
    assert [row["excluded"] for row in timed] == ["False", "True", *["False"] * 4]
    assert sum(row["part"] == "warmup" for row in read) == 2


def test_parquet_holds_the_same_rows_and_the_record_itself(found, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "x.parquet"
    path.write_bytes(text_of(found, "parquet"))
    table = pq.read_table(path)
    assert [tuple(row.values()) for row in table.to_pylist()] == list(rows.rows(found))
    assert record.parse(table.schema.metadata[b"fastrnns"]) == found


def test_parquet_without_pyarrow_is_one_sentence(found, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Exception, match="pip install pyarrow"):
        export.export(found, "parquet")


def test_a_record_without_times_is_refused():
    failed = result(status="failed", error="x", forward=None, backward=None)
    with pytest.raises(UsageError, match="no times"):
        export.export(bench(results=[failed]), "csv")
    with pytest.raises(UsageError, match="no export format"):
        export.export(bench(), "xml")


def test_the_command_puts_data_on_stdout_and_the_rest_on_stderr(found, tmp_path, capfd):
    Archive(tmp_path).write(found)
    assert run(tmp_path, "bmf") == 0
    out, err = capfd.readouterr()
    assert json.loads(out)
    assert "no place for" in err


def test_an_environment_that_is_empty_exports_as_well():
    bare = bench(environment=environment(before=[], after=[], shield=None))
    for form in FORMATS:
        if form not in {"asv", "parquet"}:
            assert export.export(bare, form).data


def run(folder, form, *words):
    return command.main(["export", "--archive", str(folder), "--format", form, *words])


def tool(module, *words, cwd=None):
    """Stdout and stderr of another tool's command."""
    ran = subprocess.run([sys.executable, "-m", module, *words], capture_output=True, text=True, cwd=cwd)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr
