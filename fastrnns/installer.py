"""A Python environment that holds one torch: made once by uv or pip, kept in a cache folder, used again."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fastrnns.errors import HarnessError

INSTALL_SECONDS = 3600.0
DONE = "complete"  # the file that says that nothing is missing


class InstallError(HarnessError):
    """An environment could not be made; what there was of it is removed again."""


@dataclass(frozen=True)
class Recipe:
    """What an environment is made of, and so what it is called."""

    base: str  # the interpreter that it is made from
    python: str  # its version
    torch: str  # as pip takes it: torch==2.14.1, or the path of a wheel
    key: str  # what tells this torch from any other: a version, a wheel's name and content
    beside: tuple[str, ...] = ()  # further packages
    index: tuple[str, ...] = ()  # further package indexes, by URL

    @property
    def name(self) -> str:
        """The folder's name: readable, and another one for anything else that is installed."""
        more = hashlib.sha256("\n".join([*sorted(self.beside), "", *self.index]).encode()).hexdigest()[:8]
        return f"python{self.python}-torch{re.sub(r'[^A-Za-z0-9.+_-]', '_', self.key)}-{more}"


def default_cache() -> Path:
    """The user's folder for what can be made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fastrnns"


def python_of(folder: Path) -> Path:
    """The interpreter of an environment."""
    return folder / "bin" / "python"


def kept(recipe: Recipe, cache: Path) -> str | None:
    """The interpreter of an environment that is whole already; None where it has to be made."""
    folder = cache / recipe.name
    python = python_of(folder)
    whole = (folder / DONE).exists() and python.exists() and os.access(python, os.X_OK)
    return str(python) if whole else None


def commands(recipe: Recipe, folder: Path, uv: str | None) -> list[list[str]]:
    """What makes it: by uv where its path is given, else by venv and pip."""
    python = str(python_of(folder))
    wanted = [recipe.torch, *recipe.beside]
    wanted += [word for url in recipe.index for word in ("--extra-index-url", url)]
    if uv is not None:
        return [
            [uv, "venv", "--quiet", "--python", recipe.base, str(folder)],
            [uv, "pip", "install", "--quiet", "--python", python, *wanted],
        ]
    return [
        [recipe.base, "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
    ]


def make(recipe: Recipe, cache: Path, uv: str | None = None) -> str:
    """The interpreter of the environment, made now unless it is kept already.

    Raises:
        InstallError: the installer's own last words, in one sentence.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _alone(cache / f"{recipe.name}.lock"):
            return kept(recipe, cache) or _made(recipe, cache / recipe.name, uv)
    except OSError as error:
        raise InstallError(
            f"{cache} cannot be written to ({error.strerror}); choose another folder"
        ) from None


def _made(recipe: Recipe, folder: Path, uv: str | None) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    try:
        for words in commands(recipe, folder, uv):
            _run(words)
        (folder / DONE).touch()
    except BaseException:  # an interruption too: half an environment is gigabytes that nobody uses
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return str(python_of(folder))


def _run(words: list[str]) -> None:
    try:
        made = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=INSTALL_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise InstallError(f"it took more than {INSTALL_SECONDS:g} s") from None
    except OSError as error:
        raise InstallError(f"{Path(words[0]).name} cannot be started ({error.strerror})") from None
    if made.returncode != 0:
        raise InstallError(reason(made.stderr or made.stdout))


def reason(said: str) -> str:
    """What an installer's output says of why it failed: its last error, else its last line."""
    if "No space left on device" in said:
        return "no space is left on the device; make room, or choose another folder"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"(ERROR|error|\u00d7|Error)", line)]
    telling = [line for line in errors if "ResolutionImpossible" not in line]
    last = (telling or errors or lines or ["no reason given"])[-1]
    requested = [line for line in lines if line.startswith("The user requested")]
    return "; ".join([re.sub(r"^(ERROR|error|Error|\u00d7):?\s*", "", last), *requested])[:300]


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[None]:
    """Two commands at once make an environment one after the other, so that the second finds it made."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
