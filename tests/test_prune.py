"""`archive prune`: what goes, what stays and why, beside writers, and killed in the middle."""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from records import bench, fingerprint, phase, result

from fastrnns.archive import __main__ as command
from fastrnns.archive import calibration, checking, durable, naming, prune, removal
from fastrnns.archive.store import Archive

START = datetime(2026, 1, 1, tzinfo=timezone.utc)
NOISY = [[1.0 + 0.01 * (place % 3)] * 5 for place in range(12)]


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path / "results")


def put(archive, day, **changes):
    """A bench of that day; returns its id."""
    path = archive.write(bench(now=START + timedelta(days=day)) | changes)
    return path.stem[-12:]


def put_calibration(archive, day, **changes):
    measured = result(forward=phase(*NOISY), backward=None)
    return put(archive, day, kind="calibrate", results=[measured], **changes)


def put_profile(archive, day, data=b"trace"):
    entry = {
        "name": "trace.json",
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "what": "x",
    }
    found = put(archive, day, kind="profile", files=[entry])
    folder = archive.find(found).path.with_suffix("")
    folder.mkdir()
    (folder / "trace.json").write_bytes(data)
    return found


def run(archive, *words, today=300):
    args = command.parser().parse_args(["prune", "--archive", str(archive.folder), *words])
    return prune.run(args, START + timedelta(days=today))


def planned(archive, capsys, *words, today=300):
    run(archive, *words, "--json", today=today)
    found = json.loads(capsys.readouterr().out)
    return {each["id"] for each in found["remove"]}, {each["id"]: each["reason"] for each in found["stay"]}


def ids(archive):
    return {entry.id for entry in archive.list()}


def test_nothing_is_removed_without_yes(archive, capsys):
    old, new = put(archive, 0), put(archive, 299)
    assert run(archive, "--older-than", "90d") == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [str(archive.find(old).path)]
    assert "--yes removes" in err
    assert ids(archive) == {old, new}
    assert run(archive, "--older-than", "90d", "--yes") == 0
    assert ids(archive) == {new}


def test_an_age_is_counted_from_the_start_of_a_record(archive, capsys):
    found = [put(archive, day) for day in (0, 10, 20)]
    assert planned(archive, capsys, "--older-than", "25d", today=30)[0] == {found[0]}
    assert planned(archive, capsys, "--older-than", "1w", today=30)[0] == set(found[:2])
    assert planned(archive, capsys, "--older-than", "4000h", today=30)[0] == set()


def test_keep_counts_by_machine_kind_and_command(archive, capsys):
    mine = [put(archive, day) for day in range(4)]
    other = [put(archive, day, command={"argv": ["fastrnns.bench", "--rnns", "jit"]}) for day in range(4, 6)]
    elsewhere = [put(archive, day, fingerprint=fingerprint("f" * 16)) for day in range(6, 8)]
    assert planned(archive, capsys, "--keep", "2")[0] == set(mine[:2])
    assert planned(archive, capsys, "--keep", "1")[0] == {*mine[:3], other[0], elsewhere[0]}


def test_both_rules_together_remove_what_both_name(archive, capsys):
    found = [put(archive, day) for day in range(5)]
    assert planned(archive, capsys, "--keep", "2", "--older-than", "3d", today=5)[0] == set(found[:2])


def test_a_record_that_was_compared_with_stays_while_the_comparison_does(archive, capsys):
    base = put(archive, 0)
    middle = put(archive, 1, details={"against": base})
    assert planned(archive, capsys, "--older-than", "100d")[0] == set()  # the newest stays by itself
    put(archive, 250)
    assert planned(archive, capsys, "--older-than", "100d")[0] == {base, middle}
    new = put(archive, 299, details={"of": middle, "answer": "reproduced"})
    goes, stays = planned(archive, capsys, "--older-than", "100d")
    assert goes == set()
    assert stays == {middle: f"record {new} refers to it", base: f"record {middle} refers to it"}


@pytest.mark.parametrize("word", ["{0}", "--against={0}", "results/m/20260101T000000Z-bench-{1}.json"])
def test_an_id_or_its_beginning_on_a_command_line_is_a_reference(archive, capsys, word):
    base = put(archive, 0)
    put(archive, 299, command={"argv": ["fastrnns.bench", "--against", word.format(base[:6], base)]})
    assert base in planned(archive, capsys, "--older-than", "90d")[1]


def test_ceilings_that_a_profile_was_drawn_with_stay(archive, capsys):
    first, _ = put(archive, 0, kind="ceilings"), put(archive, 1, kind="ceilings")
    put(archive, 299, kind="profile", ceilings={"records": [first]})
    assert planned(archive, capsys, "--older-than", "90d")[0] == set()


