"""Partitions as Arrow tables: made from rows, merged with what was there, written as Parquet, read by kind."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fastrnns.archive.index.extract import Rows
from fastrnns.archive.index.layout import (
    BY_KIND,
    COLUMNS,
    COUNT,
    DAMAGED,
    FACT,
    FACTS,
    KINDS,
    NUMBER,
    NUMBERS,
    RECORD,
    RESULT,
    TEXT,
    TEXTS,
    VERSION,
    VERSION_KEY,
    Stamp,
)
from fastrnns.errors import UsageError

Table = Any  # pyarrow.Table: pyarrow is optional
Tables = dict[str, Table]
ROW_GROUP = 250_000  # rows; a reader skips whole groups


def needed(name: str) -> Any:
    """An optional package; raises UsageError with what to install."""
    try:
        return importlib.import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise UsageError(
            f"the index needs {package}, which is not installed; run python -m pip install {package}"
        ) from None


def schema(kind: str | None = None) -> Any:
    """The Arrow schema of one kind of rows, or of the whole file."""
    pa = needed("pyarrow")
    types = {
        TEXT: pa.string(), NUMBER: pa.float64(), COUNT: pa.int64(), TEXTS: pa.list_(pa.string()),
        NUMBERS: pa.list_(pa.float64()), "bool": pa.bool_(), "timestamp[ms]": pa.timestamp("ms"),
    }  # fmt: skip
    columns = COLUMNS if kind is None else BY_KIND[kind]
    fields = [pa.field(name, types[word]) for name, word in columns.items()]
    return pa.schema(fields, metadata={VERSION_KEY: VERSION} if kind is None else None)


def made(rows: Rows) -> Tables:
    """The tables of new rows; raises ArrowException, OverflowError or UnicodeError for what no column can hold."""
    pa = needed("pyarrow")
    found = {}
    for kind, some in rows.by_kind().items():
        columns = []
        for field in schema(kind):
            values = [kind] * len(some) if field.name == "row" else [row.get(field.name) for row in some]
            columns.append(pa.array(values, field.type))
        found[kind] = pa.table(columns, schema=schema(kind))
    return found


def holdable(rows: Rows) -> bool:
    """Whether columns can hold these rows: JSON knows integers and text that Parquet does not."""
    pa = needed("pyarrow")
    try:
        made(rows)
    except (pa.ArrowException, OverflowError, UnicodeError):
        return False
    return True


def merged(old: Tables | None, kept: Collection[str], new: Tables) -> Tables:
    """The partition with the old rows of the files in `kept`, and the new rows; in one order, whoever merges."""
    pa, pc = needed("pyarrow"), needed("pyarrow.compute")
    found = dict(new)
    if old is not None:
        names = pa.array(sorted(kept), pa.string())
        for kind in (RECORD, RESULT, DAMAGED):
            rows = old[kind].filter(pc.is_in(old[kind]["name"], value_set=names))
            found[kind] = pa.concat_tables([rows, new[kind]])
        found[FACT] = pa.concat_tables([old[FACT], new[FACT]])
    return {
        RECORD: found[RECORD].sort_by("name"),
        RESULT: found[RESULT].sort_by(
            [("name", "ascending"), ("place", "ascending"), ("phase", "descending")]
        ),
        FACT: _referenced(found[FACT], found[RECORD]),
        DAMAGED: found[DAMAGED].sort_by("name"),
    }


def _referenced(facts: Table, records: Table) -> Table:
    """The facts that a record names, each once, in the order of their digests."""
    pa = needed("pyarrow")
    wanted = {(kind, digest) for kind in FACTS for digest in records[kind].unique().to_pylist()}
    first: dict[tuple[str, str], int] = {}
    for index, key in enumerate(zip(*(facts[name].to_pylist() for name in ("fact", "digest")), strict=True)):
        if key in wanted:
            first.setdefault(key, index)
    return facts.take(pa.array([first[key] for key in sorted(first)], pa.int64()))


def empty(tables: Tables) -> bool:
    """Whether nothing is left of a partition."""
    return not len(tables[RECORD]) and not len(tables[DAMAGED])


def write(tables: Tables, sink: Any) -> None:
    """Write a partition: each kind in row groups of its own, with the columns of all kinds."""
    pa, pq = needed("pyarrow"), needed("pyarrow.parquet")
    whole = schema()
    with pq.ParquetWriter(sink, whole, compression="zstd") as writer:
        for kind in KINDS:
            table = tables[kind]
            if not len(table):
                continue
            columns = [
                table[field.name] if field.name in BY_KIND[kind] else pa.nulls(len(table), field.type)
                for field in whole
            ]
            writer.write_table(pa.table(columns, schema=whole), row_group_size=ROW_GROUP)


class Part:
    """One partition's file, open for reading by kind and column."""

    def __init__(self, source: Any) -> None:
        """Open it; raises ValueError for a file that is none of ours, or of another version."""
        pa, pq = needed("pyarrow"), needed("pyarrow.parquet")
        try:
            self._file = pq.ParquetFile(source)
        except pa.ArrowInvalid as error:
            raise ValueError(f"not Parquet: {error}") from None
        said = (self._file.schema_arrow.metadata or {}).get(VERSION_KEY, b"")
        if said.decode("ascii", "replace") != VERSION:
            raise ValueError(f"an index of version {said!r}")
        about = self._file.metadata
        self._groups: dict[str, list[int]] = {kind: [] for kind in KINDS}
        for number in range(about.num_row_groups):
            self._groups[about.row_group(number).column(0).statistics.min].append(number)

    def table(self, kind: str, columns: Sequence[str] | None = None) -> Table:
        """The rows of one kind."""
        wanted = list(BY_KIND[kind] if columns is None else columns)
        return self._file.read_row_groups(self._groups[kind], columns=wanted).select(wanted)

    def tables(self) -> Tables:
        """All rows of all kinds."""
        return {kind: self.table(kind) for kind in KINDS}

    def rows(self, kind: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The rows of one kind as tuples in the order of `columns`."""
        table = self.table(kind, columns)
        return zip(*(table[name].to_pylist() for name in columns), strict=True)

    def stamps(self) -> Mapping[str, Stamp]:
        """By which state of its file each row was made."""
        return {
            name: Stamp(size, mtime_ns)
            for kind in (RECORD, DAMAGED)
            for name, size, mtime_ns in self.rows(kind, ("name", "bytes", "mtime_ns"))
        }
