"""CSV: one row an iteration, times in milliseconds, unknown an empty field."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

from fastrnns.archive.export.rows import COLUMNS, rows

NOT_HELD = "summaries and intervals, the environment, the watch, the fingerprint but its id, failed models"


def export(record: Mapping[str, Any]) -> str:
    """Header and rows."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(rows(record))
    return text.getvalue()
