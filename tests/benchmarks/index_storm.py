"""The index under fire: two indexers at once, one of them killed at random; counts what is left.

    python -m tests.benchmarks.index_storm            100 rounds
    python -m tests.benchmarks.index_storm --json     the counts, for a program

Before each round some records are written, some removed and one is damaged. Then two indexers begin together, in steps
of three files; one dies of SIGKILL: every second time while a partition is on its way to the disk, the others at any
moment. While they run a reader opens every partition again and again. When the other has ended, the index must equal
one that is made anew from the files, row for row. Exit code 0 where it does in every round and no reader saw a torn
partition; else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - imported once, before the forks; used in the children only

from fastrnns.archive import store
from fastrnns.archive.index import build, places, tables
from fastrnns.archive.index.layout import FOLDER
from tests.benchmarks import synthetic

STEP = 3  # files between two writes: many moments at which to die
NEW, GONE, MOST = 6, 2, 24  # records a round, and in the archive


def storm(archive: Path, rounds: int, seed: int) -> dict[str, int]:
    """So many rounds on one archive."""
    dice = random.Random(seed)
    build.CHUNK = STEP
    templates = [synthetic.slim(record) for record in synthetic.real_records()]
    fleet = synthetic.Fleet(NEW, 2)
    place = places.Folder(archive / FOLDER)
    counts = dict.fromkeys(
        ("rounds", "killed_at_work", "left_aside_after_a_kill", "survivor_failed", "partitions_opened_meanwhile",
         "torn", "unlike_a_rebuild", "list_unlike_the_files", "records_at_the_end"), 0,
    )  # fmt: skip
    typical_s = 0.3
    for number in range(rounds):
        change(archive, fleet, templates, number, dice)
        begun = time.monotonic()
        victim, ready = started(lambda: build.update(archive, place), in_the_write=bool(number % 2))
        survivor, _ = started(lambda: build.update(archive, place), in_the_write=False)
        os.read(ready, 1)
        deadline = time.monotonic() + dice.uniform(0, typical_s if number % 2 == 0 else 0.01)
        while time.monotonic() < deadline:
            opened, torn = readable(place)
            counts["partitions_opened_meanwhile"] += opened
            counts["torn"] += torn
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        counts["killed_at_work"] += os.WIFSIGNALED(os.waitpid(victim, 0)[1])
        counts["left_aside_after_a_kill"] += bool(list(place.root.rglob("*.tmp")))
        counts["survivor_failed"] += os.waitpid(survivor, 0)[1] != 0
        typical_s = time.monotonic() - begun
        os.close(ready)
        counts["rounds"] += 1
        print(f"index_storm: round {number + 1} of {rounds}", end="\r", file=sys.stderr, flush=True)
        for name, count in answered(lambda: judged(archive, place)).items():
            counts[name] = counts[name] + count if name != "records_at_the_end" else count
    return counts


def change(
    archive: Path, fleet: synthetic.Fleet, templates: list[Any], number: int, dice: random.Random
) -> None:
    """What happens to an archive between two nights."""
    for _, record in synthetic.night(fleet, templates, number, range(NEW)):
        store.Archive(archive).write(record)
    known = store.Archive(archive).files()
    for path in dice.sample(known, min(GONE, len(known) - 1)):
        path.unlink()
    known = store.Archive(archive).files()
    with dice.choice(known).open("ab") as torn:
        torn.write(b"torn")
    for path in known[MOST:]:  # a rebuild each round must stay short
        path.unlink()


def started(work: Callable[[], Any], *, in_the_write: bool) -> tuple[int, int]:
    """A child at work; a byte comes when it begins, or when its first partition is to be written."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child:
        os.close(write_end)
        return child, read_end
    code = 1
    try:
        if in_the_write:
            write = tables.write
            tables.write = lambda found, sink: (os.write(write_end, b"."), write(found, sink))[1]
        else:
            os.write(write_end, b".")
        work()
        code = 0
    finally:
        os._exit(code)


def readable(place: places.Folder) -> tuple[int, int]:
    """How many partitions are there, and how many of them are not whole files (first and last bytes of Parquet)."""
    opened = torn = 0
    for path in place.root.rglob("*.parquet"):
        with contextlib.suppress(FileNotFoundError):
            data = path.read_bytes()
            opened += 1
            torn += not (data.startswith(b"PAR1") and data.endswith(b"PAR1"))
    return opened, torn


def judged(archive: Path, place: places.Folder) -> dict[str, int]:
    """The index beside one made anew, and `list` by both."""
    from fastrnns.archive import listing
    from fastrnns.archive.index import thin

    other = places.Folder(archive.parent / "anew")
    shutil.rmtree(other.root, ignore_errors=True)
    build.update(archive, other)
    both = [{key: each.open(key).tables() for key in each.partitions()} for each in (place, other)]
    surveys = [thin.survey(store.Archive(archive), place), store.Archive(archive).survey()]
    listed = [([listing.summary(entry) for entry in each.entries], each.problems) for each in surveys]
    return {
        "unlike_a_rebuild": both[0] != both[1],
        "list_unlike_the_files": listed[0] != listed[1],
        "records_at_the_end": len(listed[1][0]),
    }


def answered(work: Callable[[], dict[str, int]]) -> dict[str, int]:
    """What the work returns, done in a child: this process forks, so it starts no threads."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(write_end, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        found: dict[str, int] = json.loads(stream.read() or '{"unlike_a_rebuild": 1}')
    os.waitpid(child, 0)
    return found


def main(argv: list[str] | None = None) -> int:
    """Run the storm and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "results")
        archive.mkdir()
        counts = storm(archive, args.rounds, args.seed)
    if args.json:
        print(json.dumps(counts))
    else:
        print(*(f"{key.replace('_', ' '):28} {value}" for key, value in counts.items()), sep="\n")
    bad = ("survivor_failed", "torn", "unlike_a_rebuild", "list_unlike_the_files")
    return int(any(counts[name] for name in bad))


if __name__ == "__main__":
    sys.exit(main())
