"""Where an index lies: a folder, or whatever fsspec can reach; a partition there is replaced whole or not at all."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote

from fastrnns.archive import durable
from fastrnns.archive.index import tables
from fastrnns.archive.index.layout import FOLDER, PART, Partition, month_of
from fastrnns.errors import HarnessError, UsageError

LEFT_ASIDE = ".part-"
PARTITIONS = "machine=*/month=*/" + PART


class Place(Protocol):
    """A place for partitions."""

    where: str
    takes_turns: bool  # whether `locked` keeps others out

    def present(self) -> bool:
        """Whether an index is there."""

    def partitions(self) -> set[Partition]:
        """The partitions that are there."""

    def open(self, key: Partition) -> tables.Part | None:
        """A partition for reading; None where there is none, or none that this version reads."""

    def write(self, key: Partition, found: tables.Tables) -> None:
        """Replace a partition; one that is empty is removed."""

    def locked(self, key: Partition) -> AbstractContextManager[None]:
        """Keep other writers of a partition out, where the place can."""


class Folder:
    """An index in a folder; writers of one partition take turns."""

    takes_turns = True

    def __init__(self, root: Path) -> None:
        """Name the folder; nothing is made yet."""
        self.root = root
        self.where = str(root)

    def present(self) -> bool:
        """Whether an index is there."""
        return self.root.is_dir()

    def partitions(self) -> set[Partition]:
        """The partitions that are there."""
        return {
            Partition(unquote(path.parent.parent.name.partition("=")[2]), month)
            for path in self.root.glob(PARTITIONS)
            if (month := month_of(path.parent.name))
        }

    def open(self, key: Partition) -> tables.Part | None:
        """A partition for reading; None where there is none, or none that this version reads."""
        try:
            return tables.Part(str(self.root / _folder(key) / PART))
        except (OSError, ValueError):
            return None

    def write(self, key: Partition, found: tables.Tables) -> None:
        """Write aside, flush, and take the name."""
        folder = self.root / _folder(key)
        if tables.empty(found):
            (folder / PART).unlink(missing_ok=True)
            return
        aside = folder / f"{LEFT_ASIDE}{os.getpid()}-{secrets.token_hex(4)}.tmp"
        try:
            with aside.open("xb") as sink:
                tables.write(found, sink)
                sink.flush()
                os.fsync(sink.fileno())
            durable.give_to_caller(aside)
            aside.replace(folder / PART)
        except OSError as error:
            raise _unwritable(self.where, error) from None
        finally:
            with contextlib.suppress(OSError):
                aside.unlink()
        durable.flush_folder(folder)

    @contextlib.contextmanager
    def locked(self, key: Partition) -> Iterator[None]:
        """Hold the partition's lock; what a killed writer left aside is removed under it."""
        folder = self.root / _folder(key)
        with contextlib.ExitStack() as stack:
            try:
                durable.make_folder(folder)
                alone = stack.enter_context(durable.locked(folder))
            except OSError as error:
                raise _unwritable(self.where, error) from None
            if alone:
                for path in folder.glob(f"{LEFT_ASIDE}*.tmp"):
                    path.unlink(missing_ok=True)
            yield


class Remote:
    """An index behind an fsspec URL; there is no lock there, so that the builder looks again after it wrote."""

    takes_turns = False

    def __init__(self, url: str) -> None:
        """Reach the place; raises UsageError where fsspec does not know how to."""
        fsspec = tables.needed("fsspec")
        try:
            self.files, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError, OSError) as error:
            said = str(error).rstrip(".").splitlines()[0]
            raise UsageError(
                f"no index can lie at {url} ({said}); give a folder or a URL that fsspec opens"
            ) from None
        self.root = str(root).rstrip("/")
        self.where = url.rstrip("/")

    def present(self) -> bool:
        """Whether an index is there."""
        return bool(self.files.isdir(self.root))

    def partitions(self) -> set[Partition]:
        """The partitions that are there."""
        found = set()
        for path in self.files.glob(f"{self.root}/{PARTITIONS}"):
            machine, month, _ = str(path).rsplit("/", 3)[1:]
            if known := month_of(month):
                found.add(Partition(unquote(machine.partition("=")[2]), known))
        return found

    def open(self, key: Partition) -> tables.Part | None:
        """A partition for reading; None where there is none, or none that this version reads."""
        try:
            return tables.Part(self.files.open(self._path(key), "rb"))
        except (OSError, ValueError):
            return None

    def write(self, key: Partition, found: tables.Tables) -> None:
        """Put the whole object, which a store of objects does at once."""
        path = self._path(key)
        if tables.empty(found):
            with contextlib.suppress(FileNotFoundError):
                self.files.rm_file(path)
            return
        sink = io.BytesIO()
        tables.write(found, sink)
        try:
            self.files.makedirs(path.rpartition("/")[0], exist_ok=True)
            self.files.pipe_file(path, sink.getvalue())
        except OSError as error:
            raise _unwritable(self.where, error) from None

    def locked(self, key: Partition) -> AbstractContextManager[None]:  # noqa: ARG002 - a place without locks
        """Nobody is kept out here."""
        return contextlib.nullcontext()

    def _path(self, key: Partition) -> str:
        return f"{self.root}/{_folder(key)}/{PART}"


def place(archive: Path, where: str | None) -> Place:
    """The index that is named, else the one in the archive."""
    if where is None:
        return Folder(archive / FOLDER)
    scheme, found, rest = where.partition("://")
    if not found:
        return Folder(Path(where))
    return Folder(Path(rest)) if scheme == "file" else Remote(where)


def _folder(key: Partition) -> str:
    return f"machine={quote(key.machine, safe='')}/month={key.month}"


def _unwritable(where: str, error: OSError) -> HarnessError:
    said: Any = error.strerror or type(error).__name__
    return HarnessError(
        f"the index {where} cannot be written ({str(said).lower()}); make room, or name another"
    )
