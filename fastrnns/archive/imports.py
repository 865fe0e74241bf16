"""Upstream's --print-json output, or pytest-benchmark's, as records: what it holds, in ms, and what it does not."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from typing import Any

from fastrnns.archive import record as records
from fastrnns.archive.verdict import BACKWARD_SHARE
from fastrnns.errors import UsageError

TO_MS = {"ms": 1.0, "s": 1000.0, "us": 0.001, "ns": 1e-6}
PEP = "Caffe2Observer "
PYTEST = "pytest-benchmark"
BACKWARD = "-backward"
FAMILIES = {"lstm": "rnns", "vl_lstm": "rnns", "gru": "rnns", "rnn": "rnns", "resnet": "cnns"}
Times = dict[tuple[str, str], dict[str, list[float]]]  # (family, model) -> phase -> times


def read(text: str, unit: str, *, name: str = "the file") -> dict[str, Any]:
    """A record of the oss object or the pep lines in `text`, whose times are in `unit`."""
    scale = TO_MS[unit]
    if PEP in text:
        form, times = "pep", _pep(text, name)
    elif (benches := _benchmarks(text)) is not None:
        form, times = PYTEST, _pytest(benches, name)
        if unit != "s":
            raise UsageError(f"{name} is pytest-benchmark's JSON, whose times are seconds; give --unit s")
    else:
        form, times = "oss", _oss(text, name)
    if not times:
        raise UsageError(f"{name} holds no times; give the output of upstream's --print-json oss or pep")
    found = records.new("import", ["python -m fastrnns.archive import"], None, {"form": form, "unit": unit})
    found["results"] = [
        _result(family, model, phases, scale, form) for (family, model), phases in times.items()
    ]
    found["exit_code"] = 0
    found["verdict"] = _verdict(found["results"], form)
    found["notes"] = ["started_at is the time of the import; when it was measured is not known"]
    return found


def _benchmarks(text: str) -> list[Any] | None:
    """The entries of pytest-benchmark's JSON; None for another file."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    entries = found.get("benchmarks") if isinstance(found, dict) else None
    return entries if isinstance(entries, list) and "machine_info" in found else None


def _pytest(benches: list[Any], name: str) -> Times:
    """The rounds of each test of `fastrnns/test_bench.py`, whose extra_info names model, family and phase."""
    times: Times = {}
    for bench in benches:
        try:
            told, data = bench["extra_info"], bench["stats"]["data"]
            family, model, phase = (str(told[key]) for key in ("family", "model", "phase"))
        except (KeyError, TypeError):
            raise UsageError(
                f"{name}: a test names no model, or was saved without its rounds; save it with --benchmark-json"
            ) from None
        for value in data:
            _add(times, family + (BACKWARD if phase == "backward" else ""), model, value, name)
    return times


def _oss(text: str, name: str) -> Times:
    """{group: {model: mean}}, a backward in the group NAME-backward."""
    try:
        groups = json.loads(text)
    except ValueError:
        raise UsageError(
            f"{name} is neither upstream's oss JSON nor its pep lines; check what was saved"
        ) from None
    if not isinstance(groups, dict) or not all(isinstance(models, dict) for models in groups.values()):
        raise UsageError(f"{name} is JSON, but not of the shape group: model: time; check what was saved")
    times: Times = {}
    for group, models in groups.items():
        for model, value in models.items():
            _add(times, group, model, value, name)
    return times


def _pep(text: str, name: str) -> Times:
    """One line an iteration, `Caffe2Observer {"metric": "group-model", "value": "1"}`; others are skipped."""
    times: Times = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith(PEP):
            continue
        try:
            found = json.loads(line.removeprefix(PEP))
            group, _, model = found["metric"].rpartition("-")
            value = float(found["value"])
        except (ValueError, KeyError, TypeError, AttributeError):
            raise UsageError(
                f"{name}, line {number}: not a line of --print-json pep; check what was saved"
            ) from None
        _add(times, group, model, value, name)
    return times


def _add(times: Times, group: str, model: str, value: Any, name: str) -> None:
    phase = "backward" if group.endswith(BACKWARD) else "forward"
    family = group.removesuffix(BACKWARD)
    if value is None:
        value = math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not family or not model:
        raise UsageError(f"{name}: {group} / {model} has no time but {value!r}; check what was saved")
    times.setdefault((family, model), {}).setdefault(phase, []).append(float(value))


def _result(
    family: str, model: str, phases: Mapping[str, list[float]], scale: float, form: str
) -> dict[str, Any]:
    parts = {phase: _phase([value * scale for value in values], form) for phase, values in phases.items()}
    known = parts.get("forward") is not None
    return {
        "model": model,
        "group": FAMILIES.get(family, family),
        "family": family,
        "dtype": None,
        "status": "ok" if known else "failed",
        "error": None if known else "the file holds no forward time of it",
        "backend": None,
        "forward": parts.get("forward"),
        "backward": parts.get("backward") if known else None,
        "notes": [],
    }


def _phase(values: list[float], form: str) -> dict[str, Any] | None:
    """An oss value is a mean of samples that are gone; pep values are the samples themselves."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite:
        return None
    sampled = form != "oss"
    return {
        "unit": "ms",
        "samples": [finite] if sampled else [],
        "warmup": [],
        "median": statistics.median(finite) if sampled else None,
        "ci95": None,
        "mean": statistics.fmean(finite),
        "std": statistics.stdev(finite) if sampled and len(finite) > 1 else None,
        "min": min(finite) if sampled else None,
        "n": len(finite) if sampled else None,
    }


def _verdict(results: list[dict[str, Any]], form: str) -> dict[str, Any]:
    against = []
    for result in results:
        forward, backward = result["forward"], result["backward"]
        if forward and forward["mean"] <= 0:
            against.append(f"{result['model']}: a forward time is not above zero")
        elif forward and backward and backward["mean"] < BACKWARD_SHARE * forward["mean"]:
            against.append(f"{result['model']}: backward not measured ({backward['mean']:.4g} ms)")
    doubts = [
        "imported: the machine, its state, the software, the sizes and the options are not known",
    ]
    if form == PYTEST:
        doubts.append("imported: one process, so what differs from process to process is not known")
    else:
        doubts += [
            "imported: cold caches, because upstream collects garbage between iterations",
            "imported: the unit is what the importer said it is; upstream prints seconds as ms on a CPU",
        ]
    if form == "oss":
        doubts.append("imported: only means, so there are no samples and no intervals")
    return {"status": "invalid" if against else "tainted", "reasons": [*against, *doubts]}
