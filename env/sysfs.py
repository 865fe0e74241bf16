"""Kernel files below a root: every read and write is a value, and every failure carries its reason."""

from __future__ import annotations

import contextlib
import errno as codes
import fnmatch
import os
import re
import shutil
from dataclasses import dataclass

CPU = "/sys/devices/system/cpu"
SCRATCH = ".fastrnns-write-"
READ_LIMIT = 1 << 20  # no kernel file that we read is longer; a bug report's tree may hold anything

_BRACKETED = re.compile(r"\[([^\[\]\s]+)\]")
_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True)
class Failure:
    """A read or write that did not happen: where, the errno, and a sentence for a person."""

    path: str
    errno: int
    reason: str

    @property
    def code(self) -> str:
        """The errno by name, as `EROFS`."""
        return codes.errorcode.get(self.errno, str(self.errno))


@dataclass(frozen=True)
class Reading:
    """What one file held; `text` is None when it could not be read, and then `failure` says why."""

    path: str
    text: str | None
    failure: Failure | None = None

    @property
    def value(self) -> str | None:
        """The text without surrounding blanks."""
        return None if self.text is None else self.text.strip()

    @property
    def word(self) -> str | None:
        """The chosen word: the bracketed one of `always [madvise] never`, else the whole value."""
        return None if self.text is None else chosen(self.text)

    @property
    def number(self) -> int | None:
        """The value as a whole number, None when it is none."""
        try:
            return None if self.text is None else int(self.text.strip(), 0)
        except ValueError:
            return None

    @property
    def missing(self) -> bool:
        """Whether there is no such file (as against one that refuses)."""
        return self.failure is not None and self.failure.errno in {codes.ENOENT, codes.ENOTDIR, codes.ENODEV}

    @property
    def reason(self) -> str:
        """Why there is no text; empty when there is."""
        return "" if self.failure is None else self.failure.reason


def chosen(text: str) -> str:
    """The bracketed word of a list of choices, or the stripped text of any other file."""
    match = _BRACKETED.search(text)
    return match.group(1) if match else text.strip()


def explain(number: int, path: str, *, writing: bool, euid: int) -> str:
    """A sentence for an errno met at a kernel file: what it means and what a person can do."""
    if number == codes.EROFS:
        top = "/" + path.strip("/").split("/", 1)[0]
        return f"{top} is read-only here (a container?); do this on the host"
    if number in {codes.EPERM, codes.EACCES}:
        if euid == 0 and writing:
            return "refused although we are root: locked by firmware, the kernel or the container"
        return "needs root" if writing else "may not be read without root"
    if number in {codes.ENOENT, codes.ENOTDIR, codes.ENODEV}:
        return "no such file on this machine"
    plain = {
        codes.EBUSY: "busy: the driver refuses it at present",
        codes.EAGAIN: "the driver behind it is switched off",
        codes.EINVAL: "the kernel does not accept the value" if writing else "the kernel could not read it",
        codes.EIO: "the kernel does not allow it here",
        codes.ENOSPC: "no space: for a cpuset, cpuset.mems is not set"
        if "cpuset" in path
        else "no space left",
    }
    return plain.get(number, os.strerror(number).lower())


def numerically(name: str) -> list[tuple[int, int | str]]:
    """Sort key under which cpu10 follows cpu9."""
    return [(0, int(part)) if part.isdigit() else (1, part) for part in _DIGITS.split(name)]


