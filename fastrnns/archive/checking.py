"""Whether an archive is whole: torn, edited, misplaced, duplicated and foreign files, each by name."""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastrnns.archive import durable, store
from fastrnns.archive.naming import FILE_NAME, HIDDEN, PROBE, PRUNED, file_name, machine_folder
from fastrnns.archive.record import RecordError
from fastrnns.errors import HarnessError

README = "README.md"
RESTORE = "restore the original file, or take it away"


@dataclass(frozen=True)
class Finding:
    """One file that is not as it should be; `harmless` ones are said and do not make an archive bad.

    `cause` is one word that programs may rely on: torn, edited, another-version, not-as-schema, unreadable,
    link, foreign, misplaced, duplicate, file-missing, file-edited, left-aside.
    """

    path: Path
    cause: str
    text: str
    remedy: str
    harmless: bool = False

    def __str__(self) -> str:
        """The sentence, with what to do."""
        return f"{self.text}; {self.remedy}"


@dataclass(frozen=True)
class Report:
    """What a check found, and how many records it read."""

    records: int
    findings: tuple[Finding, ...]

    @property
    def bad(self) -> tuple[Finding, ...]:
        """The findings that a person has to act on."""
        return tuple(finding for finding in self.findings if not finding.harmless)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON."""
        return {
            "records": self.records,
            "whole": not self.bad,
            "findings": [{**asdict(each), "path": str(each.path)} for each in self.findings],
        }


def check(paths: Sequence[Path]) -> Report:
    """Check archives (folders), machines' folders and single records (files)."""
    findings: list[Finding] = []
    seen: dict[str, Path] = {}  # by id: all that is kept of a record, so that a large archive fits
    count = 0
    for path in paths:
        files, faults = _folder(path) if path.is_dir() else ([path], [])
        findings += faults
        for file in files:
            entry = read(file)
            if isinstance(entry, Finding):
                findings.append(entry)
                continue
            count += 1
            findings += companions(file, entry.record)
            if path.is_dir():
                findings += misplaced(entry)
            before = seen.setdefault(entry.id, file)
            if before.absolute() != file.absolute():
                text, remedy = f"duplicate: {before} has the same id {entry.id}", "take one of the two away"
                findings.append(Finding(file, "duplicate", text, remedy))
    return Report(count, tuple(findings))


def read(path: Path) -> store.Entry | Finding:
    """The record in a file, checked in full, or why there is none."""
    if unlike := unlike_a_file(path):
        return unlike
    try:
        return store.read(path)
    except HarnessError as error:
        cause = error.cause if isinstance(error, RecordError) else "unreadable"
        text, _, remedy = str(error).removeprefix(str(path)).lstrip(": ").rpartition("; ")
        return Finding(path, cause, text, remedy) if text else Finding(path, cause, remedy, RESTORE)


def unlike_a_file(path: Path) -> Finding | None:
    """What is wrong with a path that is no regular file; a link is not followed, a pipe not waited for."""
    try:
        mode = path.lstat().st_mode
    except OSError:
        return None  # reading it says why
    if stat.S_ISLNK(mode):
        text = f"a link (to {path.readlink()}): what it holds can change without the archive"
        return Finding(path, "link", text, "put the file itself here, or take the link away")
    if not stat.S_ISREG(mode):
        return Finding(
            path, "foreign", "foreign: named as a file of the archive, and no file", "take it away"
        )
    return None


def _folder(folder: Path) -> tuple[list[Path], list[Finding]]:
    """The records below an archive's folder, or in one machine's, and what else lies there."""
    items = sorted(folder.iterdir())
    if any(FILE_NAME.match(item.name) for item in items):
        return _machine(folder)
    files: list[Path] = []
    findings: list[Finding] = []
    for item in items:
        if item.name.startswith(PROBE):
            findings.append(_left_aside(item))
        elif item.name == README or item.name.startswith("."):
            continue
        elif item.is_symlink():
            text = f"a link (to {item.readlink()}): its records would be counted where they lie, too"
            findings.append(Finding(item, "link", text, "move the folder here, or take the link away"))
        elif item.is_dir():
            inside, faults = _machine(item)
            files += inside
            findings += faults
        else:
            text = "foreign: the archive did not put it here"
            findings.append(Finding(item, "foreign", text, "take it away"))
    return files, findings


def _machine(folder: Path) -> tuple[list[Path], list[Finding]]:
    """The records in a machine's folder, and what else lies there."""
    files: list[Path] = []
    findings = [_left_aside(path) for path in durable.leftovers(folder)]
    for item in sorted(folder.iterdir()):
        if item.is_dir() and not item.is_symlink():
            if (folder / f"{PRUNED}{item.name}.json").is_file():
                continue  # goes with what is said of the pruned record
            if not item.with_suffix(".json").is_file():
                text = "foreign: a folder without the record that it would belong to"
                findings.append(Finding(item, "foreign", text, "take it away, or bring its record back"))
        elif FILE_NAME.match(item.name):
            files.append(item)
        elif item.name.startswith(PRUNED):
            findings.append(_left_aside(item))
        elif not store.bookkeeping(item.name) and not item.name.startswith(HIDDEN):
            text = "foreign: not named as a record"
            findings.append(Finding(item, "foreign", text, "take it away, or import it"))
    return files, findings


def _left_aside(path: Path) -> Finding:
    if path.name.startswith(PRUNED):
        who, remedy = "a prune", "the next prune --yes ends it"
    elif path.name.startswith(PROBE):
        who, remedy = "a command", "delete it"
    else:
        who, remedy = "a writer", "the next record removes it"
    return Finding(path, "left-aside", f"left aside by {who} that was killed", remedy, harmless=True)


def companions(path: Path, record: dict[str, Any]) -> Iterator[Finding]:
    """What is wrong with the files beside a record: those that it names, and those that it does not."""
    folder = path.with_suffix("")
    named = {each["name"]: each["sha256"] for each in record.get("files") or []}
    for name, sha256 in named.items():
        if unlike := unlike_a_file(folder / name):
            yield unlike
            continue
        try:
            data = (folder / name).read_bytes()
        except OSError:
            yield Finding(path, "file-missing", f"its file {name} is missing", "restore it beside the record")
            continue
        if hashlib.sha256(data).hexdigest() != sha256:
            text = f"its file {name} was edited: its content does not match its sha256"
            yield Finding(path, "file-edited", text, "restore the original file")
    for item in _inside(folder):
        if item.name not in named:
            yield Finding(
                item, "foreign", f"foreign: the record {path.stem} does not name it", "take it away"
            )


def _inside(folder: Path) -> Iterable[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return ()


def misplaced(entry: store.Entry) -> Iterator[Finding]:
    """Whether a record lies in the folder and under the name that follow from what it holds."""
    if FILE_NAME.match(entry.path.name) and entry.path.name != file_name(entry.record):
        text = f"renamed: its name should be {file_name(entry.record)}"
        yield Finding(entry.path, "misplaced", text, "rename it")
    folder = machine_folder(entry.record["fingerprint"])
    if entry.path.absolute().parent.name != folder:
        text = f"foreign to this folder: it is a record of the machine {folder}"
        yield Finding(entry.path, "misplaced", text, "move it there")
