"""Whether an archive is whole: torn, edited, misplaced, duplicated and foreign files, each by name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastrnns.archive import durable, store
from fastrnns.archive.naming import FILE_NAME, HIDDEN, file_name, machine_folder
from fastrnns.errors import HarnessError

README = "README.md"


@dataclass(frozen=True)
class Finding:
    """One file that is not as it should be; `harmless` ones are said and do not make an archive bad."""

    path: Path
    text: str
    harmless: bool = False


@dataclass(frozen=True)
class Report:
    """What a check found, and how many records it read."""

    records: int
    findings: tuple[Finding, ...]

    @property
    def bad(self) -> tuple[Finding, ...]:
        """The findings that a person has to act on."""
        return tuple(finding for finding in self.findings if not finding.harmless)


def check(paths: Sequence[Path]) -> Report:
    """Check archives (folders) and single records (files)."""
    findings: list[Finding] = []
    entries: list[store.Entry] = []
    for path in paths:
        if path.is_dir():
            found, faults = _folder(path)
        else:
            found, faults = _files([path])
        entries += found
        findings += faults
    findings += _duplicates(entries)
    return Report(len(entries), tuple(findings))


def _folder(archive: Path) -> tuple[list[store.Entry], list[Finding]]:
    findings: list[Finding] = []
    files: list[Path] = []
    for item in sorted(archive.iterdir()):
        if item.is_dir() and not item.name.startswith("."):
            inside, faults = _machine(item)
            files += inside
            findings += faults
        elif FILE_NAME.match(item.name):  # a machine's own folder was given
            files.append(item)
        elif item.name != README and not item.name.startswith("."):
            findings.append(Finding(item, "foreign: the archive did not put it here; take it away"))
    entries, faults = _files(files)
    return entries, [*findings, *faults, *_misplaced(entries)]


def _machine(folder: Path) -> tuple[list[Path], list[Finding]]:
    """The records in a machine's folder, and what else lies there."""
    findings = [
        Finding(path, "left aside by a writer that was killed; the next record removes it", harmless=True)
        for path in durable.leftovers(folder)
    ]
    files = []
    for item in sorted(folder.iterdir()):
        if item.is_dir():
            if not item.with_suffix(".json").is_file():
                findings.append(Finding(item, "foreign: a folder without the record that it would belong to"))
        elif FILE_NAME.match(item.name):
            files.append(item)
        elif not store.bookkeeping(item.name) and not item.name.startswith(HIDDEN):
            findings.append(Finding(item, "foreign: not named as a record; take it away or import it"))
    return files, findings


def _files(paths: Iterable[Path]) -> tuple[list[store.Entry], list[Finding]]:
    entries, findings = [], []
    for path in paths:
        try:
            entry = store.read(path)
        except HarnessError as error:
            findings.append(Finding(path, str(error).removeprefix(str(path)).lstrip(": ")))
            continue
        entries.append(entry)
        findings += [Finding(path, text) for text in _companions(path, entry.record)]
    return entries, findings


def _companions(path: Path, record: dict[str, Any]) -> Iterable[str]:
    """What is wrong with the files beside a record that it names."""
    for named in record.get("files") or []:
        companion = path.with_suffix("") / named["name"]
        try:
            data = companion.read_bytes()
        except OSError:
            yield f"its file {named['name']} is missing"
            continue
        if hashlib.sha256(data).hexdigest() != named["sha256"]:
            yield f"its file {named['name']} was edited: its content does not match its sha256"


def _misplaced(entries: Iterable[store.Entry]) -> Iterable[Finding]:
    for entry in entries:
        if FILE_NAME.match(entry.path.name) and entry.path.name != file_name(entry.record):
            yield Finding(entry.path, f"renamed: its name should be {file_name(entry.record)}")
        folder = machine_folder(entry.record["fingerprint"])
        if entry.machine != folder:
            yield Finding(entry.path, f"foreign to this folder: it is a record of the machine {folder}")


def _duplicates(entries: Iterable[store.Entry]) -> Iterable[Finding]:
    first: dict[str, Path] = {}
    for entry in entries:
        before = first.setdefault(entry.id, entry.path)
        if before.absolute() != entry.path.absolute():
            yield Finding(entry.path, f"duplicate: {before} has the same id {entry.id}")
