"""Bencher Metric Format: latency in nanoseconds, the median with its interval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastrnns.archive.export.series import NANOSECONDS_A_MS, series_of

NOT_HELD = (
    "samples, warm-up, the environment, the fingerprint, the verdict, failed models; one median is left"
)


def export(record: Mapping[str, Any]) -> str:
    """One metric a model and phase."""
    found = {}
    for series in series_of(record, sampled=False):
        value = series.summary["median"]
        if value is None:
            continue
        low, high = series.summary["ci95"] or (None, None)
        metric = {"value": value, "lower_value": low, "upper_value": high}
        found[series.name] = {
            "latency": {key: item * NANOSECONDS_A_MS for key, item in metric.items() if item is not None},
        }
    return json.dumps(found, indent=1)
