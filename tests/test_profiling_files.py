import csv
import gzip
import json
from pathlib import Path

import pytest

from fastrnns.archive import record
from fastrnns.archive.store import Archive
from fastrnns.profiling import files
from fastrnns.profiling.session import Found

FINGERPRINT = {
    "hardware": {"cpu": {"brand": "Some CPU"}}, "software": {}, "state": {},
    "ids": {"hardware": "c" * 16, "software": None, "state": None},
}  # fmt: skip
ROW = {"name": "aten::mm", "calls": 1.0, "own_ms": 2.0, "share": 0.5}


@pytest.fixture
def found(tmp_path):
    trace = tmp_path / "cudnn.trace.json"
    trace.write_text(
        json.dumps(
            {
                "schemaVersion": 1,
                "host_name": "hal9000",
                "traceName": "/home/dave/trace.json",
                "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "/home/dave/x.py", "ts": 1.5, "dur": 2}],
            }
        )
    )
    graph = tmp_path / "cudnn.graph.txt"
    graph.write_bytes(b"# /home/dave/cells.py:3 \xff\n")
    return Found(
        "cudnn", phases={"forward": {"operators": {"rows": [ROW]}, "kernels": None}}, files=[trace, graph]
    )


@pytest.fixture
def ready(found, tmp_path):
    folder = tmp_path / "ready"
    folder.mkdir()
    return files.prepare(found, folder, {"model": "cudnn", "ratio": float("nan")})


def archived(paths, tmp_path):
    new = record.new("profile", ["fastrnns.profile"], None, {})
    new["fingerprint"] = FINGERPRINT
    return files.archive(Archive(tmp_path / "results"), new, paths)


def test_a_trace_is_kept_without_host_and_paths(ready):
    (path,) = [path for path in ready if path.name == "cudnn.trace.json.gz"]
    trace = json.loads(gzip.decompress(path.read_bytes()))
    assert set(trace) == {"schemaVersion", "traceEvents"}
    assert trace["traceEvents"][0] == {"ph": "X", "cat": "cpu_op", "name": "~/x.py", "ts": 1.5, "dur": 2}
    assert b"dave" not in path.read_bytes()


def test_the_same_trace_gives_the_same_bytes(found, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    first = files.clean_trace(found.files[0], tmp_path).read_bytes()
    assert files.clean_trace(found.files[0], again).read_bytes() == first


def test_case_E7_text_that_is_no_utf8_is_kept_as_utf8(ready):
    (path,) = [path for path in ready if path.name == "cudnn.graph.txt"]
    assert path.read_text(encoding="utf-8") == "# ~/cells.py:3 \N{REPLACEMENT CHARACTER}\n"


def test_tables_are_plain_csv_and_strict_json(ready):
    names = {path.name: path for path in ready}
    with names["cudnn.operators.csv"].open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert row == {"phase": "forward", "name": "aten::mm", "calls": "1.0", "own_ms": "2.0", "share": "0.5"}
    assert json.loads(names["cudnn.summary.json"].read_text())["ratio"] is None
    assert "cudnn.kernels.csv" not in names


def test_a_record_names_its_files_and_they_lie_in_a_folder_of_its_name(ready, tmp_path):
    path = archived(ready, tmp_path)
    found = json.loads(path.read_bytes())
    record.validate(found)
    assert sorted(entry["name"] for entry in found["files"]) == sorted(item.name for item in ready)
    assert {item.name for item in path.with_suffix("").iterdir()} == {item.name for item in ready}
    assert files.check(path, found) == []


def test_files_of_two_records_cannot_collide(ready, tmp_path):
    first, second = archived(ready, tmp_path), archived(ready, tmp_path)
    assert first != second
    assert first.with_suffix("").is_dir()
    assert second.with_suffix("").is_dir()


def test_the_files_of_a_record_are_no_records(ready, tmp_path):
    path = archived(ready, tmp_path)
    assert Archive(tmp_path / "results").files() == [path]


def test_a_file_that_was_edited_or_lost_is_named(ready, tmp_path):
    path = archived(ready, tmp_path)
    found = json.loads(path.read_bytes())
    folder = path.with_suffix("")
    (folder / "cudnn.operators.csv").write_text("edited")
    Path(folder / "cudnn.graph.txt").unlink()
    assert files.check(path, found) == [
        f"cudnn.graph.txt is missing beside {path.name}",
        f"cudnn.operators.csv beside {path.name} was edited or torn",
    ]
