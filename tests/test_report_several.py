"""The reports of two records and of a history: verdicts, steps, and what may not be compared."""

from __future__ import annotations

import copy
import random
from datetime import datetime, timezone
from typing import Any

import pytest

from fastrnns.archive import __main__ as archive
from fastrnns.archive import compare
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError
from fastrnns.report import command, comparison, history, page
from tests import records
from tests.test_report import HOSTILE, table, texts


@pytest.fixture(autouse=True)
def _no_cache_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))


def measured(
    scale: float, day: int, *, seed: int = 1, torch: str = "2.11.0", **changes: Any
) -> dict[str, Any]:
    """A record of one day: cudnn at its usual speed, jit at `scale` of it, six processes each."""
    rng = random.Random(seed)
    times = [[rng.gauss(1, 0.001) for _ in range(20)] for _ in range(6)]
    found = records.bench(now=datetime(2026, 11, day, tzinfo=timezone.utc))
    slow = [[value * scale for value in one] for one in times]
    found["results"] = [
        records.result("cudnn", forward=records.phase(*times), backward=None),
        records.result("jit", forward=records.phase(*slow), backward=None),
    ]
    found["fingerprint"] = copy.deepcopy(found["fingerprint"])
    found["fingerprint"]["software"] = {"torch": {"version": torch}}
    return found | changes


def compared(base: dict[str, Any], new: dict[str, Any]) -> page.Page:
    return comparison.page(compare.compare(base, new), base, new)


def test_a_comparison_begins_with_its_worst_verdict_and_shows_each_in_its_row():
    made = compared(measured(1.0, 1), measured(1.2, 2, seed=2))
    assert made.status == "slower"
    rows = {row["model"]: row for row in texts(table(made, "verdicts"))}
    assert rows["jit"]["verdict"] == "slower"
    assert float(rows["jit"]["ratio"]) == pytest.approx(1.2, abs=0.005)
    assert rows["cudnn"]["verdict"] == "same"


def test_records_of_two_machines_are_shown_and_not_compared():
    other = measured(1.0, 2, fingerprint=records.fingerprint("fedcba9876543210", "Other CPU"))
    made = compared(measured(1.0, 1), other)
    assert made.status == "not-comparable"
    assert "hardware" in " ".join(made.reasons)
    assert {row["hardware id"] for row in texts(table(made, "records"))} == {
        "0123456789abcdef",
        "fedcba9876543210",
    }


def test_a_comparison_names_the_software_and_the_steps_that_differ():
    calm = records.environment(before=[{**records.STEADY[0], "current": "other"}, *records.STEADY[1:]])
    made = compared(measured(1.0, 1), measured(1.0, 2, torch="2.12.0", environment=calm))
    assert texts(table(made, "software")) == [{"fact": "torch.version", "base": "2.11.0", "new": "2.12.0"}]
    marked = [row["step"] for row in texts(table(made, "steps")) if row["verdict"] == "differs"]
    assert marked == ["governor"]


def test_many_reasons_against_a_record_are_counted_above_and_written_out_below():
    doubt = {"status": "tainted", "reasons": ["first doubt", "second doubt"]}
    made = compared(measured(1.0, 1, verdict=doubt), measured(1.0, 2))
    assert "base is tainted, for 2 reasons: see the two records" in made.reasons
    assert texts(table(made, "records"))[0]["reasons"] == "first doubt; second doubt"


def test_a_history_shows_the_step_its_size_and_the_software_that_changed():
    days = [measured(1.0, day, seed=day) for day in range(1, 9)]
    days += [measured(1.3, day, seed=day, torch="2.12.0") for day in range(9, 17)]
    made = history.page(days)
    assert made.status == "1 step"
    (row,) = texts(table(made, "steps"))
    assert (row["model"], row["verdict"]) == ("jit", "slower")
    assert float(row["ratio"]) == pytest.approx(1.3, abs=0.005)
    assert "torch.version (2.11.0 / 2.12.0)" in row["what changed"]
    assert (row["last before"], row["first after"]) == (days[7]["id"], days[8]["id"])


def test_a_history_leaves_invalid_records_out_and_says_which():
    bad = measured(5.0, 3, verdict={"status": "invalid", "reasons": ["spoilt"]})
    made = history.page([measured(1.0, 1), bad, measured(1.0, 4)])
    assert made.status == "no steps"
    assert f"record {bad['id']} is invalid, and left out: spoilt" in made.reasons
    assert {row["records"] for row in texts(table(made, "series"))} == {"2"}


def test_hostile_strings_stay_text_in_both():
    bad = measured(1.0, 1, torch=HOSTILE)
    bad["results"][0]["model"] = HOSTILE
    made = [compared(bad, measured(1.0, 2)), history.page([bad, bad])]
    for each in map(page.html, made):
        assert "<img" not in each
        assert each.count("</script>") == 1


def test_the_number_of_records_decides_what_is_shown(tmp_path):
    kept = Archive(tmp_path)
    entries = [kept.find(kept.write(measured(1.0, day, seed=day))) for day in (3, 2, 1)]
    assert command.layout(entries[:1], kept).title.startswith("bench")
    assert " against " in command.layout(entries[:2], kept).title
    assert command.layout(entries, kept).title.startswith("History")
    assert (
        texts(table(command.layout(entries[:1], kept, whole=True), "records"))[0]["record"] == entries[0].id
    )


def test_a_history_is_of_one_machine_and_of_an_archive_that_holds_it(tmp_path):
    kept = Archive(tmp_path)
    entries = [kept.find(kept.write(measured(1.0, day, seed=day))) for day in (1, 2)]
    with pytest.raises(UsageError, match="name one of its records"):
        command.layout(entries, kept, whole=True)
    with pytest.raises(UsageError, match="--archive"):
        command.layout(entries[:1], Archive(tmp_path / "elsewhere"), whole=True)


def test_the_command_writes_a_comparison_and_a_history(tmp_path, capsys):
    kept = Archive(tmp_path / "archive")
    paths = [str(kept.write(measured(1.0, day, seed=day))) for day in (1, 2)]
    both, whole = tmp_path / "both.html", tmp_path / "whole.html"
    assert archive.main(["report", *paths, "--archive", str(kept.folder), "--output", str(both)]) == 0
    line = ["report", "--history", paths[0], "--archive", str(kept.folder), "--output", str(whole)]
    assert archive.main(line) == 0
    assert capsys.readouterr().out.split() == [str(both), str(whole)]
    assert "Verdicts" in both.read_text(encoding="utf-8")
    assert "Steps" in whole.read_text(encoding="utf-8")
