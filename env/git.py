"""Which commit of this project is running, and whether it was changed; or null, and why."""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

from env.errors import EnvError
from env.probes import Answer, command

PROJECT = Path(__file__).resolve().parent.parent
MEASURED = ("fastrnns", "env")  # the packages whose code a result depends on
GIT_LIMIT_S = 10.0


def commit_facts(project: Path = PROJECT, *, git: str = "git") -> dict[str, Any]:
    """`{commit, dirty, reason}`; dirty counts changed tracked files, not new ones (results are new files)."""
    top = _git(project, git, "rev-parse", "--show-toplevel")
    if not top.known:
        return {"commit": None, "dirty": None, "reason": _plain(top.reason)}
    if os.path.realpath(top.value.strip()) != os.path.realpath(project):
        ours = _git(project, git, "ls-files", "--error-unmatch", "--", "env/git.py")
        if not ours.known:
            return {
                "commit": None,
                "dirty": None,
                "reason": "installed inside a repository that is not this project's",
            }
    commit = _git(project, git, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not commit.known:
        return {"commit": None, "dirty": None, "reason": "the repository has no commit yet"}
    changed = _git(
        project, git, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules=untracked"
    )
    return {
        "commit": commit.value.strip(),
        "dirty": bool(changed.value.strip()) if changed.known else None,
        "reason": "" if changed.known else _plain(changed.reason),
    }


def uncommitted(folder: Path, *, git: str = "git") -> list[str] | None:
    """Files below a folder, from there, that git has otherwise than HEAD, staged or not; None outside a repository.

    Raises EnvError where there is a repository that git does not answer for: what it holds is then not known.
    """
    held = any((above / ".git").exists() for above in (folder.absolute(), *folder.absolute().parents))
    if not held:
        return None
    head = _git(folder, git, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    asked = ("diff", "--name-only", "--no-ext-diff", "--no-renames", "--relative", "-z", "HEAD", "--", ".")
    found = _git(folder, git, *(asked if head.known else ("ls-files", "-z", "--", ".")))
    if not found.known:
        raise EnvError(
            f"git does not say what is committed ({_plain(found.reason)}); make git work there, or use a copy"
        )
    return [name for name in found.value.split("\0") if name]


def source_sha256(project: Path = PROJECT) -> str | None:
    """One hash over the names and bytes of the project's code: the code that ran, committed or not."""
    digest = hashlib.sha256()
    count = 0
    for package in MEASURED:
        for path in sorted((project / package).rglob("*.py")):
            try:
                data = path.read_bytes()
            except OSError:
                continue
            name = path.relative_to(project).as_posix()
            digest.update(f"{name}\0{len(data)}\0".encode("utf-8", "surrogateescape"))
            digest.update(data)
            count += 1
    return digest.hexdigest() if count else None


def _git(project: Path, git: str, *arguments: str) -> Answer:
    """One git command, as the project's owner, that writes no index, runs no hook and asks nothing."""
    # A repository's variables (set inside hooks) would point git elsewhere.
    environment = {
        key: value
        for key, value in os.environ.items()
        if key == "GIT_TEST_ASSUME_DIFFERENT_OWNER" or not key.startswith("GIT_")
    }
    environment |= {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    options: dict[str, Any] = {}
    if sys.platform != "win32" and os.geteuid() == 0:
        # Under sudo the answer is to be the invoking user's; git refuses another owner's repository to root.
        try:
            owner = project.stat()
        except OSError as error:
            return Answer(None, str(error.strerror))
        if owner.st_uid != 0:
            options = {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
            environment["GIT_CONFIG_GLOBAL"] = os.devnull
    return command(
        [git, "-c", "core.fsmonitor=false", "-C", str(project), *arguments],
        limit_s=GIT_LIMIT_S,
        env=environment,
        **options,
    )


def _plain(reason: str) -> str:
    """Git's refusals in words that hold no path."""
    text = reason.lower()
    if "no such file" in text or "not found" in text:
        return "git is not installed"
    if "dubious ownership" in text or "unsafe repository" in text:
        return "git does not trust the repository: it belongs to another user"
    if "not a git repository" in text:
        return "not a git repository"
    return f"git: {reason}"
