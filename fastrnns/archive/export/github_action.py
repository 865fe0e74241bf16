"""github-action-benchmark's customSmallerIsBetter: the median in milliseconds and half its interval."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastrnns.archive.export.series import facts, series_of

NOT_HELD = "samples, warm-up, the environment, failed models; an interval is given by half its width only"


def export(record: Mapping[str, Any]) -> str:
    """One entry a model and phase."""
    extra = "\n".join(f"{key}: {value}" for key, value in facts(record).items())
    found = []
    for series in series_of(record, sampled=False):
        value = series.summary["median"]
        if value is None:
            continue
        entry = {"name": series.name, "unit": "ms", "value": value, "extra": extra}
        low, high = series.summary["ci95"] or (None, None)
        if low is not None and high is not None:
            entry["range"] = f"{(high - low) / 2:.4g}"
        found.append(entry)
    return json.dumps(found, indent=1)
