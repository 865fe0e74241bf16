"""What may leave this machine: takes names, paths, addresses and secrets out of text, whoever wrote it."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import socket
import sys
import tempfile
from pathlib import Path
from typing import Any

try:
    import pwd
except ImportError:  # not a POSIX system
    pwd = None  # type: ignore[assignment]

# Words of our own vocabulary: where an account or a host is called like one of them, the word alone tells
# nothing about it, and replacing it would damage the record.
_WORDS = """
    root user users admin nobody localhost local host main master bench benchmark test tests verify profile
    compare cudnn aten jit torch pytorch python linux debian ubuntu cpu cuda gpu lstm gru rnn rnns
    cnns forward backward valid tainted invalid stable unstable locked unavailable unknown governor
    turbo shield smt performance powersave schedutil system slice machine model group options results
    environment nvidia amd
    intel auto float32 float64 float16 bfloat16 default none true false null apply check ignore
    """
OWN_WORDS = frozenset(_WORDS.split())
SHORTEST_NAME = 3  # a name of one or two letters would be found in every second word

URL = re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s'\"<>|\\^`{}]+", re.IGNORECASE)
SCP_ADDRESS = re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*(?::[\w./~-]+)?")  # git@host:path and mail
TOKENS = (
    re.compile(r"\bgh[pousr]_[A-Za-z0-9]{16,}\b"),
    re.compile(r"\bgithub_pat_\w{20,}\b"),
    re.compile(r"\bglpat-[\w-]{16,}"),
    re.compile(r"\bhf_[A-Za-z0-9]{16,}\b"),
    re.compile(r"\bsk-[\w-]{16,}"),
    re.compile(r"\bpypi-[\w-]{16,}"),
    re.compile(r"\bxox[abprs]-[\w-]{10,}"),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
BEARER = re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE)
ASSIGNED_SECRET = re.compile(
    r"(?P<name>[\w-]*(?:token|secret|passwd|password|passphrase|api[_-]?key|access[_-]?key|credential|cookie)s?)"
    r"(?P<mark>[\"']?\s*[=:]\s*[\"']?|\s+(?=[\w.~+/=-]{16,}))(?P<value>[^\s\"',;&]+)",
    re.IGNORECASE,
)
OTHER_HOMES = re.compile(r"(?<![\w.])(?:/(?:var/)?home/|/Users/|/export/home/)[^/\s'\":,;()\[\]]+")
WINDOWS_HOMES = re.compile(r"\b[A-Za-z]:\\+Users\\+[^\\\s'\":,;()]+", re.IGNORECASE)
USER_RUNTIME = re.compile(r"/run/user/\d+")
ROOT_HOME = re.compile(r"(?<![\w./~-])/root(?![\w-])")
MAC_ADDRESS = re.compile(r"\b(?:[0-9a-f]{2}:){5}[0-9a-f]{2}\b", re.IGNORECASE)


def scrub(text: str) -> str:
    """Text without home and project paths, user and host names, addresses, tokens; idempotent."""
    for pattern in TOKENS:
        text = pattern.sub("<token>", text)
    text = BEARER.sub(r"\1 <token>", text)
    text = URL.sub("<url>", text)
    text = ASSIGNED_SECRET.sub(_without_value, text)
    text = SCP_ADDRESS.sub("<address>", text)
    for path, label in _own_paths():
        text = _replace_path(text, path, label)
    text = OTHER_HOMES.sub("~", text)
    text = WINDOWS_HOMES.sub("~", text)
    text = ROOT_HOME.sub("~", text)
    text = USER_RUNTIME.sub("<runtime>", text)
    text = MAC_ADDRESS.sub("<mac>", text)
    for pattern, label in _own_names():
        text = pattern.sub(label, text)
    return text


def scrub_all(value: Any) -> Any:
    """A JSON value with every string in it scrubbed, keys included; numbers are left as they are."""
    if isinstance(value, str):
        return scrub(value)
    if isinstance(value, dict):
        return {scrub(key) if isinstance(key, str) else key: scrub_all(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        if all(type(item) in (float, int) for item in value):  # samples: long, and nothing to find in them
            return list(value)
        return [scrub_all(item) for item in value]
    return value


def forget() -> None:
    """Look the names and paths of this machine up again (for tests, and after a change of user)."""
    _own_paths.cache_clear()
    _own_names.cache_clear()


def _without_value(match: re.Match[str]) -> str:
    if match["value"] == "<token>":
        return match[0]
    return f"{match['name']}{match['mark']}<token>"


def _replace_path(text: str, path: str, label: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(path)}(?![\w-])", lambda _: label, text)


@functools.lru_cache(maxsize=1)
def _own_paths() -> tuple[tuple[str, str], ...]:
    """The paths that say who and where we are, longest first, with what stands for them."""
    found: dict[str, str] = {}
    for home in _homes():
        found[home] = "~"
    for text, label in (
        (tempfile.gettempdir(), "<tmp>"),
        (os.environ.get("TMPDIR", ""), "<tmp>"),
        (str(Path(__file__).resolve().parent.parent), "<project>"),
        (os.environ.get("VIRTUAL_ENV", ""), "<python>"),
        (os.path.dirname(os.path.dirname(os.path.abspath(sys.executable or ""))), "<python>"),  # noqa: PTH120, PTH100
    ):
        path = text.rstrip("/\\")
        if len(path) > 1 and path not in {"/usr", "/usr/local", "/opt"}:
            found[path] = label
    return tuple(sorted(found.items(), key=lambda item: -len(item[0])))


def _homes() -> set[str]:
    homes = {os.environ.get("HOME", ""), os.environ.get("USERPROFILE", "")}
    if pwd is not None:
        for user_id in _user_ids():
            try:
                homes.add(pwd.getpwuid(user_id).pw_dir)
            except (KeyError, OSError):
                continue
    resolved = {os.path.realpath(home) for home in homes if home}
    return {
        home.rstrip("/\\")
        for home in homes | resolved
        if len(home.rstrip("/\\")) > 1 and Path(home).is_absolute()
    }


def _user_ids() -> set[int]:
    ids = {os.getuid(), os.geteuid()}
    sudo_uid = os.environ.get("SUDO_UID", "")
    if sudo_uid.isdigit():
        ids.add(int(sudo_uid))
    return ids


@functools.lru_cache(maxsize=1)
def _own_names() -> tuple[tuple[re.Pattern[str], str], ...]:
    """Patterns for the account and the host, longest first, with what stands for them."""
    names = dict.fromkeys(_user_names(), "<user>")
    names.update(dict.fromkeys(_host_names(), "<host>"))
    wanted = [
        (name, label)
        for name, label in names.items()
        if len(name) >= SHORTEST_NAME and name.lower() not in OWN_WORDS and not name.isdigit()
    ]
    wanted.sort(key=lambda item: -len(item[0]))
    return tuple(
        (re.compile(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", re.IGNORECASE), label)
        for name, label in wanted
    )


def _user_names() -> set[str]:
    names = {os.environ.get(key, "") for key in ("USER", "LOGNAME", "SUDO_USER", "USERNAME")}
    if pwd is not None:
        for user_id in _user_ids():
            try:
                entry = pwd.getpwuid(user_id)
            except (KeyError, OSError):
                continue
            names |= {entry.pw_name, entry.pw_gecos.split(",")[0]}
    return {name.strip() for name in names if name.strip()}


def _host_names() -> set[str]:
    names = {os.environ.get("HOSTNAME", "")}
    for ask in (socket.gethostname, lambda: os.uname().nodename):
        try:
            names.add(ask())
        except OSError:
            continue
    with contextlib.suppress(OSError):
        names.add(Path("/etc/hostname").read_text(encoding="utf-8", errors="replace").strip())
    names |= {name.split(".")[0] for name in names}
    return {name for name in names if name}
