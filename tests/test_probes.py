"""Each probe has a limit, and whatever goes wrong in it becomes a reason."""

import sys
import time
from types import SimpleNamespace

import pytest

from env import probes


def freq(current, low=0.0, high=0.0):
    return SimpleNamespace(current=current, min=low, max=high)


def psutil_with(answer):
    def cpu_freq():
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return SimpleNamespace(cpu_freq=cpu_freq)


@pytest.mark.parametrize(
    "program", ["raise Exception('works only on some CPUs')", "import time; time.sleep(60)"]
)
def test_case_C2_cpuinfo_that_raises_or_hangs_costs_no_more_than_its_limit(program):
    began = time.monotonic()
    said = probes.cpuinfo(limit_s=0.5, argv=[sys.executable, "-c", program])
    assert not said.known
    assert said.reason
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("printed", ["{}", "null", "", "hello", "[1]"])
def test_case_C2_an_empty_answer_is_no_answer(printed):
    said = probes.cpuinfo(argv=[sys.executable, "-c", f"print({printed!r})"])
    assert not said.known
    assert "py-cpuinfo" in said.reason


def test_case_C2_cpuinfo_is_asked_in_a_process_of_its_own(tmp_path):
    said = probes.cpuinfo(
        argv=[sys.executable, "-c", "import json, os; print(json.dumps({'pid': os.getpid()}))"]
    )
    assert said.value["pid"] != probes.os.getpid()


def test_a_probe_that_hangs_is_left_behind():
    said = probes.bounded(lambda: time.sleep(5), limit_s=0.05)
    assert said == probes.Answer(None, "no answer within 0.05 s")


def test_a_probe_that_leaves_the_program_is_only_a_reason():
    assert probes.bounded(sys.exit).reason == "SystemExit"


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        AttributeError("module has no cpu_freq"),
        FileNotFoundError("scaling_cur_freq"),
        RuntimeError("can't get CPU frequency"),
        OSError(5, "Input/output error"),
    ],
)
def test_case_C4_each_failure_of_psutil_is_null_and_a_reason(answer):
    said = probes.cpu_frequency(psutil_with(answer))
    assert not said.known
    assert said.reason


@pytest.mark.parametrize("psutil", [SimpleNamespace(), SimpleNamespace(sensors_temperatures=dict)])
def test_case_C4_missing_sensors_are_null_and_a_reason(psutil):
    assert not probes.temperatures(psutil).known
    assert not probes.cpu_frequency(SimpleNamespace()).known


def test_case_C4_the_warmest_sensor_of_each_chip_is_kept():
    chips = {"coretemp": [SimpleNamespace(current=40.0), SimpleNamespace(current=51.0)], "empty": []}
    said = probes.temperatures(SimpleNamespace(sensors_temperatures=lambda: chips))
    assert said.value == {"coretemp": 51.0}


@pytest.mark.parametrize(
    ("current", "low", "high", "mhz", "normalized"),
    [
        (1.795, 1500.0, 2000.0, 1795.0, True),
        (4.05, 2200.0, 3800.0, 4050.0, True),
        (2400.0, 0.0, 0.0, 2400.0, False),
    ],
)
def test_case_C5_gigahertz_are_put_right_and_marked(current, low, high, mhz, normalized):
    said = probes.cpu_frequency(psutil_with(freq(current, low, high))).value
    assert said["current_mhz"] == mhz
    assert said["normalized"] is normalized


def test_case_C5_zero_stays_unknown_and_nonsense_is_not_scaled():
    assert probes.cpu_frequency(psutil_with(freq(2000.0))).value["min_mhz"] is None
    assert not probes.cpu_frequency(psutil_with(freq(0.001))).known
    assert not probes.cpu_frequency(psutil_with(freq(float("nan")))).known
