"""The archive of a large fleet: `python -m tests.benchmarks.archive_scale` measures index, queries, list and history.

In one run, on records made from those in results/ (see synthetic.py; cut to two models, three processes, ten samples):

1. A million records, a night of 10,000 nodes after the other, are handed as objects to the code that indexes files;
   no million files are written. Printed: the time in that code, the size, and what one night more costs.
2. The five queries of docs/archive_at_scale.md, each in a connection of its own: median and 95th percentile.
3. A hundred thousand of these records are written as files, whole and sealed, and indexed from the same objects; then one
   machine's files are indexed from the files, which must give the same partition. `list` and `history cudnn` are
   answered from files and from the index: the answers must be equal, and the index 50 times as fast. All files are read
   once: that time counts for both commands, which both begin with it.

The last line is all figures as JSON. Exit code 1 where an answer differs or a ratio is below 50.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastrnns.archive import history, listing, store
from fastrnns.archive.index import build, extract, places, query, tables, thin
from fastrnns.archive.index.layout import Partition, Stamp, partition
from fastrnns.archive.naming import file_name
from fastrnns.archive.strict import content_hash
from tests.benchmarks import synthetic

PAGE = synthetic.ROOT / "docs/archive_at_scale.md"
TARGET = 50
MODEL = "cudnn"


def documented() -> dict[str, str]:
    """The queries of the documentation, by the name in their first line."""
    return dict(re.findall(r"```sql\n-- (\w+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL))


class Clock:
    """Adds up the time spent inside it; the making of records stays outside."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __enter__(self) -> None:
        self.begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self.begun


def months(
    fleet: synthetic.Fleet, nights: int, templates: Sequence[synthetic.Record]
) -> Iterator[tuple[Any, Any]]:
    """Every partition's key, and an iterator of its records: machine by machine, month by month."""
    by_month: dict[str, list[int]] = {}
    for number in range(nights):
        date = synthetic.FIRST_NIGHT + synthetic.timedelta(days=number)
        by_month.setdefault(f"{date:%Y-%m}", []).append(number)
    for machine in range(fleet.hardware):
        nodes = range(machine, fleet.nodes, fleet.hardware)
        for month, numbers in by_month.items():
            found = [item for number in numbers for item in synthetic.night(fleet, templates, number, nodes)]
            yield month, found


