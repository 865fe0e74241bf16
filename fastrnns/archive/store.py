"""The archive: a folder of machines, in each one file a record; written once, never changed, found again."""

from __future__ import annotations

import json
import os
import re
import secrets
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastrnns.archive import durable, record
from fastrnns.archive.naming import COUNTER, FILE_NAME, LOCK, PROBE, file_name, machine_folder
from fastrnns.archive.strict import dumps
from fastrnns.errors import HarnessError, UsageError

DEFAULT = "results"
ID_PREFIX = re.compile(r"^[0-9a-f]{4,12}$")
LATEST = re.compile(r"^latest(?:~(\d+))?$")


class ArchiveError(HarnessError):
    """A record could not be written where it was to go; `saved` is where it lies in place of that."""

    def __init__(self, message: str, saved: Path | None = None) -> None:
        super().__init__(message)
        self.saved = saved


@dataclass(frozen=True)
class Entry:
    """One record of the archive, read and checked."""

    path: Path
    record: dict[str, Any] = field(repr=False)

    @property
    def machine(self) -> str:
        """The folder that the record lies in."""
        return self.path.parent.name

    @property
    def id(self) -> str:
        """The record's id."""
        return str(self.record["id"])


@dataclass(frozen=True)
class Survey:
    """All records that could be read, oldest first, and a sentence for each file that could not."""

    entries: tuple[Entry, ...]
    damaged: tuple[tuple[Path, str], ...]

    @property
    def problems(self) -> tuple[str, ...]:
        """The sentences alone."""
        return tuple(text for _, text in self.damaged)


@dataclass(frozen=True)
class Archive:
    """An archive at a folder."""

    folder: Path

    def __init__(self, folder: str | os.PathLike[str] = DEFAULT) -> None:
        object.__setattr__(self, "folder", Path(folder))

    def write(self, found: Mapping[str, Any]) -> Path:
        """Write a record: scrubbed, numbered, hashed, checked, whole; returns where it lies.

        Raises ArchiveError where the folder cannot take it; the record is then in a temporary folder.
        """
        try:
            return self._write(found)
        except OSError as error:
            raise self._rescued(found, error) from None

    def add(self, path: Path) -> Path:
        """Take in a record that lies elsewhere; it keeps its id and gets the next sequence number here."""
        entry = read(path)
        there = [known for known in self.files() if known.name == path.name or f"-{entry.id}." in known.name]
        if there:
            raise UsageError(f"{path} is already in the archive, as {there[0]}; nothing to add")
        try:
            return self._write(entry.record)
        except OSError as error:
            raise ArchiveError(
                f"the archive {self.folder} cannot be written ({_why(error)}); make room"
            ) from None

    def load(self, ref: str | os.PathLike[str]) -> dict[str, Any]:
        """The record that `ref` means: a path, an id or the beginning of one, `latest` or `latest~N`."""
        return self.find(ref).record

    def find(self, ref: str | os.PathLike[str]) -> Entry:
        """As `load`, with the file that it lies in."""
        text = os.fspath(ref)
        if latest := LATEST.match(text):
            return self._latest(int(latest[1] or 0), text)
        path = Path(text)
        if path.is_file():
            return read(path)
        if ID_PREFIX.match(text):
            return self._by_id(text)
        if os.sep in text or text.endswith(".json"):
            raise UsageError(f"there is no file {text}; give a record's path, its id, latest or latest~N")
        raise UsageError(f"{text!r} is no record: give a path, an id (4 to 12 of 0-9a-f), latest or latest~N")

    def survey(self) -> Survey:
        """Read everything; a damaged file costs only itself, and is named."""
        return self._survey(self.files())

    def _survey(self, paths: Iterable[Path]) -> Survey:
        entries, problems = [], []
        for path in paths:
            try:
                entries.append(read(path))
            except HarnessError as error:
                problems.append((path, str(error)))
        return Survey(tuple(in_order(entries)), tuple(problems))

    def files(self) -> Sequence[Path]:
        """Every file that is named as a record, in every machine's folder."""
        return sorted(path for path in self.folder.glob("*/*.json") if not path.name.startswith("."))

    def preflight(self) -> None:
        """Refuse, before anything is measured, an archive that could not take the record."""
        try:
            durable.make_folder(self.folder)
            probe = self.folder / f"{PROBE}{os.getpid()}-{secrets.token_hex(4)}"
            durable.write_new(probe, b"x" * 4096)
            probe.unlink()
        except OSError as error:
            raise UsageError(
                f"the archive {self.folder} cannot be written ({_why(error)}); give another with --archive"
            ) from None

    def overview(self) -> Survey:
        """As `survey`, for order, ids, kinds and verdicts alone: from the index, where the archive has one."""
        from fastrnns.archive.index import thin  # stands on this module

        return thin.overview(self)

    def list(self, kind: str | None = None) -> Sequence[Entry]:
        """The readable records, oldest first; of one kind, files named as another are not opened."""
        if kind is None:
            return self.survey().entries
        named = [(path, FILE_NAME.match(path.name)) for path in self.files()]
        found = self._survey(path for path, name in named if name is None or name[2] == kind)
        return [entry for entry in found.entries if entry.record["kind"] == kind]

    def _write(self, found: Mapping[str, Any]) -> Path:
        ready = record.prepare(found)
        folder = self.folder / machine_folder(ready["fingerprint"])
        durable.make_folder(folder)
        with durable.locked(folder) as alone:
            if alone:
                durable.clear_leftovers(folder)
            number, last = counted(folder)
            ready["sequence"] = last + 1
            while True:
                path = folder / file_name(ready)
                sealed = record.seal(ready)
                try:
                    durable.write_new(path, dumps(sealed).encode("ascii"))
                except FileExistsError:
                    ready["id"] = secrets.token_hex(6)
                    continue
                break
            if alone:
                count(folder, number + 1, ready["sequence"])
        return path

    def _rescued(self, found: Mapping[str, Any], error: OSError) -> ArchiveError:
        """Put the record where there is room, and say so."""
        why = f"the archive {self.folder} could not be written ({_why(error)})"
        try:
            aside = Path(tempfile.mkdtemp(prefix="fastrnns-record-"))
            ready = record.seal(found)
            path = aside / file_name(ready)
            durable.write_new(path, dumps(ready).encode("ascii"))
        except OSError as second:
            return ArchiveError(
                f"{why}, nor could the folder for temporary files ({_why(second)}); make room and repeat"
            )
        remedy = f"python -m fastrnns.archive add {path}"
        return ArchiveError(f"{why}; the record is safe in {path}: make room, then run {remedy}", path)

    def _by_id(self, prefix: str) -> Entry:
        paths = [
            path
            for path in self.files()
            if (name := FILE_NAME.match(path.name)) and name[3].startswith(prefix)
        ]
        if not paths:
            raise UsageError(
                f"no record in {self.folder} has an id that begins with {prefix}; see: archive list"
            )
        if len(paths) > 1:
            ids = ", ".join(sorted(path.stem.rsplit("-", 1)[1] for path in paths)[:5])
            raise UsageError(
                f"{prefix} could be {len(paths)} records ({ids}); give more of the id, or a path"
            )
        return read(paths[0])

    def _latest(self, back: int, text: str) -> Entry:
        survey = self.overview()
        if back >= len(survey.entries):
            damaged = f", and {len(survey.problems)} that cannot be read" if survey.problems else ""
            raise UsageError(
                f"{text}: {self.folder} holds {len(survey.entries)} records{damaged}; see: archive list"
            )
        found = survey.entries[-1 - back]
        # A damaged file must not make an older record the latest without a word.
        since = found.path.name[: len("YYYYMMDDTHHMMSSZ")]
        doubt = [damaged for path, damaged in survey.damaged if path.name >= since]
        if doubt:
            raise HarnessError(f"{text} is not certain, because {doubt[0]}; or give the record's id")
        return read(found.path)


