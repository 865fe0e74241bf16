"""python -m fastrnns.archive: what a person sees, and the exit codes."""

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import datetime, timedelta, timezone

import pytest
from records import bench, fingerprint, result

from fastrnns.archive import __main__ as command
from fastrnns.archive import durable, naming, record
from fastrnns.archive.store import Archive

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def archive(tmp_path):
    """Two records of one machine and one of another."""
    found = Archive(tmp_path / "results")
    found.write(bench("cudnn", "jit", now=NOON))
    found.write(bench("cudnn", now=NOON + timedelta(minutes=1)))
    long_name = "A Machine With A Very Long Name Indeed And More Of It"
    found.write(
        bench(
            *["jit_premul_bias"] * 9,
            now=NOON + timedelta(minutes=2),
            fingerprint=fingerprint("f" * 16, long_name),
        )
    )
    return found


def run(archive, *words):
    return command.main([words[0], "--archive", str(archive.folder), *words[1:]])


def test_list_is_a_table_of_one_line_a_record_in_a_hundred_columns(archive, capsys):
    assert run(archive, "list") == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert len(lines) == 4
    assert err == ""
    assert max(map(len, lines)) <= 100
    assert lines[0].split()[0] == "id"
    assert lines[1].split()[-1] == "valid"
    assert lines[3].split()[4].endswith("ffff")


def test_list_as_json_has_the_same_records(archive, capsys):
    run(archive, "list", "--json")
    found = json.loads(capsys.readouterr().out)
    assert [entry["models"][0] for entry in found] == ["cudnn", "cudnn", "jit_premul_bias"]


def test_case_E2_list_names_a_bad_file_goes_on_and_ends_badly(archive, capsys):
    bad = archive.list()[0].path.with_name("20260101T000000Z-bench-000000000000.json")
    bad.write_text('{"a": NaN}')
    assert run(archive, "list") == 1
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    assert bad.name in err
    assert "NaN" in err


def test_show_begins_with_the_verdict_and_holds_the_figures(archive, capsys):
    assert run(archive, "show", "latest~2") == 0
    out, err = capsys.readouterr()
    assert "verdict      valid" in out.splitlines()[2]
    assert "Test CPU 9000" in out
    assert "jit " in out
    assert max(map(len, out.splitlines())) <= 110
    assert str(archive.list()[0].path) in err


def test_show_as_json_is_the_record_itself(archive, capsys):
    run(archive, "show", "--json")
    shown = capsys.readouterr().out
    assert json.loads(shown) == archive.load("latest")
    assert record.parse(shown.encode())


def test_show_of_a_failed_and_of_an_empty_record_has_no_traceback(archive, capsys):
    failed = result("jit", status="failed", error="out of memory", forward=None, backward=None)
    archive.write(bench(now=NOON + timedelta(hours=1), results=[failed]))
    assert run(archive, "show") == 0
    assert "failed: out of memory" in capsys.readouterr().out
    archive.write(record.new("ceilings", [], None, {}))
    assert run(archive, "show") == 0


def test_a_whole_archive_passes_its_check(archive, capsys):
    assert run(archive, "check") == 0
    assert "3 records are whole" in capsys.readouterr().err


def edit(path):
    path.write_text(path.read_text().replace('"exit_code": 0', '"exit_code": 1'))


def tear(path):
    path.write_bytes(path.read_bytes()[:-100])


def duplicate(path):
    shutil.copy(path, path.with_name("20990101T000000Z-bench-" + path.name[-17:]))


def misplace(path):
    other = next(folder for folder in path.parent.parent.iterdir() if folder != path.parent)
    shutil.move(path, other / path.name)


def rename(path):
    path.rename(path.with_name("20990101" + path.name[8:]))


def put_foreign(path):
    path.with_name("notes.txt").write_text("x")


def put_foreign_above(path):
    (path.parent.parent / "core.123").write_text("x")


def put_foreign_folder(path):
    (path.parent / "traces").mkdir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (edit, "was edited"),
        (tear, "cut short"),
        (duplicate, "same id"),
        (misplace, "foreign to this folder"),
        (rename, "renamed"),
        (put_foreign, "foreign"),
        (put_foreign_above, "foreign"),
        (put_foreign_folder, "foreign"),
    ],
)
def test_check_finds_what_is_wrong_by_name_and_ends_badly(archive, capsys, spoil, said):
    spoil(archive.list()[0].path)
    assert run(archive, "check") == 1
    assert said in capsys.readouterr().out