def test_a_pair_stays_or_goes_together(archive, capsys):
    base = bench(now=START)
    options = base["options"] | {"pair": base["id"]}
    archive.write(base | {"options": options})
    new = put(archive, 200, options=options)
    put(archive, 299)
    assert planned(archive, capsys, "--older-than", "90d")[0] == {base["id"], new}
    assert planned(archive, capsys, "--older-than", "150d")[0] == set()


def test_the_newest_of_a_kind_on_a_hardware_stays_and_so_a_calibration_for_the_next_command(archive, capsys):
    older, usable = put_calibration(archive, 0), put_calibration(archive, 1)
    empty = put(archive, 2, kind="calibrate")
    goes, stays = planned(archive, capsys, "--older-than", "90d")
    assert goes == {older}
    assert set(stays) == {usable, empty}


def test_a_comparison_of_what_stays_uses_the_calibration_that_it_used_before(archive, capsys):
    small = bench()["problem"] | {"hidden_size": 8}
    for_small = put_calibration(archive, 0, problem=small)
    put_calibration(archive, 1)
    kept = put(archive, 299, problem=small)
    record = archive.load(kept)

    def used():
        return calibration.find((entry.record for entry in archive.list(calibration.KIND)), record).record_id

    assert used() == for_small
    run(archive, "--older-than", "90d", "--yes")
    assert used() == for_small
    capsys.readouterr()
    assert planned(archive, capsys, "--older-than", "90d")[1][for_small] == f"it calibrates record {kept}"


def test_protect_keeps_what_a_person_names(archive, capsys):
    named, _ = put(archive, 0), put(archive, 299)
    assert planned(archive, capsys, "--older-than", "90d", "--protect", named[:8])[1] == {
        named: "it is named by --protect"
    }


def test_the_files_beside_a_record_go_with_it(archive):
    old = put_profile(archive, 0)
    folder = archive.find(old).path.with_suffix("")
    put_profile(archive, 299)
    assert run(archive, "--older-than", "90d", "--yes") == 0
    assert not folder.exists()
    assert checking.check([archive.folder]) == checking.Report(1, ())


def test_files_that_the_record_does_not_name_keep_it(archive, capsys):
    old = put_profile(archive, 0)
    notes = archive.find(old).path.with_suffix("") / "notes.txt"
    notes.write_text("mine")
    put_profile(archive, 299)
    assert "does not name" in planned(archive, capsys, "--older-than", "90d")[1][old]
    assert notes.exists()


def test_a_file_that_cannot_be_read_stops_a_removal_for_what_it_refers_to_is_not_known(archive, capsys):
    old, torn, _ = put(archive, 0), put(archive, 1), put(archive, 299)
    path = archive.find(torn).path
    path.write_bytes(path.read_bytes()[:-9])
    assert command.main(["prune", "--archive", str(archive.folder), "--older-than", "1h", "--yes"]) == 1
    assert "nothing was removed" in capsys.readouterr().err
    assert old in ids(archive)


def test_a_duplicate_and_a_misplaced_record_are_left_for_check(archive, capsys):
    twice, moved, _ = put(archive, 0), put(archive, 1), put(archive, 299)
    path = archive.find(twice).path
    shutil.copy(path, path.with_name(f"20990101T000000Z-bench-{twice}.json"))
    other = archive.folder / "other"
    other.mkdir()
    path = archive.find(moved).path
    path.rename(other / path.name)
    goes, stays = planned(archive, capsys, "--older-than", "90d")
    assert goes == set()
    assert "archive check" in stays[twice]
    assert "foreign to this folder" in stays[moved]


def git(folder, *words):
    told = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    name = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True, env=os.environ | told)


