"""Records in the formats of other tools: one small module each, units right, and nothing invented.

A format's module has `NOT_HELD` (what of a record the format has no place for) and
`export(record) -> str | bytes`; those of TABLES also `export_all(records)`. A new format is such a module and
a row of FORMATS.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastrnns.errors import UsageError

FORMATS = {
    "pyperf": "pyperf_suite",
    "pytest-benchmark": "pytest_benchmark",
    "asv": "asv_results",
    "google-benchmark": "google_benchmark",
    "bmf": "bmf",
    "github-action": "github_action",
    "pytorch-v3": "pytorch_v3",
    "csv": "csv_rows",
    "parquet": "parquet",
}
TABLES = ("csv", "parquet")  # formats of rows, which hold any number of records


@dataclass(frozen=True)
class Exported:
    """What goes to stdout, and the sentences about what could not go along."""

    data: str | bytes
    remarks: tuple[str, ...]


def export(record: Mapping[str, Any], form: str) -> Exported:
    """The record in the named format."""
    if form not in FORMATS:
        raise UsageError(f"there is no export format {form!r}; there are {', '.join(FORMATS)}")
    if not measured(record):
        raise UsageError(
            f"record {record['id']} ({record['kind']}) holds no times to export; name a bench record"
        )
    module = importlib.import_module(f"fastrnns.archive.export.{FORMATS[form]}")
    return Exported(module.export(record), tuple(_remarks(record, form, module.NOT_HELD)))


def measured(record: Mapping[str, Any]) -> bool:
    """Whether a record holds times."""
    return any(result["status"] == "ok" and result["forward"] for result in record["results"])


def export_all(records: Sequence[Mapping[str, Any]], form: str) -> Exported:
    """One record in any format, or several in one of TABLES; those without times are counted and left out."""
    timed = [record for record in records if measured(record)]
    if len(records) == 1 or not timed:
        return export(records[0], form)
    module = importlib.import_module(f"fastrnns.archive.export.{FORMATS[form]}")
    doubtful = sum(record["verdict"]["status"] != "valid" for record in timed)
    failed = sum(result["status"] != "ok" for record in timed for result in record["results"])
    said = [f"{form} has no place for {module.NOT_HELD}"] if module.NOT_HELD else []
    said += [f"{doubtful} of the {len(timed)} records are not valid"] if doubtful else []
    said += [f"{failed} results that failed are not in it"] if failed else []
    said += [f"{len(records) - len(timed)} records hold no times"] if len(timed) < len(records) else []
    return Exported(module.export_all(timed), tuple(said))


def _remarks(record: Mapping[str, Any], form: str, not_held: str) -> list[str]:
    said = [f"{form} has no place for {not_held}"] if not_held else []
    verdict = record["verdict"]
    if verdict["status"] != "valid":
        said.append(f"the record is {verdict['status']}: {'; '.join(verdict['reasons'])}")
    for result in record["results"]:
        if result["status"] != "ok":
            said.append(f"{result['model']} is not in it: {result['status']} ({result['error']})")
        elif not any(series for series in (result["forward"] or {}).get("samples") or []):
            said.append(f"{result['model']} has no samples, only a mean; formats of samples leave it out")
    return said
