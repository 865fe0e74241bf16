"""The record: what one command leaves in the archive, how it begins, and what makes it whole.

History of the format:
    1  the first
"""

from __future__ import annotations

import functools
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import resources
from typing import Any

from env.privacy import scrub, scrub_all
from fastrnns.archive.strict import NotStrictError, canonical, content_hash, loads, strict
from fastrnns.archive.verdict import verdict
from fastrnns.errors import HarnessError

__all__ = [
    "SCHEMA",
    "NotStrictError",
    "RecordError",
    "canonical",
    "content_hash",
    "new",
    "parse",
    "prepare",
    "scrub",
    "seal",
    "strict",
    "validate",
    "verdict",
]

SCHEMA = 1
SCHEMA_FILE = "record.schema.json"
FEW = 16  # lists of numbers longer than this are checked here, in place of a visit of the validator to each
RESULT_PATH = re.compile(r"^results\[(\d+)\]\.")


class RecordError(HarnessError):
    """A record that is not one; `cause` is torn, edited, another-version or not-as-schema."""

    def __init__(self, message: str, cause: str = "not-as-schema") -> None:
        super().__init__(message)
        self.cause = cause


def new(
    kind: str,
    argv: Sequence[str],
    problem: Mapping[str, Any] | None,
    options: Mapping[str, Any],
    *,
    now: datetime | None = None,
) -> dict[str, Any]:
    """A record at the start of a command: everything there, nothing found yet, and so not valid.

    The caller fills results, environment, fingerprint, duration_s, exit_code and verdict; `Archive.write`
    gives it its sequence number and its hash.
    """
    return {
        "schema": SCHEMA,
        "kind": kind,
        "id": secrets.token_hex(6),
        "started_at": _time(now or datetime.now(timezone.utc)),
        "duration_s": 0.0,
        "sequence": 1,
        "exit_code": None,
        "command": {"argv": [str(word) for word in argv]},
        "problem": None if problem is None else dict(problem),
        "options": dict(options),
        "results": [],
        "environment": {"before": [], "after": [], "shield": None, "watch": None, "drift": []},
        "fingerprint": {
            "hardware": {},
            "software": {},
            "state": {},
            "ids": {"hardware": None, "software": None, "state": None},
            "errors": {},
        },
        "verdict": {"status": "invalid", "reasons": ["the command has not finished"]},
        "sha256": "0" * 64,
    }


def prepare(record: Mapping[str, Any]) -> dict[str, Any]:
    """A copy that strict JSON can hold and that tells nothing private; what was lost is noted in it."""
    reasons: list[str] = []
    ready: dict[str, Any] = scrub_all(strict(dict(record), reasons))
    for reason in reasons:
        place = RESULT_PATH.match(reason)
        notes = _notes(ready, int(place[1])) if place else ready.setdefault("notes", [])
        text = scrub(reason[place.end() :] if place else reason)
        if text not in notes:
            notes.append(text)
    return ready


def seal(record: Mapping[str, Any]) -> dict[str, Any]:
    """A prepared and validated copy with its content hash: what is written, byte for byte."""
    ready = prepare(record)
    ready["sha256"] = content_hash(ready)
    validate(ready)
    return ready


def parse(data: bytes, name: str = "the record") -> dict[str, Any]:
    """The record in a file's bytes, checked in full; raises RecordError that begins with `name`."""
    try:
        found = loads(data)
    except NotStrictError as error:
        raise RecordError(
            f"{name} is damaged ({error}); take it out of the archive or restore it", "torn"
        ) from None
    try:
        validate(found)
    except RecordError as error:
        raise RecordError(f"{name}: {error}", error.cause) from None
    if found["sha256"] != content_hash(found):
        raise RecordError(
            f"{name} was edited: its content does not match its sha256; restore the original file",
            "edited",
        )
    return dict(found)


def validate(record: Any) -> None:
    """Raise RecordError, in one sentence, where a record is not of this version or not as the schema says."""
    if not isinstance(record, dict):
        raise RecordError("not a record: the file holds no JSON object")
    version = record.get("schema")
    if isinstance(version, bool) or not isinstance(version, int):
        raise RecordError("not a record: it has no schema version; was it written by another program?")
    if version != SCHEMA:
        age = "newer" if version > SCHEMA else "older"
        remedy = "update this program" if version > SCHEMA else "read it with the program that wrote it"
        raise RecordError(
            f"written in a {age} format (schema {version}, this program reads {SCHEMA}); {remedy}",
            "another-version",
        )
    thin, problem = _thin(record, "")
    if problem:
        raise RecordError(problem)
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(thin))
    if error is not None:
        place = error.json_path.removeprefix("$.").removeprefix("$") or "the record"
        raise RecordError(f"not as the schema says, at {place}: {_short(error.message)}")


@functools.lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    """The JSON Schema of a record."""
    text = resources.files("fastrnns.archive").joinpath(SCHEMA_FILE).read_bytes()
    found: dict[str, Any] = loads(text)
    return found


@functools.lru_cache(maxsize=1)
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(_inlined(schema(), schema()["$defs"]))


def _inlined(node: Any, definitions: Mapping[str, Any]) -> Any:
    """The schema with every reference replaced by what it names: looking them up takes half of a check."""
    if isinstance(node, list):
        return [_inlined(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        named = definitions[node["$ref"].removeprefix("#/$defs/")]
        node = {**named, **{key: item for key, item in node.items() if key != "$ref"}}
    return {key: _inlined(item, definitions) for key, item in node.items() if key != "$defs"}


def _thin(value: Any, path: str) -> tuple[Any, str]:
    """The value with long lists of numbers cut to one of each type, and a sentence if one is not finite."""
    if isinstance(value, dict):
        found = {}
        for key, item in value.items():
            found[key], problem = _thin(item, f"{path}.{key}" if path else str(key))
            if problem:
                return None, problem
        return found, ""
    if not isinstance(value, list):
        return value, ""
    if len(value) > FEW:
        kinds = {type(item): item for item in value}
        if kinds.keys() <= {int, float, type(None)}:
            if float in kinds and not all(item is None or abs(item) < float("inf") for item in value):
                return None, f"not strict JSON, at {path}: a number is NaN or infinite"
            return list(kinds.values()), ""
    items = []
    for index, item in enumerate(value):
        thin, problem = _thin(item, f"{path}[{index}]")
        if problem:
            return None, problem
        items.append(thin)
    return items, ""


def _notes(record: dict[str, Any], index: int) -> list[str]:
    notes: list[str] = record["results"][index].setdefault("notes", [])
    return notes


def _time(now: datetime) -> str:
    return now.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"


def _short(text: str, limit: int = 160) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3] + "..."