def test_what_git_has_otherwise_than_committed_stays(archive, capsys):
    committed, staged, loose = put_profile(archive, 0), put_profile(archive, 1), put_profile(archive, 2)
    put_profile(archive, 299)
    git(archive.folder.parent, "init", "-q")
    for name in (committed, staged):
        path = archive.find(name).path
        git(archive.folder.parent, "add", str(path), str(path.with_suffix("")))
        if name == committed:
            git(archive.folder.parent, "commit", "-qm", "x")
    goes, stays = planned(archive, capsys, "--older-than", "90d")
    assert goes == {committed, loose}
    assert set(stays) == {staged}
    path = archive.find(committed).path  # the same record in another spelling: whole, and not what git has
    path.write_text(json.dumps(json.loads(path.read_bytes())))
    assert planned(archive, capsys, "--older-than", "90d")[0] == {loose}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "rule is missing"), (["--keep", "0"], "1 or more"), (["--older-than", "soon"], "such as 90d"),
        (["--older-than", "99999999999d"], "such as 90d"), (["--keep", "1", "--protect", "zzz"], "no record"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_and_exit_code_2(archive, capsys, words, said):
    put(archive, 0)
    assert command.main(["prune", "--archive", str(archive.folder), *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1


def test_a_record_that_changed_after_it_was_judged_stays(archive):
    path = archive.find(put(archive, 0)).path
    judged = [removal.Judged(path, "0" * 64)]
    assert list(removal.remove(path.parent, judged)) == [(path, "it was changed after it was judged")]
    assert path.exists()


def test_a_record_written_meanwhile_keeps_what_it_refers_to(archive, capsys, monkeypatch):
    base, _ = put(archive, 0), put(archive, 299)
    judge = prune.retention.judge

    def then_write(*args):
        plan = judge(*args)
        monkeypatch.setattr(prune.retention, "judge", judge)
        put(archive, 299, details={"against": base})
        return plan

    monkeypatch.setattr(prune.retention, "judge", then_write)
    assert run(archive, "--older-than", "90d", "--yes") == 1
    assert "refers to it" in capsys.readouterr().err
    assert base in ids(archive)


def test_the_next_record_takes_the_next_number_and_reads_no_other(archive):
    for day in (0, 1, 299):
        put(archive, day)
    run(archive, "--older-than", "90d", "--yes")
    folder = archive.files()[0].parent
    assert json.loads((folder / naming.COUNTER).read_text()) == [1, 3]
    assert archive.load(put(archive, 300))["sequence"] == 4


def test_what_refers_goes_before_what_it_refers_to(archive, capsys):
    chain = [put(archive, 0)]
    for day in range(1, 8):
        chain.append(put(archive, day, details={"of": chain[-1]}))
    put(archive, 299)
    run(archive, "--older-than", "90d")
    gone = [Path(line).stem[-12:] for line in capsys.readouterr().out.splitlines()]
    assert gone == chain[::-1]


def test_a_removal_waits_for_the_writer_that_holds_the_folder(archive):
    old = archive.find(put(archive, 0)).path
    put(archive, 299)
    with durable.locked(old.parent):
        worker = threading.Thread(target=run, args=(archive, "--older-than", "90d", "--yes"))
        worker.start()
        worker.join(0.5)
        assert worker.is_alive()
        assert old.exists()
    worker.join(30)
    assert not old.exists()


def test_a_writer_at_work_meanwhile_loses_nothing(archive):
    for day in range(40):
        put(archive, day)
    written = []
    worker = threading.Thread(target=lambda: written.extend(put(archive, 290) for _ in range(20)))
    worker.start()
    for _ in range(5):
        assert run(archive, "--older-than", "90d", "--yes") == 0
    worker.join()
    assert set(written) <= ids(archive)
    assert checking.check([archive.folder]).findings == ()
    numbers = [entry.record["sequence"] for entry in archive.list()]
    assert len(set(numbers)) == len(numbers)


def test_killed_at_any_moment_it_leaves_a_whole_archive_and_the_next_one_ends_it(archive):
    chance = random.Random(8)
    code = "import sys; from fastrnns.archive.__main__ import main; sys.exit(main(sys.argv[1:]))"
    words = ["prune", "--archive", str(archive.folder), "--older-than", "1h", "--yes"]
    put_profile(archive, 0)  # so that a removal always leaves one that is the newest
    killed = 0
    for _ in range(6):
        base = put(archive, 0)
        for _ in range(30):
            put_profile(archive, 0, data=b"x" * 1000)
        put(archive, 0, details={"against": base})
        before = ids(archive)
        child = subprocess.Popen(
            [sys.executable, "-c", code, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        child.stdout.readline()  # it has judged, and begins
        time.sleep(chance.random() * 0.15)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        killed += child.returncode == -signal.SIGKILL
        report = checking.check([archive.folder])
        assert not report.bad, report.bad
        after = ids(archive)
        assert after <= before
        for entry in archive.list():
            assert (entry.record.get("details") or {}).get("against", entry.id) in after
    assert killed
    assert run(archive, "--older-than", "1h", "--yes") == 0
    assert checking.check([archive.folder]).findings == ()
    assert not list(archive.folder.glob(f"*/{naming.PRUNED}*"))


@pytest.mark.parametrize("moment", ["renamed", "files gone", "brought back"])
def test_each_moment_of_a_removal_can_be_ended(archive, moment):
    old = archive.find(put_profile(archive, 0)).path
    put_profile(archive, 299)
    folder, tomb = old.with_suffix(""), old.with_name(naming.PRUNED + old.name)
    data = old.read_bytes()
    old.rename(tomb)
    if moment == "files gone":
        (folder / "trace.json").unlink()
    report = checking.check([archive.folder])
    assert [found.cause for found in report.findings] == ["left-aside"]
    if moment == "brought back":
        old.write_bytes(data)
    removal.end_leftovers(archive.folder)
    assert not tomb.exists()
    assert folder.exists() == (moment == "brought back")
    assert checking.check([archive.folder]).findings == ()
