"""What the index holds and where: its partitions, its kinds of rows, its columns. Pure.

One Parquet file a machine and month. Its row groups are of one kind each, so that a reader of one kind never
reads another, and so that a partition is replaced as one thing:

    record    one row a record
    result    one row a model and phase (one without a phase where nothing was timed)
    fact      one row for each distinct setting, software and hardware, as JSON, by its digest
    damaged   one row a file that is no record, with the sentence that says why

History of the format:
    1  the first
"""

from __future__ import annotations

import re
from typing import NamedTuple

from fastrnns.archive.naming import FILE_NAME

VERSION = "2"
VERSION_KEY = b"fastrnns_index"
FOLDER = ".index"  # in the archive, unless another place is named
PART = "part.parquet"
UNDATED = "undated"
RECORD, RESULT, FACT, DAMAGED = KINDS = ("record", "result", "fact", "damaged")

TEXT, NUMBER, COUNT, TEXTS, NUMBERS = "string", "double", "int64", "list<string>", "list<double>"

SOURCE = {"row": TEXT, "name": TEXT}
STAMP = {"bytes": COUNT, "mtime_ns": COUNT}
KEYS = {  # what a record and its results share: most queries then need no join
    "machine": TEXT, "month": TEXT, "id": TEXT, "kind": TEXT, "started": "timestamp[ms]", "verdict": TEXT,
    "device": TEXT, "hardware_id": TEXT, "software_id": TEXT, "torch": TEXT,
}  # fmt: skip
PROBLEM = {
    "seq_length": COUNT, "num_layers": COUNT, "input_size": COUNT, "hidden_size": COUNT, "mini_batch": COUNT,
}  # fmt: skip
OF_RECORD = {
    "started_text": TEXT, "sequence": COUNT, "duration_s": NUMBER, "exit_code": COUNT, "reasons": TEXTS,
    "models": TEXTS, "argv": TEXTS, **PROBLEM, "state_id": TEXT, "cpu": TEXT, "gpus": TEXTS, "python": TEXT,
    "driver": TEXT, "kernel": TEXT, "commit": TEXT, "dirty": "bool", "steps": TEXT, "setting": TEXT,
    "software": TEXT, "hardware": TEXT,
}  # fmt: skip
OF_RESULT = {
    "place": COUNT, **PROBLEM, "model": TEXT, "model_group": TEXT, "dtype": TEXT, "status": TEXT, "error": TEXT,
    "backend": TEXT, "phase": TEXT, "median_ms": NUMBER, "low_ms": NUMBER, "high_ms": NUMBER,
    "mean_ms": NUMBER, "std_ms": NUMBER, "min_ms": NUMBER, "n": COUNT, "process_medians_ms": NUMBERS,
}  # fmt: skip
OF_FACT = {"fact": TEXT, "digest": TEXT, "json": TEXT}
OF_DAMAGED = {"problem": TEXT}

COLUMNS = SOURCE | STAMP | KEYS | OF_RECORD | OF_RESULT | OF_FACT | OF_DAMAGED
BY_KIND = {
    RECORD: SOURCE | STAMP | KEYS | OF_RECORD,
    RESULT: SOURCE | KEYS | OF_RESULT,
    FACT: {"row": TEXT} | OF_FACT,
    DAMAGED: SOURCE | STAMP | {"machine": TEXT, "month": TEXT} | OF_DAMAGED,
}
FACTS = ("setting", "software", "hardware")  # the columns of a record that hold a digest


class Partition(NamedTuple):
    """The records of one machine's folder whose names begin with one month."""

    machine: str
    month: str


class Stamp(NamedTuple):
    """By what a file is known to be the one that was indexed."""

    bytes: int
    mtime_ns: int


def partition(machine: str, name: str) -> Partition:
    """Where a file belongs, by its name alone."""
    return Partition(machine, f"{name[:4]}-{name[4:6]}" if FILE_NAME.match(name) else UNDATED)


def month_of(folder: str) -> str | None:
    """The month that a partition's folder names; None for a folder that is none of ours."""
    found = re.fullmatch(rf"month=(\d{{4}}-\d{{2}}|{UNDATED})", folder)
    return found[1] if found else None
