"""Parquet: the rows of csv with their types, and the whole record in the file's metadata, key `fastrnns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastrnns.archive.export.rows import COLUMNS, rows
from fastrnns.archive.strict import canonical
from fastrnns.errors import HarnessError

NOT_HELD = ""  # the record itself lies in the metadata
INTEGERS = {"process": "int32", "iteration": "int32", "started_ns": "int64"}


def export(record: Mapping[str, Any]) -> bytes:
    """The bytes of a Parquet file."""
    return _file(list(rows(record)), {"fastrnns": canonical(dict(record))})


def export_all(records: Sequence[Mapping[str, Any]]) -> bytes:
    """The rows of one record after the other; of several, none lies in the metadata."""
    return _file([row for record in records for row in rows(record)], {})


def _file(found: Sequence[tuple[Any, ...]], metadata: Mapping[str, bytes]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise HarnessError(
            "Parquet needs pyarrow, which is not installed; pip install pyarrow, or use csv"
        ) from None
    types = {"time_ms": pa.float64(), "excluded": pa.bool_()}
    types |= {name: getattr(pa, kind)() for name, kind in INTEGERS.items()}
    columns = list(zip(*found, strict=True)) or [()] * len(COLUMNS)
    fields = [pa.field(name, types.get(name, pa.string())) for name in COLUMNS]
    schema = pa.schema(fields, metadata=metadata)
    table = pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, fields, strict=True)], schema
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return bytes(sink.getvalue().to_pybytes())
