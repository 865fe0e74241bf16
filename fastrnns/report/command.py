"""`python -m fastrnns.archive report`: records read, laid out, and written as the files that were asked for."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path

from fastrnns.archive import calibration, compare
from fastrnns.archive.naming import machine_folder, slug
from fastrnns.archive.store import Archive, Entry, in_order
from fastrnns.errors import UsageError
from fastrnns.report import comparison, history, markdown, single, vector
from fastrnns.report import page as pages
from fastrnns.report.page import Page

PICTURES = ("svg", "png")
NEEDS = ("matplotlib", "jinja2")


def add_arguments(sub: argparse.ArgumentParser) -> None:
    """The command line of the report."""
    refs = "path, id or its beginning, latest, latest~N: one for its report, two to compare, more for their history"
    sub.add_argument("refs", nargs="*", metavar="RECORD", help=f"{refs} (latest)")
    sub.add_argument(
        "--history", action="store_true", help="the history of the machine that RECORD was measured on"
    )
    sub.add_argument(
        "--output", metavar="FILE.html", help="the page (report-ID.html, unless only others are asked)"
    )
    for form in PICTURES:
        sub.add_argument(f"--{form}", metavar="DIR", help=f"every picture as {form.upper()}, for slides")
    sub.add_argument("--markdown", action="store_true", help="the answer for a pull request, on stdout")


def run(args: argparse.Namespace) -> int:
    """Write what was asked for; the paths of what was written go to stdout."""
    lacking = [name for name in NEEDS if importlib.util.find_spec(name) is None]
    if lacking:
        raise UsageError(
            f"a report needs {' and '.join(lacking)}; run python -m pip install {' '.join(lacking)}"
        )
    archive = Archive(args.archive)
    entries = _entries(args, archive)
    made = layout(entries, archive, whole=args.history)
    folders = {form: folder for form in PICTURES if (folder := getattr(args, form))}
    name = "-".join(entry.id for entry in entries[:2])
    if args.output or not (folders or args.markdown):
        _write(Path(args.output or f"report-{name}.html"), pages.html(made).encode(), args)
    for form, folder in folders.items():
        for index, picture in enumerate(made.pictures, start=1):
            path = Path(folder) / f"{name}-{index:02d}-{slug(picture.title)}.{form}"
            _write(path, getattr(vector, form)(picture.draw(), picture.title), args)
    if args.markdown:
        print(markdown.markdown(made), end="")
    return 0


def _entries(args: argparse.Namespace, archive: Archive) -> list[Entry]:
    if args.query is None:
        return [archive.find(ref) for ref in args.refs or ["latest"]]
    if args.refs:
        raise UsageError(f"both {args.refs[0]} and --query name records; give one of them")
    from fastrnns.archive.index import command

    return command.entries(args)


def layout(entries: Sequence[Entry], archive: Archive, *, whole: bool = False) -> Page:
    """The page that so many records ask for; `whole` is all that the first one's machine has in the archive."""
    records = [entry.record for entry in entries]
    if whole:
        if len(entries) != 1:
            raise UsageError(
                f"--history is of one machine, got {len(entries)} records; name one of its records"
            )
        known = archive.list() if archive.folder.is_dir() else ()
        records = [entry.record for entry in known if _machine(entry) == _machine(entries[0])]
        if not records:
            raise UsageError(
                f"{archive.folder} holds no record of that machine; name its folder with --archive DIR"
            )
        return history.page(records)
    if len(records) == 1:
        return single.page(records[0])
    if len(records) == 2:
        known = archive.list(calibration.KIND) if archive.folder.is_dir() else ()
        noise = calibration.find((entry.record for entry in known), records[1])
        return comparison.page(compare.compare(*records, calibration=noise), *records)
    return history.page([entry.record for entry in in_order(entries)])


def _machine(entry: Entry) -> str:
    return machine_folder(entry.record["fingerprint"])


def _write(path: Path, data: bytes, args: argparse.Namespace) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); give another path") from None
    if not args.markdown:  # which has stdout to itself
        print(path)
    print(f"archive: wrote {path} ({len(data) / 1e3:.0f} kB)", file=sys.stderr)
