"""Records are written once, whole, in order, and found again."""

import errno
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from records import bench, fingerprint

from fastrnns.archive import durable, naming, record, store
from fastrnns.archive.store import Archive, ArchiveError
from fastrnns.errors import HarnessError, UsageError

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
STORM = Path(__file__).parent / "benchmarks" / "archive_storm.py"


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "a b" / "results")


def test_a_record_lies_in_its_machines_folder_under_time_kind_and_id(archive):
    found = bench(now=NOON)
    path = archive.write(found)
    assert path.parent.name == "test-9000-01234567"
    assert path.name == f"20260301T120000Z-bench-{found['id']}.json"
    assert archive.load(path)["results"] == found["results"]


def test_case_E3_records_of_the_same_second_are_all_kept_and_ordered(archive):
    found = bench(now=NOON)
    paths = [archive.write(found) for _ in range(3)]  # even the very same record
    assert len(set(paths)) == 3
    entries = archive.list()
    assert [entry.record["sequence"] for entry in entries] == [1, 2, 3]
    assert len({entry.id for entry in entries}) == 3


def test_case_E3_a_clock_set_back_does_not_change_the_order(archive):
    first = archive.write(bench(now=NOON))
    second = archive.write(bench(now=NOON - timedelta(hours=1)))
    assert [entry.path for entry in archive.list()] == [first, second]
    assert archive.find("latest").path == second


def test_latest_is_the_newest_over_all_machines(archive):
    archive.write(bench(now=NOON))
    other = archive.write(bench(now=NOON + timedelta(hours=1), fingerprint=fingerprint("f" * 16)))
    archive.write(bench(now=NOON + timedelta(minutes=5)))
    assert archive.find("latest").path == other
    assert archive.find("latest~1").record["started_at"] == "2026-03-01T12:05:00.000Z"
    with pytest.raises(UsageError, match="holds 3 records"):
        archive.find("latest~3")


def test_ids_may_be_shortened_while_they_are_unique(archive):
    for identity in ("aaaa11111111", "aaaa22222222"):
        archive.write(bench() | {"id": identity})
    assert archive.load("aaaa1")["id"] == "aaaa11111111"
    with pytest.raises(UsageError, match="could be 2 records"):
        archive.load("aaaa")
    with pytest.raises(UsageError, match="no record"):
        archive.load("bbbb")


@pytest.mark.parametrize("ref", ["nothing.json", "no/such", "zzz", "", "latest~x"])
def test_a_reference_that_means_nothing_is_a_usage_error(archive, ref):
    with pytest.raises(UsageError):
        archive.load(ref)


def test_case_E2_a_bad_file_is_skipped_by_name_and_the_rest_is_read(archive):
    good = archive.write(bench(now=NOON))
    bad = {
        "20260201T000000Z-bench-000000000001.json": b"",
        "20260201T000000Z-bench-000000000002.json": good.read_bytes()[:500],
        "20260201T000000Z-bench-000000000003.json": good.read_bytes() + b"Results saved to: x",
        "20260201T000000Z-bench-000000000004.json": b'{"schema": 99}',
    }
    for name, data in bad.items():
        (good.parent / name).write_bytes(data)
    survey = archive.survey()
    assert [entry.path for entry in survey.entries] == [good]
    assert len(survey.problems) == 4
    for name, problem in zip(sorted(bad), survey.problems, strict=True):
        assert name in problem
    assert archive.find("latest").path == good


def test_case_E2_a_damaged_newest_file_does_not_make_an_older_one_the_latest(archive):
    good = archive.write(bench(now=NOON))
    (good.parent / "20270101T000000Z-bench-000000000001.json").write_bytes(b"{")
    with pytest.raises(HarnessError, match="not certain"):
        archive.find("latest")


