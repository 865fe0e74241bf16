"""PyTorch's benchmark database, schema v3: a record a model and phase, values are process medians."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from fastrnns.archive.export.series import facts, series_of

NOT_HELD = (
    "single iterations (a value is the median of a process, in 32 bits), warm-up, the environment, the watch,"
    " failed models; repository, branch, job and runners are added by the workflow that uploads it"
)


def export(record: Mapping[str, Any]) -> str:
    """A list of records."""
    extra = facts(record)  # a map of strings to strings
    found = [
        {
            "benchmark": {
                "name": "fastrnns",
                "mode": series.phase,
                "dtype": series.dtype or "",
                "extra_info": {**extra, "device": str(record["options"].get("device"))},
            },
            "model": {
                "name": series.model,
                "type": series.group,
                "backend": series.backend or "",
                "origins": ["pytorch"],
            },
            "metric": {
                "name": f"{series.phase}_ms",
                "benchmark_values": series.medians,
                "extra_info": {
                    "unit": "ms",
                    "processes": str(len(series.medians)),
                    "smaller_is_better": "true",
                },
            },
        }
        for series in series_of(record)
    ]
    return json.dumps(found, indent=1)
