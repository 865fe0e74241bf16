"""Calibration: what a machine shows against itself is found, kept by hardware, and honest about its size."""

from __future__ import annotations

import math
import random

import pytest
from records import bench, phase, result

from fastrnns import calibrate
from fastrnns.archive import calibration, selfcheck
from fastrnns.errors import UsageError


def logs(processes, process=0.01, run=0.0, seed=1):
    rng = random.Random(seed)
    found = []
    for index in range(processes):
        if index % calibration.BLOCK == 0:
            level = rng.gauss(0, run)
        found.append(level + rng.gauss(0, process))
    return found


def test_the_noise_of_processes_and_of_runs_is_told_apart():
    quiet = calibration.noise(logs(1000))
    assert quiet.deviation == pytest.approx(0.01, rel=0.1)
    assert quiet.run_deviation < 0.003
    moody = calibration.noise(logs(1000, run=0.02))
    assert moody.deviation == pytest.approx(0.01, rel=0.1)
    assert moody.run_deviation == pytest.approx(0.02, rel=0.2)


def test_the_floor_covers_99_of_100_differences_of_the_machine_from_itself():
    floor = calibration.noise(logs(1000, run=0.02)).floor(5, 5)
    rng = random.Random(8)
    spread = math.sqrt(2 * (0.02**2 + 0.01**2 / 5))
    beyond = sum(abs(rng.gauss(0, spread)) > math.log1p(floor) for _ in range(20_000)) / 20_000
    assert beyond <= 0.013


def test_more_processes_lower_the_floor_and_differences_of_runs_stay_in_it():
    quiet, moody = calibration.noise(logs(100)), calibration.noise(logs(100, run=0.03))
    assert quiet.floor(20, 20) < quiet.floor(5, 5) < quiet.floor(1, 1)
    assert moody.floor(1000, 1000) > 0.02
    assert moody.floor(20, 20, paired=True) < moody.floor(20, 20)


def test_a_component_known_from_two_runs_does_not_blow_the_floor_up():
    floors = [calibration.noise(logs(10, seed=seed)).floor(5, 5) for seed in range(20)]
    assert max(floors) < 0.5
    assert sorted(floors)[10] < 0.05


def test_too_few_processes_make_no_floor():
    assert calibration.noise(logs(calibration.MIN_CALIBRATION - 1)) is None
    with pytest.raises(UsageError, match="at least 10"):
        calibrate.options_of([], calibrate.parser().parse_args(["--processes", "4"]))


def test_false_alarms_are_counted_at_each_margin():
    values = logs(20, 0.02, run=0.03)
    found = selfcheck.false_alarms(values, 5, calibration.noise(values))
    assert [alarm.margin for alarm in found] == list(selfcheck.MARGINS)
    assert all(alarm.with_floor <= alarm.apart for alarm in found)
    assert found[-1].apart <= found[0].apart
    assert selfcheck.false_alarms(values[:6], 5, None)[0].apart is None


def test_the_report_names_each_model_and_phase():
    rng = random.Random(2)
    samples = [[10 * math.exp(rng.gauss(0, 0.01))] * 3 for _ in range(20)]
    record = bench("cudnn", results=[result(forward=phase(*samples), backward=phase(*samples))])
    record["kind"] = calibration.KIND
    entries = calibrate.report(record)
    assert [(entry["model"], entry["phase"]) for entry in entries] == [
        ("cudnn", "forward"),
        ("cudnn", "backward"),
    ]
    assert "cudnn" in calibrate.text(entries)
    assert calibrate.report(bench("cudnn")) == []


def test_an_unknown_model_gets_the_floor_of_the_noisiest_known_one():
    rng = random.Random(2)
    results = [
        result(name, forward=phase(*[[math.exp(rng.gauss(0, spread))] * 3 for _ in range(20)]), backward=None)
        for name, spread in (("cudnn", 0.001), ("jit", 0.02))
    ]
    known = calibration.from_record({"kind": "calibrate", "id": "x", "results": results})
    assert known.noise("py", "forward") == known.by_phase["jit", "forward"]
    assert known.noise("py", "backward") is None
