"""python -m fastrnns.archive: records kept, shown, exported and queried; data on stdout, the rest on stderr."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from env.command import framed
from fastrnns.archive.export import FORMATS
from fastrnns.errors import SAID, UsageError
from fastrnns.report.command import add_arguments as report_arguments

DEFAULT = "results"


def main(argv: Sequence[str] | None = None) -> int:
    """Parse, call, print; returns the exit code."""
    args = parser().parse_args(argv)
    command: Callable[[argparse.Namespace], int] = args.command
    return framed("archive", lambda: command(args), SAID)


def list_records(args: argparse.Namespace) -> int:
    """Print the table of the archive."""
    from fastrnns.archive import listing
    from fastrnns.archive.index import command

    archive = _archive(args)
    survey = command.survey(args, archive)
    for problem in survey.problems:
        print(f"archive: skipped: {problem}", file=sys.stderr)
    if args.json:
        print(json.dumps([listing.summary(entry) for entry in survey.entries], indent=1))
    elif survey.entries:
        print(listing.table(survey.entries))
    else:
        print(f"archive: {archive.folder} holds no records", file=sys.stderr)
    return 1 if survey.problems else 0


def show_record(args: argparse.Namespace) -> int:
    """Print one record."""
    from fastrnns.archive import listing, store, strict

    archive = store.Archive(args.archive)
    for ref in args.refs:
        entry = archive.find(ref)
        print(f"archive: {entry.path}", file=sys.stderr)
        print(strict.dumps(entry.record).rstrip() if args.json else listing.show(entry.record))
    return 0


def check_records(args: argparse.Namespace) -> int:
    """Check archives and records; 1 where one is not whole."""
    from fastrnns.archive import checking

    paths = [Path(path) for path in args.paths] or [_archive(args).folder]
    for path in paths:
        if not path.exists():
            raise UsageError(f"there is no {path} to check; give a record's file or an archive's folder")
    report = checking.check(paths)
    if args.json:
        print(json.dumps(report.as_dict(), indent=1))
    else:
        for finding in report.findings:
            print(f"{finding.path}: {finding}", file=sys.stderr if finding.harmless else sys.stdout)
    count = len(report.bad)
    print(f"archive: {report.records} records are whole, {count} findings", file=sys.stderr)
    return 1 if count else 0


def prune_records(args: argparse.Namespace) -> int:
    """List what a rule of retention would remove, and remove it when told to."""
    from fastrnns.archive import prune

    _archive(args)
    return prune.run(args)


def add_records(args: argparse.Namespace) -> int:
    """Take records from elsewhere into the archive, as they are: their id and their hash stay."""
    from fastrnns.archive import store

    archive = store.Archive(args.archive)
    for path in args.paths:
        print(archive.add(Path(path)))
    return 0


def model_history(args: argparse.Namespace) -> int:
    """Print where a model's time changed, and what software changed there."""
    from fastrnns.archive import history
    from fastrnns.archive.index import command

    archive = _archive(args)
    survey = command.survey(args, archive, args.model)
    for problem in survey.problems:
        print(f"archive: skipped: {problem}", file=sys.stderr)
    found = history.history((entry.record for entry in survey.entries), args.model)
    if not found:
        raise UsageError(
            f"{archive.folder} holds no times of {args.model}; see python -m fastrnns.bench --list"
        )
    print(
        json.dumps([history.as_dict(each) for each in found], indent=1) if args.json else history.text(found)
    )
    return 0


def export_record(args: argparse.Namespace) -> int:
    """Print records in another tool's format, and say on stderr what that cannot hold."""
    from fastrnns.archive.export import command

    return command.run(args)


def import_file(args: argparse.Namespace) -> int:
    """Take upstream's output into the archive, with a verdict on what it does not tell."""
    from fastrnns.archive import imports, store

    archive = store.Archive(args.archive)
    try:
        data = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
    except OSError as error:
        raise UsageError(f"{args.file} cannot be read ({error.strerror}); check the path") from None
    name = "stdin" if args.file == "-" else args.file
    found = imports.read(data.decode("utf-8", "replace"), args.unit, name=name)
    print(archive.write(found))
    print(f"archive: {found['verdict']['status']}: {'; '.join(found['verdict']['reasons'])}", file=sys.stderr)
    return 0


def report_records(args: argparse.Namespace) -> int:
    """Lay records out for people: a page, pictures, Markdown."""
    from fastrnns.report import command

    return command.run(args)


def index_archive(args: argparse.Namespace) -> int:
    """Bring the index of the archive up to date."""
    from fastrnns.archive.index import command

    return command.index(args)


