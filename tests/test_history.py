"""History: steps are found where they are, with what changed there; noise alone makes none."""

from __future__ import annotations

import random

from records import bench, fingerprint, phase, result

from fastrnns.archive import __main__ as archive_command
from fastrnns.archive import history, store


def records(levels, torch=None, seed=1, spread=0.003):
    rng = random.Random(seed)
    found = []
    for index, level in enumerate(levels):
        times = [[level * (1 + rng.gauss(0, spread))] * 3 for _ in range(5)]
        machine = fingerprint()
        machine["software"] = {"torch": {"version": torch[index]}} if torch else {}
        found.append(
            bench("cudnn", results=[result(forward=phase(*times), backward=None)], fingerprint=machine)
        )
    return found


def test_a_step_is_found_with_the_software_that_changed_there():
    torch = ["2.11"] * 6 + ["2.12"] * 6
    (series,) = history.history(records([10.0] * 6 + [10.8] * 6, torch), "cudnn")
    (step,) = series.steps
    assert abs(step.ratio - 1.08) < 0.01
    assert str(step.software[0]) == "torch.version (2.11 / 2.12)"
    assert "% slower" in history.text([series])


def test_noise_alone_makes_no_step():
    for seed in range(20):
        (series,) = history.history(records([10.0] * 15, seed=seed), "cudnn")
        assert series.steps == ()


def test_records_that_may_not_be_compared_stand_in_different_series():
    here, there = records([10.0] * 4), records([20.0] * 4)
    for record in there:
        record["fingerprint"] = fingerprint("f" * 16, "Other CPU")
    found = history.history([*here, *there], "cudnn")
    assert [len(series.points) for series in found] == [4, 4]
    assert history.history(here, "jit") == []


def test_the_command_prints_it(tmp_path, capsys):
    archive = store.Archive(tmp_path)
    for record in records([10.0] * 4 + [12.0] * 4):
        archive.write(record)
    assert archive_command.main(["history", "cudnn", "--archive", str(tmp_path)]) == 0
    assert "1 steps" in capsys.readouterr().out
    assert archive_command.main(["history", "nothing", "--archive", str(tmp_path)]) == 2
