"""`python -m fastrnns.archive report`: records read, laid out, and written as the files that were asked for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastrnns.errors import UsageError
from fastrnns.report import page as pages
from fastrnns.report import single
from fastrnns.report.page import Page

NEEDS = ("matplotlib", "jinja2")


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command line of the report."""
    refs = "a record: path, id or its beginning, latest, latest~N (latest)"
    sub.add_argument("refs", nargs="*", default=["latest"], metavar="RECORD", help=refs)
    sub.add_argument("--output", metavar="FILE.html", help="the page (report-ID.html)")


def run(args: argparse.Namespace) -> int:
    """Write what was asked for; the paths of what was written go to stdout."""
    from fastrnns.archive import store

    lacking = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"a report needs {' and '.join(lacking)}; run python -m pip install {' '.join(lacking)}"
        )
    archive = store.Archive(args.archive)
    records = [archive.load(ref) for ref in args.refs]
    made = layout(records)
    target = Path(args.output or f"report-{records[0]['id']}.html")
    _write(target, pages.html(made).encode())
    return 0


def layout(records: list[Mapping[str, Any]] | list[dict[str, Any]]) -> Page:
    """The page that so many records ask for."""
    return single.page(records[0])


def _write(path: Path, data: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); give another path") from None
    print(path)
    print(f"archive: wrote {path} ({len(data) / 1e3:.0f} kB)", file=sys.stderr)