def million(
    fleet: synthetic.Fleet, nights: int, templates: Sequence[synthetic.Record], folder: Path
) -> dict[str, Any]:
    """Index the objects; then the first machine-month's worth again with one night more for each machine."""
    place, clock, count = places.Folder(folder), Clock(), 0
    for month, found in months(fleet, nights, templates):
        clock_rows = extract.Rows()
        with clock:
            for machine, record in found:
                extract.add_record(
                    clock_rows, Partition(machine, month), file_name(record), Stamp(17_000, count), record
                )
                count += 1
            by_machine = {machine for machine, _ in found}
            put(place, by_machine, month, clock_rows)
    more = Clock()
    last = max(key.month for key in place.partitions())
    for machine in range(fleet.hardware):
        nodes = range(machine, fleet.nodes, fleet.hardware)
        found = list(synthetic.night(fleet, templates, nights, nodes))
        rows = extract.Rows()
        with more:
            for name, record in found:
                extract.add_record(rows, Partition(name, last), file_name(record), Stamp(17_000, 1), record)
            put(place, {name for name, _ in found}, last, rows)
    parts = list(folder.rglob("*.parquet"))
    return {
        "records": count, "index_s": round(clock.seconds, 1), "index_records_per_s": round(count / clock.seconds),
        "index_mb": round(sum(part.stat().st_size for part in parts) / 1e6, 1), "partitions": len(parts),
        "bytes_per_record": round(sum(part.stat().st_size for part in parts) / (count + fleet.nodes)),
        "one_night_more_s": round(more.seconds, 2), "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }  # fmt: skip


def put(place: places.Folder, machines: set[str], month: str, rows: extract.Rows) -> None:
    """Put rows of one hardware id into its partitions, beside what is there: as the indexer commits."""
    new = tables.made(rows)
    for machine in machines:
        names = {row["name"] for row in rows.records if row["machine"] == machine}
        key = Partition(machine, month)
        mine = new if len(machines) == 1 else tables.merged(new, names, tables.made(extract.Rows()))
        with place.locked(key):
            part = place.open(key)
            kept = part.stamps().keys() - names if part else ()
            place.write(key, tables.merged(part.tables() if part else None, kept, mine))


def queries(folder: Path, repeats: int) -> dict[str, Any]:
    """Each documented query so often, from connecting to the last row."""
    place = places.Folder(folder)
    found = {}
    for name, sql in documented().items():
        times, rows = [], 0
        for _ in range(repeats):
            begun = time.perf_counter()
            with query.ask(place, sql) as answer:
                rows = sum(1 for _ in answer.rows)
            times.append(time.perf_counter() - begun)
        times.sort()
        p95 = times[min(len(times) - 1, round(0.95 * len(times)))]
        found[name] = {"p50_s": round(statistics.median(times), 3), "p95_s": round(p95, 3), "rows": rows}
        print(f"  {name:8} p50 {found[name]['p50_s']:8.3f} s   p95 {p95:8.3f} s   {rows} rows", flush=True)
    return found


def files(
    fleet: synthetic.Fleet, nights: int, templates: Sequence[synthetic.Record], folder: Path
) -> dict[str, Any]:
    """Files and their index; list and history by both."""
    archive, place = store.Archive(folder), places.Folder(folder / ".index")
    writing, count = Clock(), 0
    for month, found in months(fleet, nights, templates):
        rows = extract.Rows()
        with writing:
            for machine, record in found:
                record["sha256"] = content_hash(record)
                path = folder / machine / file_name(record)
                path.parent.mkdir(exist_ok=True, parents=True)
                path.write_text(json.dumps(record), encoding="ascii")
                status = path.stat()
                stamp = Stamp(status.st_size, status.st_mtime_ns)
                extract.add_record(rows, partition(machine, path.name), path.name, stamp, record)
                count += 1
        put(place, {machine for machine, _ in found}, month, rows)
    size = sum(path.stat().st_size for path in archive.files())
    print(f"  {count} files written in {writing.seconds:.0f} s, {size / 1e9:.2f} GB", flush=True)
    again, looked = timed(lambda: build.update(folder, place))
    if again.read or again.dropped or again.kept != count:
        raise SystemExit(f"the index made from objects is not that of the files: {again}")
    reread = from_files(archive, place)
    scanned = timed(lambda: build.scan(folder))[1]
    survey_s, by_file = answers_from_files(archive)
    print(f"  all files read and checked in {survey_s:.0f} s", flush=True)
    by_index = {
        "list": timed(lambda: listing.table(thin.survey(archive, place).entries)),
        "history": timed(
            lambda: history.text(
                history.history((e.record for e in thin.survey(archive, place, MODEL).entries), MODEL)
            )
        ),
    }
    found = {"records": count, "gb": round(size / 1e9, 2), "nothing_to_index_s": round(looked, 2), "scan_s": round(scanned, 2),
             "index_from_files_per_s": reread, "read_all_files_s": round(survey_s, 1)}  # fmt: skip
    for name, (text, seconds) in by_index.items():
        whole = survey_s + by_file[name][1]
        found[name] = {
            "files_s": round(whole, 1), "index_s": round(seconds, 2), "ratio": round(whole / seconds, 1),
            "equal": text == by_file[name][0], "lines": text.count("\n") + 1,
        }  # fmt: skip
        print(
            f"  {name:8} files {whole:.0f} s, index {seconds:.2f} s: {whole / seconds:.0f} times, equal: {found[name]['equal']}"
        )
    return found


def answers_from_files(archive: store.Archive) -> tuple[float, dict[str, tuple[str, float]]]:
    """The seconds of reading every file, and list and history with their own; the records, gigabytes, end with this."""
    survey, seconds = timed(archive.survey)
    return seconds, {
        "list": timed(lambda: listing.table(survey.entries)),
        "history": timed(lambda: history.text(history.history((e.record for e in survey.entries), MODEL))),
    }


def from_files(archive: store.Archive, place: places.Folder) -> int:
    """Index one partition from its files; returns files a second. It must be the one made from objects."""
    key = min(place.partitions())
    with tempfile.TemporaryDirectory() as other:
        alone = Path(other, "results")
        shutil.copytree(archive.folder / key.machine, alone / key.machine)
        fresh = places.Folder(Path(other, "index"))
        done, seconds = timed(lambda: build.update(alone, fresh))
        for each in fresh.partitions():
            if fresh.open(each).tables() != place.open(each).tables():
                raise SystemExit(f"{each} from files is not what it is from objects")
    return round(done.read / seconds)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What the work returns, and its seconds."""
    begun = time.perf_counter()
    with redirect_stderr(io.StringIO()):
        found = work()
    return found, time.perf_counter() - begun


def main(argv: list[str] | None = None) -> int:
    """Measure, print, and remove what was written."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=10_000, help="records a night")
    parser.add_argument("--hardware", type=int, default=100, help="distinct hardware ids among the nodes")
    parser.add_argument("--repeats", type=int, default=20, help="of each query")
    parser.add_argument("--folder", help="where to write (a temporary folder)")
    parser.add_argument("--output", metavar="FILE", help="the figures as JSON, too")
    args = parser.parse_args(argv)
    fleet = synthetic.Fleet(args.nodes, args.hardware)
    templates = [synthetic.slim(record, models=2) for record in synthetic.real_records()]
    figures: dict[str, Any] = {
        "nodes": args.nodes,
        "hardware_ids": args.hardware,
        "cpus": len(os.sched_getaffinity(0)),
    }
    with tempfile.TemporaryDirectory(dir=args.folder, prefix="archive-scale-") as folder:
        if args.records:
            print(f"{args.records} records as objects", flush=True)
            figures["million"] = million(fleet, args.records // args.nodes, templates, Path(folder, "index"))
            print("  " + ", ".join(f"{key} {value}" for key, value in figures["million"].items()), flush=True)
            figures["queries"] = queries(Path(folder, "index"), args.repeats)
        if args.files:
            print(f"{args.files} records as files", flush=True)
            figures["files"] = files(fleet, args.files // args.nodes, templates, Path(folder, "results"))
    line = json.dumps(figures)
    if args.output:
        Path(args.output).write_text(line + "\n", encoding="ascii")
    print(line)
    both = [figures["files"][name] for name in ("list", "history")] if args.files else []
    return int(any(not each["equal"] or each["ratio"] < TARGET for each in both))


if __name__ == "__main__":
    sys.exit(main())
