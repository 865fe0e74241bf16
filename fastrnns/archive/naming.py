"""Names in the archive: the folder of a machine, the file of a record, and what each says."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from typing import Any

from env.fingerprint import machine_name

SLUG_LIMIT = 40
NOISE = re.compile(r"\((?:r|tm|c)\)|\b(?:cpu|processor|corporation|inc)\b|@.*$|\b\d+-core\b", re.IGNORECASE)
FILE_NAME = re.compile(r"^(\d{8}T\d{6}Z)-([a-z][a-z-]*)-([0-9a-f]{12})\.json$")
HIDDEN = ".record-"  # of a file that is being written: `*.json` finds none of these
PRUNED = ".pruned-"  # of a record that is being removed, until its files are gone as well
PROBE = ".writable-"  # of a file that shows whether the archive can be written
LOCK = ".lock"
COUNTER = ".sequence"


def machine_folder(fingerprint: Mapping[str, Any]) -> str:
    """The folder for a machine's records: its GPU or CPU, and the first digits of its hardware id."""
    known = dict(fingerprint)
    identity = (known.get("ids") or {}).get("hardware") or "unknown"
    return f"{slug(machine_name(known))}-{identity[:8]}"


def slug(text: str) -> str:
    """Lower-case ASCII words joined by dashes, short; never empty."""
    plain = unicodedata.normalize("NFKD", NOISE.sub(" ", text)).encode("ascii", "ignore").decode().lower()
    words = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")
    return words[:SLUG_LIMIT].strip("-") or "machine"


def file_name(record: Mapping[str, Any]) -> str:
    """`<time>-<kind>-<id>.json`, the time in UTC and to the second."""
    stamp = re.sub(r"[-:]|\.\d+", "", record["started_at"])
    return f"{stamp}-{record['kind']}-{record['id']}.json"
