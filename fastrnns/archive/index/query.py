"""Questions in SQL, answered by DuckDB from the index: it reads the index and nothing else, and changes nothing."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from fastrnns.archive.index import tables
from fastrnns.archive.index.places import PARTITIONS, Place, Remote
from fastrnns.archive.index.views import VIEWS
from fastrnns.archive.listing import plain
from fastrnns.archive.strict import strict
from fastrnns.errors import UsageError

BATCH = 10_000  # rows that are fetched at once
SHOWN = "docs/archive_at_scale.md names the tables and their columns"


@dataclass(frozen=True)
class Answer:
    """The rows that a query selected, fetched as they are taken."""

    columns: tuple[str, ...]
    batches: Iterator[list[tuple[Any, ...]]]

    @property
    def rows(self) -> Iterator[tuple[Any, ...]]:
        """One row after the other."""
        return (row for batch in self.batches for row in batch)


@contextlib.contextmanager
def ask(place: Place, sql: str, parameters: Sequence[Any] = ()) -> Iterator[Answer]:
    """Run one SELECT; raises UsageError, in one sentence, for SQL that is none or that names what is not there."""
    duckdb = tables.needed("duckdb")
    tables.needed("pyarrow")
    if not place.present():
        raise UsageError(f"there is no index at {place.where}; make it with python -m fastrnns.archive index")
    with tempfile.TemporaryDirectory(prefix="fastrnns-query-") as spill:
        connection = duckdb.connect(config={"temp_directory": spill})
        try:
            _prepare(connection, place)
            _only_select(duckdb, sql)
            found = connection.execute(sql, list(parameters))
            columns = tuple(str(each[0]) for each in found.description)
            yield Answer(columns, iter(lambda: found.fetchmany(BATCH), []))
        except duckdb.InterruptException:
            raise KeyboardInterrupt from None
        except duckdb.Error as error:
            raise UsageError(f"the query cannot be answered: {_sentence(str(error))}; {SHOWN}") from None
        finally:
            connection.close()


def _prepare(connection: Any, place: Place) -> None:
    """Make the views, and then let the connection reach nothing but the index."""
    if isinstance(place, Remote):
        connection.register_filesystem(place.files)
        root = str(place.files.unstrip_protocol(place.root))
    else:
        root = str(Path(place.where).resolve())
    root = root.replace("'", "''")
    literally = re.sub(r"([][*?])", r"[\1]", root)  # as a pattern that matches this folder only
    if place.partitions():
        source = f"SELECT * FROM read_parquet('{literally}/{PARTITIONS}', hive_partitioning = false)"
    else:
        connection.register("nothing", tables.schema().empty_table())
        source = "SELECT * FROM nothing"
    connection.execute(f"CREATE VIEW indexed AS {source}")
    for name, text in VIEWS.items():
        connection.execute(f"CREATE VIEW {name} AS {text}")
    connection.execute(f"SET allowed_directories = ['{root}/', '{literally}/']")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _only_select(duckdb: Any, sql: str) -> None:
    statements = duckdb.extract_statements(sql)
    reading = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
    if len(statements) != 1 or statements[0].type not in reading:
        raise UsageError(
            "a query is one SELECT, for the index is made from the files alone; ask one thing at a time"
        )


def _sentence(text: str) -> str:
    """DuckDB's message without its drawing of the place."""
    lines = [line.strip() for line in text.partition("\n\nLINE ")[0].splitlines()]
    return " ".join(line for line in lines if line).rstrip(".;")


def identities(place: Place, sql: str) -> list[str]:
    """The ids of the records that a query selects, by its column `id`, each once and in its order."""
    with ask(place, sql) as answer:
        if "id" not in answer.columns:
            raise UsageError(
                f"the query selects {', '.join(answer.columns)}; to name records it must select their id"
            )
        position = answer.columns.index("id")
        return list(dict.fromkeys(str(row[position]) for row in answer.rows if row[position] is not None))


def files(place: Place, ids: Sequence[str]) -> dict[str, str]:
    """Where each of so many records lies, below the archive's folder."""
    found: dict[str, str] = {}
    sql = "SELECT id, file FROM records WHERE id IN (SELECT unnest($1)) ORDER BY file DESC"
    with ask(place, sql, [list(ids)]) as answer:
        found.update(answer.rows)
    return found


def text(answer: Answer, form: str) -> Iterator[str]:
    """The answer in pieces of text: `table` for people, `csv`, or `json` with one object a line."""
    if form == "table":
        yield _table(answer)
        return
    sink = io.StringIO()
    if form == "csv":
        csv.writer(sink, lineterminator="\n").writerow(answer.columns)
    for batch in answer.batches:
        if form == "csv":
            csv.writer(sink, lineterminator="\n").writerows(
                [[_plain_cell(cell) for cell in row] for row in batch]
            )
        else:
            for row in batch:
                named = dict(zip(answer.columns, row, strict=True))
                sink.write(json.dumps(strict(named), allow_nan=False) + "\n")
        yield sink.getvalue()
        sink.seek(0)
        sink.truncate()
    yield sink.getvalue()


def _plain_cell(cell: Any) -> Any:
    return json.dumps(strict(cell)) if isinstance(cell, (list, dict)) else cell


def _table(answer: Answer) -> str:
    rows = [list(answer.columns), *([_shown(cell) for cell in row] for row in answer.rows)]
    numeric = [all(_is_number(row[index]) for row in rows[1:]) for index in range(len(answer.columns))]
    widths = [max(len(row[index]) for row in rows) for index in range(len(answer.columns))]
    lines = [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _shown(cell: Any) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, (float, Decimal)):
        return f"{float(cell):.6g}"
    shown = ", ".join(map(_shown, cell)) if isinstance(cell, list) else str(cell)
    return plain(shown.replace("\n", " "))


def _is_number(shown: str) -> bool:
    if shown == "-":
        return True
    try:
        return math.isfinite(float(shown))
    except ValueError:
        return False
