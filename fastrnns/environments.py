"""Python environments that are measured: found, and asked what they hold before anything is touched."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastrnns.errors import UsageError
from fastrnns.measure.process import child_environment

IMPORT_SECONDS = 180.0  # the first import of torch from a cold disk takes a minute
# Asked of the interpreter itself: its torch, and what is installed beside it.
ASK = """
import json, platform, sys
from env.software import packages
import torch
errors = {}
print(json.dumps({"torch": torch.__version__, "packages": packages(errors), "python": {
    "version": platform.python_version(), "implementation": platform.python_implementation(),
    "compiler": platform.python_compiler(), "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)()}}))
"""


@dataclass(frozen=True)
class Environment:
    """One interpreter and what it said of itself."""

    python: str
    torch: str
    facts: dict[str, Any]  # of the software fingerprint: `python` and `packages`

    def __str__(self) -> str:
        return f"torch {self.torch} on Python {self.facts['python']['version']}"


def interpreter(named: str, flag: str = "--ab") -> str:
    """The Python of an environment's folder, or the interpreter itself; UsageError where there is none.

    The path is made absolute and no link is followed: a virtual environment is told by the path of its link.
    """
    path = Path(named)
    if path.is_dir():
        path = path / "bin" / "python"
    if not path.is_file() or not os.access(path, os.X_OK):
        raise UsageError(
            f"{flag} {named}: there is no Python there; give an interpreter, or a folder with bin/python"
        )
    return os.path.abspath(path)  # noqa: PTH100 - resolve would follow the link


def ask(pythons: Sequence[str], flag: str = "--ab", modules: Sequence[str] = ("torch",)) -> list[Environment]:
    """What each interpreter holds; UsageError for the first that cannot import the modules."""
    found = []
    for python, answer in zip(pythons, answers(pythons, modules), strict=True):
        if isinstance(answer, str):
            raise UsageError(f"{flag} {python}: {answer}")
        found.append(answer)
    return found


def answers(pythons: Sequence[str], modules: Sequence[str] = ("torch",)) -> list[Environment | str]:
    """What each interpreter holds, or why it cannot import the modules; all are asked at the same time."""
    imports = "".join(f"import {module}\n" for module in modules if module != "torch")
    children = [
        subprocess.Popen(
            [python, "-c", imports + ASK],
            env=child_environment(None),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
        for python in pythons
    ]
    try:
        return [_answer(python, child, modules) for python, child in zip(pythons, children, strict=True)]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def _answer(python: str, child: subprocess.Popen[str], modules: Sequence[str]) -> Environment | str:
    named = " and ".join(modules)
    try:
        out, err = child.communicate(timeout=IMPORT_SECONDS)
    except subprocess.TimeoutExpired:
        return f"importing {named} took more than {IMPORT_SECONDS:g} s"
    if child.returncode != 0:
        last = next((line for line in reversed(err.splitlines()) if line.strip()), "no message")
        return f"it cannot import {named} ({last.strip()[:200]}); install {named} there"
    facts = json.loads(out.splitlines()[-1])
    return Environment(python, facts.pop("torch"), facts)
