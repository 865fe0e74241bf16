"""`python -m fastrnns.archive export`: records read, converted, and put on stdout or into files."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fastrnns.archive import export, naming, store
from fastrnns.archive.export import asv_results
from fastrnns.errors import UsageError


def run(args: argparse.Namespace) -> int:
    """Print a record, or the records that a query selects, in another tool's format; the rest on stderr."""
    found = _selected(args)
    if len(found) > 1 and args.format not in export.TABLES:
        return _one_by_one(args, found)
    made = export.export_all(found, args.format)
    _say(made.remarks)
    data = made.data.encode() if isinstance(made.data, str) else made.data
    if args.output is not None:
        target = Path(args.output)
        _write({target: data} if args.format != "asv" else _trees(found, target), target)
        return 0
    if isinstance(made.data, bytes) and sys.stdout.isatty():
        raise UsageError(f"{args.format} is not text; send it to a file with --output FILE or >")
    sys.stdout.flush()
    sys.stdout.buffer.write(data if data.endswith(b"\n") or isinstance(made.data, bytes) else data + b"\n")
    sys.stdout.buffer.flush()
    return 0


def _selected(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.query is None:
        return [store.Archive(args.archive).load(args.ref or "latest")]
    if args.ref is not None:
        raise UsageError(f"both {args.ref} and --query name records; give one of them")
    from fastrnns.archive.index import command

    return [entry.record for entry in command.entries(args)]


def _one_by_one(args: argparse.Namespace, found: Sequence[Mapping[str, Any]]) -> int:
    """Several records in a format that holds one: a file each, or asv's own tree of files."""
    if args.output is None:
        raise UsageError(
            f"{args.format} holds one record and the query selects {len(found)}; give --output FOLDER, or use"
            f" {' or '.join(export.TABLES)}"
        )
    target = Path(args.output)
    files: dict[Path, bytes] = {}
    said: dict[str, None] = {}
    timed = [record for record in found if export.measured(record)]
    for record in timed:
        made = export.export(record, args.format)
        said |= dict.fromkeys(made.remarks)
        data = made.data.encode() if isinstance(made.data, str) else made.data
        files[target / naming.file_name(record)] = data
    if len(timed) < len(found):
        said[f"{len(found) - len(timed)} of the {len(found)} records hold no times"] = None
    _say(said)
    _write(files if args.format != "asv" else _trees(timed, target), target)
    return 0


def _trees(found: Sequence[Mapping[str, Any]], target: Path) -> dict[Path, bytes]:
    return {target / name: text.encode() for name, text in asv_results.trees(found).items()}


def _say(remarks: Any) -> None:
    for remark in remarks:
        print(f"archive: {remark}", file=sys.stderr)


def _write(files: Mapping[Path, bytes], target: Path) -> None:
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
            print(f"archive: wrote {path}", file=sys.stderr)
    except OSError as error:
        raise UsageError(f"{target} cannot be written ({error.strerror}); give another --output") from None
