"""The archive under fire: writers at once, and writers killed in the middle of a write; counts what is left.

    python -m tests.benchmarks.archive_storm            8 writers of 25 records each; 200 kills
    python -m tests.benchmarks.archive_storm --json     the counts, for a program

Exit code 0 where no acknowledged record is lost, none is torn and none was overwritten; else 1.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fastrnns.archive import checking, durable, record, store

FROZEN = datetime(2026, 1, 1, tzinfo=timezone.utc)  # every record claims the same second


def sample_record(samples: int) -> dict[str, Any]:
    """A record of one model with so many samples."""
    problem = {"seq_length": 100, "num_layers": 1, "input_size": 512, "hidden_size": 512, "mini_batch": 64}
    found = record.new("bench", ["fastrnns.bench"], problem, {"device": "cpu"}, now=FROZEN)
    series = [1.0 + index / 977 for index in range(samples)]
    phase = {
        "unit": "ms", "samples": [series], "warmup": [[]], "median": series[samples // 2], "ci95": None,
        "mean": 1.0, "std": 0.1, "min": 1.0, "n": samples,
    }  # fmt: skip
    found["results"] = [
        {
            "model": "cudnn", "group": "rnns", "dtype": "float32", "status": "ok", "error": None, "backend": "none",
            "forward": phase, "backward": None, "notes": [],
        },
    ]  # fmt: skip
    return found


def writers_at_once(folder: Path, writers: int, records: int, samples: int) -> dict[str, Any]:
    """Several processes that archive records of the same second at the same time."""
    children = []
    read_end, write_end = os.pipe()
    for _ in range(writers):
        child = os.fork()
        if child == 0:
            _write_many(folder, records, samples, write_end)
        children.append(child)
    os.close(write_end)
    acknowledged = _lines(read_end)
    failed = sum(os.waitpid(child, 0)[1] != 0 for child in children)
    return {
        "writers": writers, "failed_writers": failed, "acknowledged": len(acknowledged), **_count(folder, acknowledged),
    }  # fmt: skip


def killed_writers(folder: Path, kills: int, samples: int, seed: int) -> dict[str, Any]:
    """Writers that die of SIGKILL at a random moment of a write, one after the other.

    Every second one dies while its bytes are on their way to the disk; the others at any moment.
    """
    dice = random.Random(seed)
    before: dict[str, bytes] = {}
    acknowledged: list[str] = []
    overwritten = finished = aside = 0
    typical_s = [_typical(folder, samples, at_the_disk=at_the_disk) for at_the_disk in (False, True)]
    for turn in range(kills):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            _begin_with(functools.partial(os.write, write_end, b"ready\n"), at_the_disk=bool(turn % 2))
            _write_many(folder, 1, samples, write_end)
        os.close(write_end)
        os.read(read_end, len(b"ready\n"))
        time.sleep(dice.uniform(0, typical_s[turn % 2] * 1.1))
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        said = _lines(read_end)
        os.waitpid(child, 0)
        finished += bool(said)
        aside += bool([left for machine in folder.iterdir() for left in durable.leftovers(machine)])
        acknowledged += said
        now = {str(path): path.read_bytes() for path in folder.glob("*/*.json")}
        overwritten += sum(now.get(path) != data for path, data in before.items())
        before = now
    store.Archive(folder).write(sample_record(samples))  # the archive still takes records
    return {
        "kills": kills, "acknowledged": len(acknowledged), "killed_in_the_write": kills - finished,
        "left_aside_after_a_kill": aside, **_count(folder, acknowledged), "overwritten": overwritten,
    }  # fmt: skip


def _begin_with(say: Callable[[], Any], *, at_the_disk: bool) -> None:
    """Say now that the write begins, or when the first byte is to reach the disk."""
    if not at_the_disk:
        say()
        return
    write_new = durable.write_new

    def speaking(path: Path, data: bytes) -> None:
        say()
        write_new(path, data)

    durable.write_new = speaking


def _typical(folder: Path, samples: int, *, at_the_disk: bool) -> float:
    """Seconds that one write takes in a fresh process, from its begin or from its first byte."""
    times = []
    for _ in range(5):
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read_end)
            begun: list[float] = []
            _begin_with(functools.partial(_note, begun), at_the_disk=at_the_disk)
            store.Archive(folder).write(sample_record(samples))
            os.write(write_end, repr(time.monotonic() - begun[0]).encode())
            os._exit(0)
        os.close(write_end)
        times += [float(line) for line in _lines(read_end)]
        os.waitpid(child, 0)
    return sorted(times)[len(times) // 2]


def _note(moments: list[float]) -> None:
    moments.append(time.monotonic())


def _write_many(folder: Path, records: int, samples: int, acknowledge: int) -> None:
    """The child: each record is acknowledged after its write has returned."""
    code = 1
    try:
        archive = store.Archive(folder)
        for _ in range(records):
            path = archive.write(sample_record(samples))
            os.write(acknowledge, f"{path}\n".encode())
        code = 0
    finally:
        os._exit(code)


def _lines(read_end: int) -> list[str]:
    with os.fdopen(read_end) as stream:
        return stream.read().split()


def _count(folder: Path, acknowledged: list[str]) -> dict[str, Any]:
    report = checking.check([folder])
    entries = store.Archive(folder).survey().entries
    sequences = [(entry.machine, entry.record["sequence"]) for entry in entries]
    return {
        "records": report.records,
        "lost": sum(not Path(path).is_file() for path in acknowledged),
        "torn_or_edited": len(report.bad),
        "same_sequence_twice": len(sequences) - len(set(sequences)),
        "same_name_twice": len(acknowledged) - len(set(acknowledged)),
    }


def main(argv: list[str] | None = None) -> int:
    """Run both storms and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--records", type=int, default=25, help="of each writer")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--samples", type=int, default=5000, help="in each record")
    parser.add_argument("--seed", type=int, default=17)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args(argv)
    record.validate(record.seal(sample_record(1)))  # imports done once, before the forks
    with tempfile.TemporaryDirectory() as folder:
        storms = {
            "writers at once": writers_at_once(Path(folder, "a"), args.writers, args.records, args.samples),
            "killed writers": killed_writers(Path(folder, "b"), args.kills, args.samples, args.seed),
        }
    if args.json:
        print(json.dumps(storms))
    else:
        for name, counts in storms.items():
            print(name, *(f"  {key.replace('_', ' '):26} {value}" for key, value in counts.items()), sep="\n")
    bad = (
        "failed_writers",
        "lost",
        "torn_or_edited",
        "same_sequence_twice",
        "same_name_twice",
        "overwritten",
    )
    return int(any(counts.get(key) for counts in storms.values() for key in bad))


if __name__ == "__main__":
    sys.exit(main())
