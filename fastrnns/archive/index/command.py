"""The index on the command line: `archive index`, `archive query`, and `--query` of export and report."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path

from fastrnns.archive import store
from fastrnns.archive.index import build, places, query, tables, thin
from fastrnns.errors import UsageError

FORMS = ("table", "csv", "json")


def index(args: argparse.Namespace) -> int:
    """Bring the index up to date; 1 where the archive holds files that are no records."""
    tables.needed("pyarrow")
    archive = Path(args.archive)
    if not archive.is_dir():
        raise UsageError(f"there is no archive at {archive}; name its folder with --archive DIR")
    place = places.place(archive, args.where)
    done = build.update(
        archive, place, rebuild=args.rebuild, say=lambda text: print(f"archive: {text}", file=sys.stderr)
    )
    print("archive: " + ", ".join(f"{count} {word}" for word, count in _counted(done)), file=sys.stderr)
    print(place.where)
    return 1 if done.damaged or done.unread else 0


def _counted(done: build.Summary) -> list[tuple[str, int]]:
    words = {
        "kept": "unchanged",
        "dropped": "gone",
        "unread": "that cannot be read",
        "written": "partitions written",
    }
    return [(words.get(name, name), count) for name, count in asdict(done).items()]


def ask(args: argparse.Namespace) -> int:
    """Print what a query selects."""
    place = places.place(Path(args.archive), args.index)
    with query.ask(place, args.sql) as answer:
        _say_what_is_missing(Path(args.archive), place)
        for piece in query.text(answer, args.format):
            sys.stdout.write(piece)
    return 0


def entries(args: argparse.Namespace) -> list[store.Entry]:
    """The records that `--query` selects, read from their files and checked."""
    archive = Path(args.archive)
    place = places.place(archive, args.index)
    ids = query.identities(place, args.query)
    if not ids:
        raise UsageError("the query selects no record; try it with python -m fastrnns.archive query")
    _say_what_is_missing(archive, place)
    found = query.files(place, ids)
    if lacking := [each for each in ids if each not in found]:
        raise UsageError(f"{lacking[0]} is the id of no indexed record; select id from records or results")
    return [store.read(archive / found[each]) for each in ids]


def survey(args: argparse.Namespace, archive: store.Archive, model: str | None = None) -> store.Survey:
    """All records as `list` (or, of a model, `history`) sees them: from the index, where there is one."""
    place = places.place(archive.folder, args.index)
    if not place.present():
        if args.index is not None:
            raise UsageError(
                f"there is no index at {place.where}; make it with python -m fastrnns.archive index"
            )
        return archive.survey()
    try:
        tables.needed("pyarrow")
    except UsageError as error:
        if args.index is not None:
            raise
        print(f"archive: reading the files, for {error}", file=sys.stderr)
        return archive.survey()
    return thin.survey(archive, place, model)


def _say_what_is_missing(archive: Path, place: places.Place) -> None:
    """Say on stderr how many files the index does not know as they are; nothing where there are no files here."""
    if not archive.is_dir():
        return
    seen = build.scan(archive)
    behind = ahead = 0
    for key in seen.keys() | place.partitions():
        part, there = place.open(key), seen.get(key, {})
        known = part.stamps() if part else {}
        behind += sum(known.get(name) != stamp for name, stamp in there.items())
        ahead += len(known.keys() - there.keys())
    if behind or ahead:
        print(
            f"archive: the index lacks {behind} files as they are now and holds {ahead} that are gone;"
            " bring it up to date with python -m fastrnns.archive index",
            file=sys.stderr,
        )