class Files:
    """The machine's files, below a root; paths are the machine's own (`/sys/...`), whatever the root."""

    def __init__(self, root: str = "/", *, euid: int | None = None) -> None:
        self.root = os.path.abspath(root)
        self.real = self.root == "/"
        self.euid = os.geteuid() if euid is None else euid

    def path(self, path: str) -> str:
        """Where the machine's `path` lies for us."""
        return path if self.real else self.root + os.path.normpath("/" + path)

    def failure(self, path: str, number: int, *, writing: bool = False) -> Failure:
        """The failure value for an errno met at `path`."""
        return Failure(path, number, explain(number, path, writing=writing, euid=self.euid))

    def read(self, path: str) -> Reading:
        """The whole text of a file."""
        try:
            fd = os.open(self.path(path), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            try:
                blocks = []
                size = 0
                while size < READ_LIMIT and (block := os.read(fd, 65536)):
                    blocks.append(block)
                    size += len(block)
            finally:
                os.close(fd)
        except OSError as error:
            return Reading(path, None, self.failure(path, error.errno or codes.EIO))
        return Reading(path, b"".join(blocks).decode("utf-8", "surrogateescape"))

    def write(self, path: str, value: str) -> Failure | None:
        """Write one value, as `echo value > path` would; None when the kernel took it."""
        try:
            if self.real:
                fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.write(fd, value.encode("utf-8", "surrogateescape"))
                finally:
                    os.close(fd)
            else:
                self._replace(path, value)
        except OSError as error:
            return self.failure(path, error.errno or codes.EIO, writing=True)
        return None

    def _replace(self, path: str, value: str) -> None:
        """Write to a file of a tree in one step, so that a kill finds it before or after, never torn."""
        place = os.path.realpath(self.path(path))
        fd = os.open(place, os.O_RDWR | os.O_CLOEXEC)
        try:
            before = os.pread(fd, READ_LIMIT, 0).decode("utf-8", "surrogateescape")
            mode = os.fstat(fd).st_mode & 0o7777
        finally:
            os.close(fd)
        text = _as_the_kernel_would_show(before, value)
        scratch = f"{self.root}/{SCRATCH}{os.getpid()}"
        fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            os.write(fd, text.encode("utf-8", "surrogateescape"))
        finally:
            os.close(fd)
        os.replace(scratch, place)

    def sweep(self) -> None:
        """Remove what a killed write left in a tree."""
        if not self.real:
            for path in self.glob("/", SCRATCH + "*"):
                with contextlib.suppress(OSError):
                    os.unlink(self.path(path))

    def unwritable(self, path: str) -> Failure | None:
        """Why a write is sure to fail, as far as that can be known without writing."""
        try:
            if os.statvfs(self.path(path)).f_flag & os.ST_RDONLY:
                return self.failure(path, codes.EROFS, writing=True)
        except OSError as error:
            return self.failure(path, error.errno or codes.EIO, writing=True)
        if self.real and self.euid != 0 and not os.access(path, os.W_OK):
            return self.failure(path, codes.EACCES, writing=True)
        return None

    def exists(self, path: str) -> bool:
        """Whether there is such a file or folder."""
        return os.path.exists(self.path(path))

    def is_dir(self, path: str) -> bool:
        """Whether there is such a folder."""
        return os.path.isdir(self.path(path))

    def names(self, folder: str) -> list[str]:
        """The names in a folder, cpu2 before cpu10; empty when there is no such folder."""
        try:
            return sorted(os.listdir(self.path(folder)), key=numerically)
        except OSError:
            return []

    def glob(self, folder: str, pattern: str) -> list[str]:
        """The machine's paths in `folder` whose name matches, in numeric order."""
        return [f"{folder}/{name}" for name in fnmatch.filter(self.names(folder), pattern)]

    def which(self, program: str) -> str | None:
        """Where an external program is; below a root only `ROOT/bin` counts."""
        if self.real:
            return shutil.which(program)
        return shutil.which(program, path=os.path.join(self.root, "bin"))


def _as_the_kernel_would_show(before: str, value: str) -> str:
    """The text of a file after a write: the kernel keeps its list of choices, marks the chosen, ends its lines."""
    word = value.strip()
    bare = _BRACKETED.sub(r"\1", before)
    if bare != before and word in bare.split():
        return re.sub(rf"(?<!\S){re.escape(word)}(?!\S)", f"[{word}]", bare, count=1)
    body = before.strip()
    if not body:
        return value if value.endswith("\n") or not before.endswith("\n") else value + "\n"
    return before.replace(body, word, 1)
