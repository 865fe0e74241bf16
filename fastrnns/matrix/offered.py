"""Which releases of torch the package index offers, asked of pip before anything is installed."""

from __future__ import annotations

import difflib
import importlib.util
import re
import subprocess
import sys
from collections.abc import Sequence

from fastrnns.errors import UsageError
from fastrnns.matrix import versions
from fastrnns.matrix.interpreters import Interpreter

ASK_SECONDS = 120.0
SHOWN = 6


def releases(python: Interpreter, index: Sequence[str] = ()) -> list[str] | None:
    """All releases, pre-releases too, that pip could install for a Python; newest first. None without a pip to ask.

    Raises:
        UsageError: there is none, or no index answers.
    """
    words = [
        sys.executable if importlib.util.find_spec("pip") is not None else python.path,
        "-m",
        "pip",
        "index",
        "versions",
        "torch",
        "--pre",
        "--disable-pip-version-check",
    ]
    words += ["--python-version", python.minor, "--retries", "1", "--timeout", "15"]
    words += [word for url in index for word in ("--extra-index-url", url)]
    try:
        told = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        raise UsageError(_unreachable(python, "no answer")) from None
    if "No module named pip" in told.stderr:  # as in the environments that uv makes
        return None
    found = listed(told.stdout)
    if not found:
        last = next((line for line in reversed(told.stderr.splitlines()) if line.strip()), "no answer")
        raise UsageError(_unreachable(python, last.strip()[:200]))
    return found


def listed(said: str) -> list[str]:
    """The versions in what `pip index versions` prints."""
    line = re.search(r"^Available versions:(.*)$", said, re.MULTILINE)
    return [each.strip() for each in line[1].split(",") if each.strip()] if line else []


def _unreachable(python: Interpreter, why: str) -> str:
    return (
        f"no package index offers torch for Python {python.minor} (pip: {why}); connect to one, or give wheels by"
        " path or environments by folder"
    )


def refuse_missing(wanted: Sequence[str], offered: Sequence[str], python: Interpreter) -> None:
    """Raise UsageError for a release that is not offered, with those that are near."""
    for release in wanted:
        if any(versions.matches(release, each) for each in offered):
            continue
        plain = [each for each in dict.fromkeys(offered) if "+" not in each]
        near = difflib.get_close_matches(release, plain, n=SHOWN, cutoff=0.5) or plain[:SHOWN]
        raise UsageError(
            f"torch {release} is not offered for Python {python.minor}; there are, among others, {', '.join(near)}:"
            " name one of them, or add the index that has it with --extra-index-url"
        )
