"""CSV: one row an iteration, times in milliseconds, unknown an empty field."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from fastrnns.archive.export.rows import COLUMNS, rows

NOT_HELD = "summaries and intervals, the environment, the watch, the fingerprint but its id, failed models"


def export(record: Mapping[str, Any]) -> str:
    """Header and rows."""
    return export_all([record])


def export_all(records: Sequence[Mapping[str, Any]]) -> str:
    """One header, and the rows of one record after the other."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for record in records:
        writer.writerows(rows(record))
    return text.getvalue()
