"""The perf step: lowered for a bench, raised for a profile, and put back after either, also after a kill."""

from __future__ import annotations

from pathlib import Path

import pytest
import trees
from machines import snapshot

from env import machine
from env.hold import hold
from env.journal import Journal
from env.perf import RATE

LIMIT = RATE.lstrip("/")


@pytest.fixture
def folder(tmp_path) -> Path:
    made = tmp_path / "machine"
    trees.lay_out(made, "A10_each_its_own")
    (made / LIMIT).parent.mkdir(parents=True, exist_ok=True)
    (made / LIMIT).write_text("63000\n")
    return made


def limit(folder: Path) -> str:
    return (folder / LIMIT).read_text().strip()


def test_it_is_lowered_for_a_bench_and_raised_for_a_profile(folder):
    before = snapshot(folder)
    with hold("apply", root=str(folder)):
        assert limit(folder) == "1"
    assert snapshot(folder) == before
    with hold("apply", root=str(folder), sampling=True) as held:
        assert limit(folder) == "100000"
        assert not any(item["step"] == "perf" for item in held.drift)
    assert snapshot(folder) == before


def test_a_profile_raises_what_setup_lowered_and_lowers_it_again(folder):
    before = snapshot(folder)
    machine.setup(str(folder))
    standing = snapshot(folder)
    assert limit(folder) == "1"
    with hold("apply", root=str(folder), sampling=True):
        assert limit(folder) == "100000"
    assert snapshot(folder) == standing
    machine.put_back(str(folder))
    assert snapshot(folder) == before


def test_a_limit_that_the_kernel_lowered_meanwhile_is_lowered_to_what_it_was(folder):
    machine.setup(str(folder))
    with hold("apply", root=str(folder), sampling=True) as held:
        (folder / LIMIT).write_text("50000\n")
    assert limit(folder) == "1"
    assert not any("not put back" in reason for reason in held.reasons)


def test_a_limit_that_somebody_lowered_below_it_is_left(folder):
    with hold("apply", root=str(folder), sampling=True):
        (folder / LIMIT).write_text("10\n")
    assert limit(folder) == "10"


def test_a_raise_of_a_killed_profile_is_undone_by_the_next_command(folder):
    machine.setup(str(folder))
    standing = snapshot(folder)
    with hold("apply", root=str(folder), sampling=True):
        journal = (folder / "run/fastrnns/hold.jsonl").read_bytes()
    (folder / "run/fastrnns/hold.jsonl").write_bytes(journal)  # as if it had been killed while it held
    (folder / LIMIT).write_text("100000\n")
    assert Journal.load(folder / "run/fastrnns/hold.jsonl").of("perf")[0].data == {"old": 1}
    machine.check(str(folder))
    assert snapshot(folder) == standing


def test_a_machine_without_perf_needs_nothing(folder):
    (folder / LIMIT).unlink()
    with hold("apply", root=str(folder), sampling=True) as held:
        state = next(row for row in held.before if row["name"] == "perf")
    assert state["status"] == "unavailable"