def test_check_says_what_a_killed_writer_left_and_does_not_mind(archive, capsys):
    folder = archive.list()[0].path.parent
    (folder / f"{naming.HIDDEN}1-2.tmp").write_text("torn")
    assert len(durable.leftovers(folder)) == 1
    assert run(archive, "check") == 0
    assert "left aside" in capsys.readouterr().err


def test_check_follows_a_record_to_its_files(archive, capsys):
    found = bench(now=NOON, kind="profile")
    found["files"] = [{"name": "trace.json", "bytes": 1, "sha256": "0" * 64, "what": "trace"}]
    path = archive.write(found)
    assert run(archive, "check", str(path)) == 1
    assert "trace.json is missing" in capsys.readouterr().out
    path.with_suffix("").mkdir()
    (path.with_suffix("") / "trace.json").write_text("x")
    assert run(archive, "check") == 1
    assert "was edited" in capsys.readouterr().out


def test_add_takes_in_a_record_from_elsewhere(archive, tmp_path, capsys):
    elsewhere = Archive(tmp_path / "other").write(bench("py"))
    assert run(archive, "add", str(elsewhere)) == 0
    added = capsys.readouterr().out.strip()
    assert archive.load(added)["sequence"] == 3
    assert run(archive, "add", str(elsewhere)) == 2


@pytest.mark.parametrize(
    "words",
    [["show", "zzz"], ["show", "latest~99"], ["check", "/no/such"], ["add", "/no/such.json"]],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(archive, capsys, words):
    assert run(archive, *words) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_no_archive_is_said_and_an_empty_one_is_too(tmp_path, capsys):
    assert command.main(["list", "--archive", str(tmp_path / "none")]) == 2
    assert command.main(["list", "--archive", str(tmp_path)]) == 0
    assert "holds no records" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], [], ["history"]])
def test_help_and_mistakes_answer_without_slow_imports(words):
    code = "import sys; from fastrnns.archive.__main__ import main\ntry: main(sys.argv[1:])\nexcept SystemExit as e: c = e.code\nimport sys; bad = {'torch', 'scipy', 'jsonschema', 'psutil', 'numpy'} & set(sys.modules); assert not bad, bad; sys.exit(c)"
    ran = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)
    assert ran.returncode == (0 if "--help" in words else 2), ran.stderr
    assert "Traceback" not in ran.stderr


def test_a_reader_that_closes_the_pipe_is_no_error(archive):
    line = f"{sys.executable} -m fastrnns.archive show --json --archive {archive.folder} | head -c 10"
    ran = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True)
    assert ran.stderr.count("Traceback") == 0
    assert ran.returncode == 0


def test_case_F6_an_archive_whose_path_has_spaces_and_is_long(tmp_path):
    folder = tmp_path / ("long " * 20).strip() / ("x" * 60)
    path = Archive(folder).write(bench())
    assert path.is_relative_to(folder)
    assert Archive(folder).load("latest")


def test_case_E7_the_listing_of_odd_bytes_never_raises(archive):
    odd = bench(now=NOON + timedelta(days=1))
    odd["results"][0]["model"] = "x\udcff\u4e2d"
    archive.write(odd)
    ran = subprocess.run(
        [sys.executable, "-m", "fastrnns.archive", "list", "--archive", str(archive.folder)],
        capture_output=True, env={**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert b"Traceback" not in ran.stderr


def test_control_characters_of_a_record_do_not_reach_the_terminal(archive, capsys):
    archive.write(bench(now=NOON + timedelta(days=1), results=[result("x\x1b[2J", notes=["a\rb"])]))
    assert run(archive, "list") == run(archive, "show") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\r" not in out
    assert r"x\x1b[2J" in out


def test_a_record_of_a_hundred_thousand_samples_is_shown_in_seconds(archive):
    big = bench(now=NOON + timedelta(days=2))
    big["results"][0]["forward"]["samples"] = [[1.0 + i / 977 for i in range(100_000)]]
    path = archive.write(big)
    began = time.process_time()
    assert Archive(archive.folder).load(path)
    assert time.process_time() - began < 10