def read(path: Path) -> Entry:
    """The record in a file, checked in full."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({_why(error)}); check the path and its permissions"
        ) from None
    return Entry(path, record.parse(data, str(path)))


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """Oldest first: within a machine by sequence, whatever its clock did; across machines by time.

    A clock that was set back must not put a later record before an earlier one, so that each record counts as
    no earlier than those before it on its machine.
    """
    ordered: list[tuple[str, str, int, str, Entry]] = []
    reached: dict[str, str] = {}
    for entry in sorted(
        entries, key=lambda item: (item.record["sequence"], item.record["started_at"], item.id)
    ):
        time = max(reached.get(entry.machine, ""), entry.record["started_at"])
        reached[entry.machine] = time
        ordered.append((time, entry.machine, entry.record["sequence"], entry.record["started_at"], entry))
    return [item[-1] for item in sorted(ordered, key=lambda item: item[:4])]


def counted(folder: Path) -> tuple[int, int]:
    """How many records a machine's folder holds, and the last sequence number given there.

    The counter beside them is trusted only while it agrees with the number of files: records come and go by
    git, and a writer may be killed before it counts.
    """
    names = [path for path in folder.glob("*.json") if not path.name.startswith(".")]
    try:
        number, last = json.loads((folder / COUNTER).read_text(encoding="ascii"))
        if number == len(names):
            return int(number), int(last)
    except (OSError, ValueError, TypeError):
        pass
    last = len(names) if names else 0
    for path in names:
        try:
            last = max(last, int(json.loads(path.read_bytes())["sequence"]))
        except (OSError, ValueError, TypeError, KeyError):
            continue
    return len(names), last


def count(folder: Path, number: int, last: int) -> None:
    """Note the count; a torn or missing note only costs the next writer a look at the files."""
    path = folder / COUNTER
    try:
        path.write_text(json.dumps([number, last]), encoding="ascii")
        durable.give_to_caller(path)
    except OSError:
        path.unlink(missing_ok=True)


def _why(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()


def bookkeeping(name: str) -> bool:
    """Whether a file in a machine's folder is the archive's own, and no record."""
    return name in {LOCK, COUNTER}
