"""`bench --against` and `--ab`: refused before anything runs, measured in turn, judged as compare judges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import records

from fastrnns import environments
from fastrnns.archive import compare
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError

ROOT = Path(__file__).parent.parent
TINY = ["--rnns", "cudnn", "--seqLength", "3", "--inputSize", "8", "--hiddenSize", "8", "--miniBatch", "2"]
QUICK = [*TINY, "--device", "cpu", "--env", "ignore", "--warmup", "2", "--nloops", "8", "--processes", "5"]


def bench(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastrnns.bench", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def python(folder: Path, name: str, body: str) -> str:
    """A stand-in for an interpreter."""
    path = folder / name / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """One real A/B of this very environment under two names."""
    folder = tmp_path_factory.mktemp("ab")
    other = python(folder, "other", f'exec {sys.executable} "$@"')
    done = bench(
        *QUICK, "--archive", str(folder / "archive"), "--ab", sys.executable, str(Path(other).parents[1])
    )
    assert done.returncode in {0, 1}, done.stderr
    return done, [entry.record for entry in Archive(folder / "archive").list()]


def test_two_environments_are_measured_in_turn_and_their_records_name_each_other(pair):
    done, (base, new) = pair
    assert base["options"]["pair"] == new["options"]["pair"] == base["id"]
    assert (base["options"]["side"], new["options"]["side"]) == ("base", "new")
    assert f"{new['id']} against {base['id']}: " in done.stderr
    assert "verdict" in done.stdout
    starts = sorted(
        (series[0], side["options"]["side"])
        for side in (base, new)
        for series in side["results"][0]["started_ns"]
    )
    order = "".join(side[0] for _, side in starts)
    assert order == "bn" + "nb" + "bn" + "nb" + "bn"


def test_the_pair_is_judged_process_by_process_and_each_side_says_what_it_ran(pair):
    _, (base, new) = pair
    judged = compare.compare(base, new)
    assert not judged.refusals
    assert all(row.processes == (5, 5) for row in judged.rows)
    for side in (base, new):
        assert side["fingerprint"]["software"]["torch"]["version"] == side["options"]["torch"]
        assert side["fingerprint"]["software"]["packages"]["torch"]


def test_a_record_is_judged_against_and_what_could_not_be_compared_is_refused_before_it_is_measured(tmp_path):
    first = bench(*QUICK, "--archive", str(tmp_path))
    assert first.returncode == 0, first.stderr
    again = bench(*QUICK, "--archive", str(tmp_path), "--against", "latest")
    assert "verdict" in again.stdout.splitlines()[-3] or "margin" in again.stdout
    assert again.returncode in {0, 1}, again.stderr
    base, new = (entry.record for entry in Archive(tmp_path).list())
    assert f"{new['id']} against {base['id']}: " in again.stderr
    assert new["details"] == {"against": base["id"]}
    for words, said in (
        (["--hiddenSize", "9"], "problem.hidden_size (8 / 9)"),
        (["--cache", "cold"], "cache (warm / cold)"),
        (["--fuser", "none"], "fuser (te / none)"),
    ):
        refused = bench(*QUICK, *words, "--archive", str(tmp_path), "--against", base["id"])
        assert refused.returncode == 3
        assert said in refused.stderr
        assert "Traceback" not in refused.stderr
    assert len(Archive(tmp_path).list()) == 2


def test_case_E4_a_record_of_another_machine_is_refused_before_anything_is_measured(tmp_path):
    Archive(tmp_path).write(records.bench("cudnn"))
    before = sorted(tmp_path.glob("*/*.json"))
    done = bench(*QUICK, "--archive", str(tmp_path), "--against", "latest")
    assert done.returncode == 3
    assert "hardware" in done.stderr
    assert "process 1" not in done.stderr  # none was started
    assert sorted(tmp_path.glob("*/*.json")) == before


def test_a_record_that_is_not_there_is_refused(tmp_path):
    done = bench(*QUICK, "--archive", str(tmp_path), "--against", "feedbeef")
    assert done.returncode in {1, 2, 3}
    assert "feedbeef" in done.stderr
    assert not list(tmp_path.glob("*/*.json"))


def test_an_environment_is_its_folder_or_its_interpreter_and_links_are_kept(tmp_path):
    path = python(tmp_path, "env", "exit 0")
    (tmp_path / "link").symlink_to(tmp_path / "env")
    assert environments.interpreter(str(tmp_path / "env")) == path
    assert environments.interpreter(path) == path
    assert environments.interpreter(str(tmp_path / "link")) == str(tmp_path / "link/bin/python")
    for wrong in (tmp_path / "none", tmp_path, __file__):
        with pytest.raises(UsageError, match="there is no Python there; give an interpreter, or a folder"):
            environments.interpreter(str(wrong))


def test_what_cannot_import_torch_is_refused_with_its_own_last_words(tmp_path):
    good = python(
        tmp_path,
        "good",
        "echo noise; echo '"
        + json.dumps({"torch": "2.14.1", "python": {"version": "3.11"}, "packages": {}})
        + "'",
    )
    bad = python(tmp_path, "bad", "echo 'libcudart.so: cannot open' >&2; exit 1")
    with pytest.raises(
        UsageError, match=r"cannot import torch \(libcudart.so: cannot open\); install torch there"
    ):
        environments.ask([good, bad])
    assert str(environments.ask([good])[0]) == "torch 2.14.1 on Python 3.11"


def test_a_hanging_interpreter_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(environments, "IMPORT_SECONDS", 0.3)
    slow = python(tmp_path, "slow", "exec sleep 30")
    with pytest.raises(UsageError, match="took more than"):
        environments.ask([slow])


def test_ab_and_against_exclude_each_other():
    done = bench("--ab", "a", "b", "--against", "latest")
    assert done.returncode == 2
    assert "not allowed with" in done.stderr
