"""The Python interpreters that environments are made from: found by version or path, and asked who they are."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from fastrnns.errors import UsageError

ASK = "import platform, ensurepip, venv; print(platform.python_version())"
ASK_SECONDS = 30.0
LEAST = (3, 10)  # what this project runs on


@dataclass(frozen=True)
class Interpreter:
    """One interpreter."""

    path: str
    version: str  # 3.11.7

    @property
    def minor(self) -> str:
        """3.11."""
        return ".".join(self.version.split(".")[:2])


def resolve(named: str | None) -> Interpreter:
    """The interpreter of a version (3.12) or a path; of None this one. UsageError where it does not answer."""
    if named is None:
        return _asked(sys.executable, "this Python")
    path = shutil.which(named) if os.sep in named else shutil.which(f"python{named}") or _of_uv(named)
    if path is None:
        raise UsageError(
            f"--python {named}: there is none on the PATH; install it, or give an interpreter's path"
        )
    found = _asked(path, f"--python {named}")
    if os.sep not in named and not (found.version + ".").startswith(named + "."):
        raise UsageError(
            f"--python {named}: {path} is Python {found.version}; give the path of the right one"
        )
    return found


def _of_uv(named: str) -> str | None:
    """An interpreter that uv knows of; none is downloaded."""
    uv = shutil.which("uv")
    if uv is None:
        return None
    words = [uv, "python", "find", "--no-python-downloads", named]
    try:
        told = subprocess.run(words, capture_output=True, text=True, timeout=ASK_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return told.stdout.strip() or None


def _asked(path: str, named: str) -> Interpreter:
    try:
        told = subprocess.run(
            [path, "-c", ASK], capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"{named}: {Path(path).name} does not answer ({error}); give another") from None
    version = told.stdout.strip()
    if told.returncode != 0 or not version:
        lines = [line.strip() for line in told.stderr.splitlines() if line.strip()] or ["no message"]
        why = lines[-1] if lines[0].startswith("Traceback") else lines[0]
        raise UsageError(
            f"{named}: {Path(path).name} cannot make environments ({why[:200]}); "
            "install it whole, with venv, or give another"
        )
    if tuple(int(part) for part in version.split(".")[:2]) < LEAST:
        raise UsageError(f"{named} is Python {version}; this project runs on {LEAST[0]}.{LEAST[1]} and later")
    return Interpreter(path, version)
