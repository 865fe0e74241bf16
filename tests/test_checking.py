"""What a check of an archive finds, by file, cause and remedy."""

import hashlib
import json
import os
import shutil
from datetime import datetime, timedelta, timezone

import pytest
from records import bench, fingerprint

from fastrnns.archive import __main__ as command
from fastrnns.archive import checking, naming, record
from fastrnns.archive.store import Archive
from fastrnns.archive.strict import dumps

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


@pytest.fixture
def archive(tmp_path):
    """A bench and a profile with a file, of one machine, and a bench of another."""
    found = Archive(tmp_path / "results")
    found.write(bench("cudnn", now=NOON))
    profile(found, b"trace")
    found.write(
        bench("jit", now=NOON + timedelta(minutes=2), fingerprint=fingerprint("f" * 16, "Another CPU"))
    )
    return found


def profile(archive, data):
    entry = {
        "name": "trace.json",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "what": "trace",
    }
    path = archive.write(bench(now=NOON + timedelta(minutes=1), kind="profile") | {"files": [entry]})
    path.with_suffix("").mkdir()
    (path.with_suffix("") / "trace.json").write_bytes(data)
    return path


def the(archive, kind="bench"):
    return archive.list(kind)[0].path


def rewritten(path, **changes):
    path.write_text(dumps(json.loads(path.read_bytes()) | changes))


def edit(archive):
    path = the(archive)
    rewritten(path, exit_code=1)
    return path


def tear(archive):
    path = the(archive)
    path.write_bytes(path.read_bytes()[:-100])
    return path


def grow_up(archive):
    path = the(archive)
    rewritten(path, schema=2)
    return path


def lose_its_hash(archive):
    path = the(archive)
    found = json.loads(path.read_bytes())
    del found["sha256"]
    path.write_text(dumps(found))
    return path


def duplicate(archive):
    path = the(archive)
    return shutil.copy(path, path.with_name("20990101T000000Z-bench-" + path.name[-17:]))


def misplace(archive):
    path = the(archive)
    other = next(folder for folder in archive.folder.iterdir() if folder != path.parent)
    return path.rename(other / path.name)


def rename(archive):
    path = the(archive)
    return path.rename(path.with_name("20990101" + path.name[8:]))


def link(archive):
    path = the(archive)
    real = path.rename(archive.folder.parent / path.name)
    path.symlink_to(real)
    return path


def link_a_machine(archive):
    target = the(archive).parent
    made = archive.folder / "linked"
    made.symlink_to(target)
    return made


def put_a_pipe(archive):
    path = the(archive).with_name("20990101T000000Z-bench-000000000000.json")
    os.mkfifo(path)
    return path


def put_text(archive):
    path = the(archive).with_name("20990101T000000Z-bench-000000000000.json")
    path.write_text("no JSON")
    return path


def put_foreign(archive):
    path = the(archive).with_name("notes.txt")
    path.write_text("x")
    return path


def lose_a_file(archive):
    path = the(archive, "profile")
    (path.with_suffix("") / "trace.json").unlink()
    return path


def edit_a_file(archive):
    path = the(archive, "profile")
    (path.with_suffix("") / "trace.json").write_text("other")
    return path


def add_a_file(archive):
    path = the(archive, "profile").with_suffix("") / "notes.txt"
    path.write_text("x")
    return path


def link_a_file(archive):
    path = the(archive, "profile").with_suffix("") / "trace.json"
    path.symlink_to(path.rename(archive.folder.parent / "trace.json"))
    return path


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (edit, "edited"), (tear, "torn"), (grow_up, "another-version"), (lose_its_hash, "not-as-schema"),
        (duplicate, "duplicate"), (misplace, "misplaced"), (rename, "misplaced"), (link, "link"),
        (link_a_machine, "link"), (put_a_pipe, "foreign"), (put_text, "torn"), (put_foreign, "foreign"),
        (lose_a_file, "file-missing"), (edit_a_file, "file-edited"), (add_a_file, "foreign"), (link_a_file, "link"),
    ],
)  # fmt: skip
def test_each_fault_is_named_by_its_file_its_cause_and_a_remedy(archive, capsys, spoil, cause):
    path = spoil(archive)
    assert command.main(["check", "--archive", str(archive.folder), "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["whole"]
    causes = {(found["path"], found["cause"]) for found in report["findings"]}
    assert (str(path), cause) in causes
    assert all(found["text"] and found["remedy"] and not found["harmless"] for found in report["findings"])


def test_a_whole_archive_has_no_findings_and_exit_code_0(archive, capsys):
    assert command.main(["check", "--archive", str(archive.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"records": 3, "whole": True, "findings": []}


def test_every_single_changed_value_is_an_edit(archive):
    path = the(archive)
    found = json.loads(path.read_bytes())
    for key, value in (("duration_s", 1.25), ("notes", ["x"]), ("sequence", 9), ("id", "0" * 12)):
        path.write_text(dumps(found | {key: value}))
        assert "edited" in {finding.cause for finding in checking.check([archive.folder]).findings}
    path.write_text(json.dumps(found))  # other blanks, the same content
    assert not checking.check([archive.folder]).findings


def test_a_record_that_was_sealed_again_after_its_machine_was_changed_is_misplaced(archive):
    path = the(archive)
    path.write_text(
        dumps(record.seal(json.loads(path.read_bytes()) | {"fingerprint": fingerprint("e" * 16)}))
    )
    assert [finding.cause for finding in checking.check([archive.folder]).findings] == ["misplaced"]


@pytest.mark.parametrize("name", [f"{naming.HIDDEN}1-2.tmp", f"{naming.PRUNED}x.json"])
def test_what_a_killed_command_left_is_said_and_harmless(archive, name):
    path = the(archive).with_name(name)
    path.write_text("torn")
    (found,) = checking.check([archive.folder]).findings
    assert (found.path, found.cause, found.harmless) == (path, "left-aside", True)


def test_a_machine_folder_can_be_checked_by_itself(archive):
    folder = the(archive).parent
    assert checking.check([folder]) == checking.Report(2, ())
    (folder / "notes.txt").write_text("x")
    assert [found.path.name for found in checking.check([folder]).findings] == ["notes.txt"]
