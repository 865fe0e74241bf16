"""Records for tests: whole, small, and of a machine that does not exist."""

from __future__ import annotations

import statistics
from typing import Any

from fastrnns.archive import record

PROBLEM = {"seq_length": 100, "num_layers": 1, "input_size": 512, "hidden_size": 512, "mini_batch": 64}
STEADY = [
    {"name": name, "status": "stable", "current": "set", "wanted": "set", "reason": "", "source": ""}
    for name in ("governor", "turbo", "shield")
]


def phase(*series: list[float], warmup: list[float] | None = None) -> dict[str, Any]:
    """A phase with so many processes."""
    values = sorted(value for one in series for value in one)
    middle = statistics.median(values) if values else None
    return {
        "unit": "ms", "samples": [list(one) for one in series], "warmup": [warmup or [] for _ in series],
        "median": middle, "ci95": None, "mean": middle, "std": None, "min": values[0] if values else None,
        "n": len(values),
    }  # fmt: skip


def result(model: str = "cudnn", **changes: Any) -> dict[str, Any]:
    """A result that went well."""
    found = {
        "model": model, "group": "rnns", "family": "lstm", "dtype": "float32", "status": "ok", "error": None,
        "backend": "ATen", "forward": phase([1.0, 1.1], [1.2, 1.1]), "backward": phase([2.0, 2.1], [2.2, 2.1]),
        "notes": [],
    }  # fmt: skip
    return found | changes


def environment(**changes: Any) -> dict[str, Any]:
    """A machine on which every step is as wanted."""
    shield = {"backend": "cgroup2", "cpus": "2-3", "verified": True}
    return {"before": STEADY, "after": STEADY, "shield": shield, "watch": None, "drift": []} | changes


def fingerprint(hardware: str = "0123456789abcdef", brand: str = "Test CPU 9000") -> dict[str, Any]:
    """A machine by its id."""
    ids = {"hardware": hardware, "software": "aaaaaaaaaaaaaaaa", "state": "bbbbbbbbbbbbbbbb"}
    cpu = {"brand": brand, "brand_source": "kernel"}
    return {"hardware": {"cpu": cpu, "gpus": []}, "software": {}, "state": {}, "ids": ids, "errors": {}}


def bench(*models: str, now: Any = None, **changes: Any) -> dict[str, Any]:
    """A record of a bench as its command would hand it over."""
    found = record.new("bench", ["fastrnns.bench", "--rnns", *models], PROBLEM, {"device": "cpu"}, now=now)
    found |= {
        "duration_s": 1.5,
        "exit_code": 0,
        "results": [result(model) for model in models or ("cudnn",)],
        "environment": environment(),
        "fingerprint": fingerprint(),
    }
    found["verdict"] = record.verdict(found["environment"], found["results"], found["options"])
    return found | changes
