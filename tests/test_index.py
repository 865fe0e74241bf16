"""The index: as true as the files, whatever happened to them, and answers that are the files' own."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from records import PROBLEM, bench, fingerprint, phase, result

pytest.importorskip("pyarrow")
pytest.importorskip("duckdb")

from fastrnns.archive import __main__ as archive_command
from fastrnns.archive import comparable, store
from fastrnns.archive.index import build, layout, places, query, tables, views

ROOT = Path(__file__).parent.parent
START = datetime(2026, 1, 20, 3, tzinfo=timezone.utc)


def fill(folder, count=12, seed=1):
    """Records of two machines over three months, with a step, a failure and what may not be compared."""
    archive, dice = store.Archive(folder), random.Random(seed)
    for index in range(count):
        level = 10.0 if index < count // 2 else 12.0
        times = [[level * (1 + dice.gauss(0, 0.003)) for _ in range(6)] for _ in range(5)]
        made = phase(*times)
        made["excluded"] = [[1], [], [], [], []]
        machine = fingerprint(*(("f" * 16, "Other CPU") if index % 3 == 0 else ()))
        machine["software"] = {
            "torch": {"version": "2.13" if index < count // 2 else "2.14"},
            "packages": {"a": "1"},
        }
        results = [result(forward=made, backward=None), result("jit")]
        if index == 4:
            results[1] |= {
                "status": "failed",
                "error": "out of\nmemory",
                "forward": None,
                "backward": None,
            }
        doubt = {"verdict": {"status": "tainted", "reasons": ["load"]}} if index == 7 else {}
        archive.write(
            bench(
                results=results,
                **doubt,
                fingerprint=machine,
                now=START + timedelta(days=7 * index),
                options={"device": "cpu", "dtype": "fp32", "cache": "warm" if index != 5 else "cold"},
            )
        )
    return archive


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(tmp_path_factory.mktemp("filled") / "results")


@pytest.fixture
def archive(filled, tmp_path):
    return store.Archive(shutil.copytree(filled.folder, tmp_path / "results"))


def run(*words):
    return archive_command.main([str(word) for word in words])


def indexed(archive, *words):
    return run("index", *words, "--archive", archive.folder)


def listed(archive, capsys, *words):
    """What a command prints on both streams, and its exit code."""
    capsys.readouterr()
    code = run(*words, "--archive", archive.folder)
    return (code, *capsys.readouterr())


def content(folder):
    place = places.Folder(Path(folder))
    return {key: place.open(key).tables() for key in place.partitions()}


def rebuilt(archive, tmp_path):
    build.update(archive.folder, places.Folder(tmp_path / "rebuilt"))
    return content(tmp_path / "rebuilt")


ROUTES = [
    ["list"],
    ["list", "--json"],
    ["history", "cudnn"],
    ["history", "cudnn", "--json"],
    ["history", "jit"],
]


@pytest.mark.parametrize("words", ROUTES, ids=" ".join)
def test_the_index_and_the_files_say_the_same(archive, capsys, words):
    by_files = listed(archive, capsys, *words)
    assert indexed(archive) == 0
    assert listed(archive, capsys, *words) == by_files
    assert by_files[1]


@pytest.mark.parametrize("words", ROUTES, ids=" ".join)
def test_they_say_the_same_after_the_archive_went_on_without_the_index(archive, capsys, words):
    indexed(archive)
    files = archive.files()
    files[0].unlink()
    files[1].write_text(files[1].read_text().replace('"sequence": ', '"sequence": 1'))
    files[2].write_text("{")
    files[3].chmod(0o644)
    shutil.copy(files[4], files[4].with_name("a-copy.json"))
    files[5].with_name("gone.json").symlink_to("nowhere")
    archive.write(bench("cudnn"))
    by_index = listed(archive, capsys, *words)
    shutil.rmtree(archive.folder / layout.FOLDER)
    assert by_index == listed(archive, capsys, *words)
    assert by_index[2].count("skipped") == 3
    indexed(archive)
    assert listed(archive, capsys, *words) == by_index


def test_the_index_and_not_the_files_answers(archive, capsys, monkeypatch):
    indexed(archive)
    monkeypatch.setattr(store, "read", lambda path: pytest.fail(f"read {path}"))
    assert listed(archive, capsys, "list")[0] == 0
    assert "1 steps" in listed(archive, capsys, "history", "cudnn")[1]


def test_the_latest_record_is_found_by_the_index_and_read_from_its_file(archive, monkeypatch):
    by_files = [archive.find(f"latest~{back}") for back in range(12)]
    indexed(archive)
    read = []
    monkeypatch.setattr(store, "read", lambda path, real=store.read: read.append(path) or real(path))
    assert [archive.find(f"latest~{back}") for back in range(12)] == by_files
    assert read == [entry.path for entry in by_files]


def test_of_one_kind_files_of_another_are_not_opened(archive, monkeypatch):
    path = archive.write(bench("cudnn", kind="calibrate"))
    shutil.copy(archive.files()[0], path.with_name("unnamed.json"))
    read = []
    monkeypatch.setattr(store, "read", lambda path, real=store.read: read.append(path.name) or real(path))
    assert [entry.path for entry in archive.list("calibrate")][-1] == path
    assert sorted(read) == [path.name, "unnamed.json"]


def test_only_what_changed_is_read_again(archive, monkeypatch):
    place = places.Folder(archive.folder / layout.FOLDER)
    first = build.update(archive.folder, place)
    assert (first.read, first.kept) == (12, 0)
    path = archive.write(bench("cudnn"))
    read = []
    monkeypatch.setattr(store, "read", lambda path, real=store.read: read.append(path) or real(path))
    again = build.update(archive.folder, place)
    assert (again.read, again.kept, again.written) == (1, 12, 1)
    assert read == [path]
    assert build.update(archive.folder, place).written == 0


def test_what_is_gone_from_the_archive_goes_from_the_index(archive, tmp_path):
    indexed(archive)
    for path in archive.files()[:9]:
        path.unlink()
    indexed(archive)
    now = content(archive.folder / layout.FOLDER)
    assert now == rebuilt(archive, tmp_path)
    assert sum(len(part["record"]) for part in now.values()) == 3


def test_in_small_steps_it_becomes_the_same(archive, tmp_path, monkeypatch):
    (archive.files()[3]).write_text("no record")
    whole = rebuilt(archive, tmp_path)
    monkeypatch.setattr(build, "CHUNK", 2)
    assert indexed(archive) == 1
    assert content(archive.folder / layout.FOLDER) == whole
    assert indexed(archive, "--rebuild") == 1
    assert content(archive.folder / layout.FOLDER) == whole


def test_a_torn_or_foreign_partition_is_made_again(archive, tmp_path, capsys):
    indexed(archive)
    parts = sorted((archive.folder / layout.FOLDER).rglob(layout.PART))
    parts[0].write_bytes(parts[0].read_bytes()[:200])
    parts[1].write_bytes(b"")
    by_index = listed(archive, capsys, "list")
    indexed(archive)
    assert content(archive.folder / layout.FOLDER) == rebuilt(archive, tmp_path)
    assert listed(archive, capsys, "list") == by_index


def test_an_index_of_another_version_is_made_again(archive, monkeypatch, capsys):
    indexed(archive)
    by_index = listed(archive, capsys, "list")
    monkeypatch.setattr(tables, "VERSION", "of another time")
    assert listed(archive, capsys, "list") == by_index
    assert build.update(archive.folder, places.Folder(archive.folder / layout.FOLDER)).read == 12


def test_a_result_of_a_sweep_has_the_sizes_of_its_own_point(tmp_path):
    archive = store.Archive(tmp_path / "results")
    swept = [
        result(f"cudnn[hidden_size={size}]", problem={**PROBLEM, "hidden_size": size}) for size in (8, 16)
    ]
    archive.write(bench(results=[*swept, result("aten")]))
    indexed(archive)
    text = "SELECT model, hidden_size FROM results WHERE phase = 'forward'"
    with query.ask(places.Folder(archive.folder / layout.FOLDER), text) as answer:
        rows = sorted(answer.rows)
    assert rows == [("aten", 512), ("cudnn[hidden_size=16]", 16), ("cudnn[hidden_size=8]", 8)]


def test_a_writer_that_read_before_another_wrote_loses_nothing_of_the_other(archive, tmp_path, monkeypatch):
    place = places.Folder(archive.folder / layout.FOLDER)
    late = bench("cudnn", now=START, fingerprint=fingerprint())
    real = build._commit

    def overtaken(*args, **facts):
        monkeypatch.setattr(build, "_commit", real)
        archive.write(late)
        build.update(archive.folder, place)
        return real(*args, **facts)

    monkeypatch.setattr(build, "_commit", overtaken)
    build.update(archive.folder, place)
    assert content(place.root) == rebuilt(archive, tmp_path)


def test_a_file_that_changed_between_the_read_and_the_write_is_left_to_the_next_update(
    archive, tmp_path, monkeypatch
):
    place = places.Folder(archive.folder / layout.FOLDER)
    real = build._read

    def edited(*args):
        found = real(*args)
        os.utime(archive.files()[0], ns=(1, 1))
        return found

    monkeypatch.setattr(build, "_read", edited)
    build.update(archive.folder, place)
    assert sum(len(part["record"]) for part in content(place.root).values()) == 11
    monkeypatch.setattr(build, "_read", real)
    build.update(archive.folder, place)
    assert content(place.root) == rebuilt(archive, tmp_path)


def test_a_record_that_no_column_holds_is_read_from_its_file(archive, capsys):
    odd = bench("cudnn")
    odd["results"][0]["forward"]["n"] = 10**30
    archive.write(odd)
    by_files = listed(archive, capsys, "list")
    assert indexed(archive) == 1
    assert listed(archive, capsys, "list") == by_files
    assert sum(len(part["record"]) for part in content(archive.folder / layout.FOLDER).values()) == 12


def test_an_index_lies_wherever_fsspec_reaches(archive, capsys, tmp_path):
    url = f"memory://{tmp_path.name}/index"
    by_files = listed(archive, capsys, "list")
    assert indexed(archive, url) == 0
    assert listed(archive, capsys, "list", "--index", url) == by_files
    code, out, err = listed(archive, capsys, "query", "SELECT count(*) AS n FROM records", "--index", url)
    assert (code, out.split(), err) == (0, ["n", "12"], "")
    for path in archive.files():
        path.unlink()
    assert indexed(archive, url) == 0
    assert (
        listed(archive, capsys, "query", "SELECT id FROM records", "--index", url, "--format", "csv")[1]
        == "id\n"
    )
    assert indexed(archive, f"file://{tmp_path}/there") == 0


def test_at_a_place_without_locks_a_lost_update_is_seen_and_made_good(archive, tmp_path, monkeypatch):
    place = places.place(archive.folder, f"memory://{tmp_path.name}/lost")
    real = places.Remote.write

    def forgetful(self, key, found):
        monkeypatch.setattr(places.Remote, "write", real)  # another writer's older partition takes its place

    monkeypatch.setattr(places.Remote, "write", forgetful)
    build.update(archive.folder, place)
    assert {key: place.open(key).tables() for key in place.partitions()} == rebuilt(archive, tmp_path)


@pytest.mark.parametrize(
    ("url", "said"),
    [("nosuch://x", "nosuch"), ("s3://bucket/x", "s3")],
)
def test_a_place_that_cannot_be_reached_is_one_sentence(archive, capsys, url, said):
    try:
        import s3fs  # noqa: F401
    except ImportError:
        code, _, err = listed(archive, capsys, "index", url)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELEC 1", "syntax error"),
        ("SELECT nothing FROM records", "nothing"),
        ("SELECT * FROM nowhere", "nowhere does not exist"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("", "one SELECT"),
        ("COPY records TO 'here.csv'", "one SELECT"),
        ("ATTACH 'x.db'", "one SELECT"),
        ("SELECT * FROM read_csv('/etc/passwd')", "Permission"),
        ("SELECT model::INTEGER FROM results", "Conversion"),
    ],
)
def test_a_query_that_cannot_be_answered_is_one_sentence_and_exit_2(archive, capsys, sql, said):
    indexed(archive)
    code, out, err = listed(archive, capsys, "query", sql)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert said in err
    assert "Traceback" not in err


def test_a_query_sees_the_documented_tables(archive, capsys):
    archive.files()[0].write_text("torn")
    indexed(archive)

    def ask(sql):
        code, out, err = listed(archive, capsys, "query", sql, "--format", "json")
        assert (code, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]

    assert ask("SELECT count(*) AS n FROM records") == [{"n": 11}]
    entry = archive.list()[0]
    (row,) = ask(f"SELECT * FROM records WHERE id = '{entry.id}'")
    assert row["file"] == f"{entry.machine}/{entry.path.name}"
    assert row["models"] == ["cudnn", "jit"]
    assert row["verdict"] == entry.record["verdict"]["status"]
    forward = entry.record["results"][0]["forward"]
    (row,) = ask(f"SELECT * FROM results WHERE id = '{entry.id}' AND model = 'cudnn'")
    assert (row["phase"], row["median_ms"], row["processes"]) == ("forward", forward["median"], 5)
    rows = ask(
        f"SELECT process, median_ms FROM processes WHERE id = '{entry.id}' AND model = 'cudnn' ORDER BY 1"
    )
    assert [row["process"] for row in rows] == list(range(5))
    assert rows[0]["median_ms"] == sorted(forward["samples"][0][:1] + forward["samples"][0][2:])[2]
    assert (
        ask("SELECT status, phase, error FROM results WHERE status <> 'ok'")[0]["error"] == "out of\nmemory"
    )
    assert {row["torch"] for row in ask("SELECT torch FROM software WHERE facts->>'$.packages.a' = '1'")} == {
        "2.13",
        "2.14",
    }
    assert sum(row["records"] for row in ask("SELECT records FROM machines")) == 11
    assert len(ask("SELECT * FROM settings")) == 2
    assert ask("SELECT file FROM damaged")[0]["file"].endswith(".json")


def test_a_query_says_what_the_index_does_not_know_yet(archive, capsys):
    indexed(archive)
    archive.write(bench("cudnn"))
    archive.files()[0].unlink()
    code, _, err = listed(archive, capsys, "query", "SELECT 1")
    assert code == 0
    assert "lacks 1 files as they are now and holds 1 that are gone" in err


def test_answers_are_aligned_for_people_and_cannot_play_with_a_terminal(archive, capsys):
    indexed(archive)
    sql = "SELECT 'a' || chr(27) AS name, 1.23456789 AS value, NULL AS nothing UNION ALL SELECT 'bcdefgh', 10, 2"
    lines = listed(archive, capsys, "query", sql)[1].splitlines()
    assert lines == ["name       value  nothing", "a\\x1b    1.23457        -", "bcdefgh       10        2"]


def test_without_an_index_the_sentence_says_how_to_make_one(archive, capsys):
    assert "archive index" in listed(archive, capsys, "query", "SELECT 1")[2]
    code, _, err = listed(archive, capsys, "list", "--index", archive.folder / "nowhere")
    assert code == 2
    assert "archive index" in err
    assert run("index", "--archive", archive.folder / "nowhere") == 2


def test_an_empty_archive_has_an_index_and_answers(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    assert run("index", "--archive", tmp_path / "results") == 0
    (tmp_path / "results" / layout.FOLDER).mkdir()
    capsys.readouterr()
    assert run("query", "SELECT count(*) AS n FROM results", "--archive", tmp_path / "results") == 0
    assert capsys.readouterr().out.split() == ["n", "0"]


@pytest.mark.parametrize("package", ["pyarrow", "duckdb"])
def test_a_missing_package_is_one_sentence_with_what_to_install(archive, capsys, monkeypatch, package):
    by_files = listed(archive, capsys, "list")
    indexed(archive)
    monkeypatch.setitem(sys.modules, package, None)
    command = ["index"] if package == "pyarrow" else ["query", "SELECT 1"]
    code, _, err = listed(archive, capsys, *command)
    assert code == 2
    assert f"pip install {package}" in err
    assert listed(archive, capsys, "list")[:2] == by_files[:2]


def test_a_folder_with_any_name_is_queried(tmp_path, capsys):
    archive = fill(tmp_path / "it's [a] *?", 2)
    indexed(archive)
    assert listed(archive, capsys, "query", "SELECT count(*) AS n FROM records")[1].split() == ["n", "2"]


def test_machines_folders_of_any_name_have_partitions(archive, capsys):
    odd = archive.folder / "a=b %2F c"
    odd.mkdir()
    shutil.copy(archive.files()[0], odd)
    by_files = listed(archive, capsys, "list")
    indexed(archive)
    assert listed(archive, capsys, "list") == by_files
    assert odd.name in {key.machine for key in content(archive.folder / layout.FOLDER)}


def test_the_check_of_an_archive_does_not_mind_its_index(archive, capsys):
    indexed(archive)
    assert listed(archive, capsys, "check")[0] == 0


def test_records_of_one_series_have_one_key_and_only_they():
    one = bench("cudnn", options={"device": "cuda:0", "products": {"a": 1, "b": None}})
    same = bench("cudnn", options={"device": "cuda:1", "products": {"a": 1}, "cache": "warm", "seed": 3})
    assert comparable.refusals(one, same) == []
    assert comparable.series_key(one) == comparable.series_key(same)
    keys = comparable.SeriesKeys()
    shared = {**same, "id": "0" * 12, "fingerprint": fingerprint("f" * 16)}
    assert [keys.of(each) for each in (one, same, shared)] == [
        *map(comparable.series_key, (one, same, shared))
    ]
    assert keys.of(shared) != keys.of(same)
    for options in (
        {"device": "cpu"},
        {"device": "cuda", "products": {"a": 2}},
        {"device": "cuda", "threads": 2},
    ):
        other = bench("cudnn", options=options)
        assert comparable.refusals(one, other) != []
        assert comparable.series_key(one) != comparable.series_key(other)


def test_records_of_one_key_join_where_nothing_refuses_them():
    def on(governor, hardware="0123456789abcdef"):
        found = bench("cudnn", fingerprint=fingerprint(hardware))
        found["environment"]["before"] = [{"name": "governor", "current": governor}] if governor else []
        return found

    pairs = [(on("performance"), on(governor)) for governor in ("performance", "powersave", None)]
    for base, new in [*pairs, (on("performance", None), on("performance", None))]:
        assert comparable.series_key(base) == comparable.series_key(new)
        assert comparable.joins(base, new) == (comparable.refusals(base, new) == [])
    assert [comparable.joins(*pair) for pair in pairs] == [True, False, True]


def test_nothing_heavy_is_imported_for_help():
    words = "import sys; sys.argv = ['archive', 'query', '--help']\n"
    code = (
        words + "from fastrnns.archive.__main__ import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print([name for name in ('torch', 'pyarrow', 'duckdb', 'fsspec', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.endswith("[]\n")


def test_the_query_module_closes_what_it_opened(archive, tmp_path, monkeypatch):
    indexed(archive)
    monkeypatch.setattr(query.tempfile, "tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    with query.ask(places.Folder(archive.folder / layout.FOLDER), "SELECT 1") as answer:
        assert list(answer.rows) == [(1,)]
    assert list((tmp_path / "spill").iterdir()) == []


def test_an_export_takes_the_records_of_a_query_in_its_order(archive, capfd):
    indexed(archive)
    ids = [entry.id for entry in archive.list()][-3:]
    sql = "SELECT id FROM results WHERE status = 'ok' ORDER BY started DESC LIMIT 6"  # three phases a record
    capfd.readouterr()
    run("export", "--format", "csv", "--query", sql, "--archive", archive.folder)
    lines = capfd.readouterr().out.splitlines()
    assert lines[0].startswith("record,started_at")
    assert list(dict.fromkeys(line.split(",")[0] for line in lines[1:])) == ids[:0:-1]


def test_rows_of_a_query_become_one_parquet_and_other_formats_a_file_each(archive, capsys, tmp_path):
    pq = pytest.importorskip("pyarrow.parquet")
    indexed(archive)
    everything = ("--query", "SELECT id FROM records", "--archive", archive.folder)
    assert run("export", "--format", "parquet", "--output", tmp_path / "x.parquet", *everything) == 0
    assert len(set(pq.read_table(tmp_path / "x.parquet")["record"].to_pylist())) == 12
    assert run("export", "--format", "bmf", "--output", tmp_path / "bmf", *everything) == 0
    assert {path.name for path in (tmp_path / "bmf").iterdir()} == {path.name for path in archive.files()}
    capsys.readouterr()
    assert run("export", "--format", "bmf", *everything) == 2
    assert "give --output FOLDER" in capsys.readouterr().err


def test_several_records_in_asv_have_their_benchmarks_together(tmp_path):
    from fastrnns.archive.export import asv_results

    machine = fingerprint()
    machine["software"] = {"project": {"commit": "a" * 40, "dirty": False}}
    found = [bench(name, fingerprint=machine) for name in ("cudnn", "jit")]
    named = json.loads(asv_results.trees(found)["benchmarks.json"])
    assert sum("cudnn" in name for name in named) == sum("jit" in name for name in named) == 2


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT model FROM results", "must select their id"),
        ("SELECT id FROM records WHERE false", "selects no record"),
        ("SELECT 'abc' AS id", "abc is the id of no indexed record"),
        ("SELEC", "syntax error"),
    ],
)
@pytest.mark.parametrize("command", [["export", "--format", "csv"], ["report"]], ids=["export", "report"])
def test_a_query_that_names_no_records_is_one_sentence(archive, capsys, command, sql, said):
    indexed(archive)
    code, out, err = listed(archive, capsys, *command, "--query", sql)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err
    assert listed(archive, capsys, *command, "latest", "--query", sql)[0] == 2


def test_a_selected_record_that_was_edited_since_is_refused(archive, capsys):
    indexed(archive)
    path = archive.files()[0]
    text, status = path.read_text(), path.stat()
    path.write_text(text.replace('"exit_code": 0', '"exit_code": 1'))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    sql = f"SELECT id FROM records WHERE file LIKE '%{path.name}'"
    code, _, err = listed(archive, capsys, "export", "--format", "csv", "--query", sql)
    assert code == 1
    assert "was edited" in err


def test_a_report_is_of_the_records_of_a_query(archive, capsys, tmp_path):
    indexed(archive)
    newest = "SELECT id FROM records WHERE hardware_id LIKE '0%' ORDER BY started LIMIT "
    for count, title in ((1, "bench"), (2, "compare"), (4, "history")):
        page = tmp_path / f"{count}.html"
        code, _, err = listed(archive, capsys, "report", "--output", page, "--query", f"{newest}{count}")
        assert code == 0, err
        assert title in page.read_text().lower()


def test_the_documented_columns_are_those_of_the_tables(archive):
    indexed(archive)
    text = (ROOT / "docs" / "archive_at_scale.md").read_text()
    for name in views.VIEWS:
        row = next(line for line in text.splitlines() if line.startswith(f"| `{name}` |"))
        documented = re.findall(r"`(\w+)`", row.split("|")[3])
        if "the common ones" in row:
            documented += views.KEYS.split(", ")
        with query.ask(places.Folder(archive.folder / layout.FOLDER), f"SELECT * FROM {name}") as answer:
            assert sorted(answer.columns) == sorted(documented)


def test_the_documented_queries_run(archive, capsys):
    indexed(archive)
    text = (ROOT / "docs" / "archive_at_scale.md").read_text()
    found = re.findall(r"```sql\n(.*?)```", text, flags=re.DOTALL)
    assert len(found) == 5
    for sql in found:
        code, out, err = listed(archive, capsys, "query", sql, "--format", "csv")
        assert (code, err) == (0, "")
        assert len(out.splitlines()) > 1


def benchmark(name, *words):
    return subprocess.run(
        [sys.executable, "-m", f"tests.benchmarks.{name}", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_benchmark_of_scale_gives_equal_answers_in_small(tmp_path):
    few = ("--records", "40", "--files", "20", "--nodes", "10", "--hardware", "2", "--repeats", "1")
    done = benchmark("archive_scale", *few, "--folder", str(tmp_path))
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["million"]["records"] == 40
    assert set(figures["queries"]) == {"builds", "odd", "night", "doubts", "course"}
    assert all(figures["files"][name]["equal"] for name in ("list", "history"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_two_indexers_of_which_one_is_killed_leave_what_a_rebuild_makes():
    done = benchmark("index_storm", "--rounds", "4", "--json")
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    assert (counts["rounds"], counts["unlike_a_rebuild"], counts["torn"]) == (4, 0, 0)