def query_archive(args: argparse.Namespace) -> int:
    """Print what a query selects from the index."""
    from fastrnns.archive.index import command

    return command.ask(args)


def _archive(args: argparse.Namespace):  # type: ignore[no-untyped-def]  # noqa: ANN202 - imported late
    from fastrnns.archive import store

    archive = store.Archive(args.archive)
    if not archive.folder.is_dir():
        raise UsageError(f"there is no archive at {archive.folder}; name its folder with --archive DIR")
    return archive


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    made = argparse.ArgumentParser(prog="python -m fastrnns.archive", description=__doc__)
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    refs = "a record: path, id or its beginning, latest, latest~N"

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.add_argument("--archive", default=DEFAULT, metavar="DIR", help="the archive's folder (results)")
        sub.set_defaults(command=run)
        return sub

    def indexed(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--index", metavar="WHERE", help="a folder or fsspec URL that `index` filled (ARCHIVE/.index)"
        )

    def queried(sub: argparse.ArgumentParser) -> None:
        sub.add_argument(
            "--query", metavar="SQL", help="the records whose id this SELECT gives, in its order"
        )
        indexed(sub)

    sub = command("list", list_records, "all records, oldest first")
    sub.add_argument("--json", action="store_true", help="as JSON")
    indexed(sub)
    sub = command("show", show_record, "one record in full")
    sub.add_argument("refs", nargs="*", default=["latest"], metavar="REF", help=refs)
    sub.add_argument("--json", action="store_true", help="the record itself")
    sub = command("history", model_history, "where a model's time changed, and the software with it")
    sub.add_argument("model", metavar="MODEL", help="as bench --list names it")
    sub.add_argument("--json", action="store_true", help="as JSON")
    indexed(sub)
    sub = command("check", check_records, "find torn, edited, duplicated and foreign files")
    sub.add_argument("paths", nargs="*", metavar="PATH", help="archives or records (the archive)")
    sub.add_argument("--json", action="store_true", help="as JSON: every file, its cause and what to do")
    sub = command("prune", prune_records, "list old records that nothing refers to; --yes removes them")
    sub.add_argument(
        "--older-than", metavar="AGE", help="what began longer ago: a number with h, d or w, as 90d"
    )
    sub.add_argument(
        "--keep", type=int, metavar="N", help="beyond the newest N of each machine, kind and command"
    )
    sub.add_argument(
        "--protect", action="append", default=[], metavar="REF", help=f"{refs}; it stays. May be repeated"
    )
    sub.add_argument(
        "--yes", action="store_true", help="remove what was listed; without it nothing is removed"
    )
    sub.add_argument("--json", action="store_true", help="as JSON: what goes, and why the rest stays")
    sub = command("add", add_records, "take a record from elsewhere, as one that could not be archived")
    sub.add_argument("paths", nargs="+", metavar="FILE")
    sub = command("export", export_record, "a record in another tool's format, to stdout")
    sub.add_argument("ref", metavar="RECORD", nargs="?", help=f"{refs} (latest)")
    sub.add_argument("--format", required=True, choices=FORMATS, help="the format")
    sub.add_argument(
        "--output",
        metavar="PATH",
        help="a file in place of stdout; a folder for asv, and for several records",
    )
    queried(sub)
    sub = command("report", report_records, "a page to look at: one file, complete, for any browser")
    report_arguments(sub)
    queried(sub)
    sub = command("index", index_archive, "bring the index up to date: columns made from the files")
    sub.add_argument("where", nargs="?", metavar="WHERE", help="a folder or an fsspec URL (ARCHIVE/.index)")
    sub.add_argument("--rebuild", action="store_true", help="read every file again")
    sub = command("query", query_archive, "ask the index in SQL")
    sub.add_argument(
        "sql", metavar="SQL", help="a SELECT from records, results, processes, machines, software, ..."
    )
    sub.add_argument(
        "--format",
        choices=("table", "csv", "json"),
        default="table",
        help="json is one object a line (table)",
    )
    indexed(sub)
    sub = command(
        "import", import_file, "upstream's --print-json output, or pytest-benchmark's JSON, as a record"
    )
    sub.add_argument("file", metavar="FILE", help="oss or pep output of upstream; - is stdin")
    sub.add_argument(
        "--unit",
        required=True,
        choices=("ms", "s", "us", "ns"),
        help="of its times: upstream prints ms on CUDA, and seconds called ms on a CPU",
    )
    return made


if __name__ == "__main__":
    sys.exit(main())