def test_case_E2_no_space_leaves_the_old_files_and_saves_the_record_elsewhere(archive, monkeypatch, tmp_path):
    old = archive.write(bench(now=NOON))
    before = old.read_bytes()
    real = os.write
    monkeypatch.setattr(store.tempfile, "tempdir", str(tmp_path))

    writes = []

    def second_fails(fd, data):
        if str(archive.folder) in str(Path(f"/proc/self/fd/{fd}").readlink()):
            writes.append(len(data))
            if len(writes) > 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(fd, data[:100])
        return real(fd, data)

    monkeypatch.setattr(durable.os, "write", second_fails)
    with pytest.raises(ArchiveError, match="no space left") as caught:
        archive.write(bench(now=NOON))
    monkeypatch.undo()
    assert caught.value.exit_code == 1
    assert old.read_bytes() == before
    assert archive.files() == [old]
    assert not list(old.parent.glob(".record-*"))
    saved = caught.value.saved
    assert str(saved) in str(caught.value)
    added = archive.add(saved)
    assert archive.load(added)["sequence"] == 2
    with pytest.raises(UsageError, match="already in the archive"):
        archive.add(saved)


@pytest.mark.parametrize("blocked", ["file", "below a file"])
def test_an_archive_that_cannot_be_written_is_refused_beforehand(tmp_path, blocked):
    (tmp_path / "file").write_text("x")
    folder = tmp_path / "file" if blocked == "file" else tmp_path / "file" / "results"
    with pytest.raises(UsageError, match="cannot be written"):
        Archive(folder).preflight()


def test_preflight_leaves_nothing_behind(archive):
    archive.preflight()
    assert list(archive.folder.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_preflight_refuses_a_folder_without_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError):
        Archive(tmp_path).preflight()


def test_a_file_is_never_overwritten(tmp_path):
    durable.write_new(tmp_path / "x", b"one")
    with pytest.raises(FileExistsError):
        durable.write_new(tmp_path / "x", b"two")
    assert (tmp_path / "x").read_bytes() == b"one"
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_system_without_hard_links_still_keeps_its_files(tmp_path, monkeypatch):
    def no_links(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(durable.os, "link", no_links)
    durable.write_new(tmp_path / "x", b"one")
    assert (tmp_path / "x").read_bytes() == b"one"
    with pytest.raises(FileExistsError):
        durable.write_new(tmp_path / "x", b"two")


def test_a_file_being_written_is_invisible_to_a_glob_and_removed_after_a_kill(archive):
    path = archive.write(bench())
    aside = path.parent / f"{naming.HIDDEN}1-2.tmp"
    aside.write_text("torn")
    assert list(path.parent.glob("*.json")) == [path]
    archive.write(bench())
    assert not aside.exists()


def test_the_sequence_goes_on_when_its_note_is_lost_or_records_were_added(archive):
    path = archive.write(bench())
    (path.parent / naming.COUNTER).unlink()
    archive.write(bench())
    added = record.seal(bench() | {"sequence": 41})
    (path.parent / naming.file_name(added)).write_text(json.dumps(added))
    assert archive.load(archive.write(bench()))["sequence"] == 42
    (path.parent / naming.COUNTER).write_text("[tor")
    assert archive.load(archive.write(bench()))["sequence"] == 43


def test_a_machine_without_an_id_still_has_a_folder(archive):
    unknown = fingerprint(brand="")
    unknown["ids"]["hardware"] = None
    assert archive.write(bench(fingerprint=unknown)).parent.name == "unknown-machine-unknown"


@pytest.mark.parametrize(
    ("text", "slug"),
    [
        ("Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", "intel-xeon-platinum-8481c"),
        ("AMD EPYC 9V74 80-Core Processor", "amd-epyc-9v74"),
        ("2x NVIDIA H200", "2x-nvidia-h200"),
        ("../../etc/passwd", "etc-passwd"),
        ("\u4e2d", "machine"),
        ("x" * 200, "x" * 40),
    ],
)
def test_a_machines_name_is_short_and_safe_as_a_folder(text, slug):
    assert naming.slug(text) == slug


def test_writers_at_once_and_writers_killed_lose_tear_and_overwrite_nothing():
    ran = subprocess.run(
        [sys.executable, str(STORM), "--json", "--writers", "4", "--records", "5", "--kills", "20", "--samples", "200"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    counts = json.loads(ran.stdout)
    assert counts["writers at once"]["records"] == 20
    assert counts["killed writers"]["kills"] == 20
