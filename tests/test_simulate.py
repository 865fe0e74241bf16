"""Known truth in, verdicts out: the statistics keep their promises on simulated series (a reduced simulate.py)."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PAIRS = 300


@pytest.fixture(scope="module")
def simulate():
    path = Path(__file__).parent / "benchmarks" / "simulate.py"
    spec = importlib.util.spec_from_file_location("simulate", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["simulate"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["simulate"]


@pytest.mark.parametrize("name", ["quiet", "heavy tails", "bimodal processes", "autocorrelated", "spikes"])
def test_false_alarms_are_rare_and_intervals_cover(simulate, name):
    figures = simulate.simulate(name, PAIRS, processes=10)
    assert figures.false_alarms <= 0.02  # 1 % and the chance of 300 pairs; simulate.py itself runs 2,000
    assert 0.91 <= figures.coverage <= 0.99
    assert figures.power["10%"] > 0.95


def test_pooled_iterations_would_cry_wolf(simulate):
    assert simulate.simulate("autocorrelated", 100, processes=10).naive_false_alarms > 0.3
