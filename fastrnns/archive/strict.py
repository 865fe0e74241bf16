"""Strict JSON: what it cannot hold (NaN, tensors, tuples) made writable, and text that holds it refused."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any


class NotStrictError(ValueError):
    """The text is no strict JSON: torn, mixed with other text, or holding NaN."""


def strict(value: Any, reasons: list[str] | None = None, path: str = "") -> Any:
    """The value as strict JSON can hold it; what it cannot hold becomes null, or text, and a reason."""
    if value is None or isinstance(value, (str, bool)):
        return str(value) if isinstance(value, str) else value
    if type(value) is int:
        return value
    if isinstance(value, float) or _is_scalar(value):
        number = value if isinstance(value, float) else _scalar(value)
        if isinstance(number, float):
            number = float(number)
            if not math.isfinite(number):
                _say(reasons, path, f"is {number}, which JSON cannot hold")
                return None
        return number
    if isinstance(value, dict):
        return {
            _key(key): strict(item, reasons, f"{path}.{key}" if path else str(key))
            for key, item in value.items()
        }
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=repr)
    if isinstance(value, (list, tuple)):
        return [strict(item, reasons, f"{path}[{index}]") for index, item in enumerate(value)]
    if hasattr(value, "tolist"):  # numpy arrays and tensors
        return strict(value.tolist(), reasons, path)
    if isinstance(value, int):  # IntEnum and the like
        return int(value)
    _say(reasons, path, f"was a {type(value).__name__}, kept as text")
    return str(value)


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value that hashes are taken over: keys sorted, no blanks, ASCII only."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    ).encode()


def content_hash(record: dict[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a record without its `sha256` key."""
    return hashlib.sha256(
        canonical({key: item for key, item in record.items() if key != "sha256"})
    ).hexdigest()


def dumps(record: dict[str, Any]) -> str:
    """A record as the text of its file: a key a line, lists of numbers on one line, ASCII."""
    return _pretty(record, 0) + "\n"


def loads(data: bytes) -> Any:
    """The value of strict JSON text; raises NotStrictError for anything else."""
    if not data.strip():
        raise NotStrictError("the file is empty")
    try:
        return json.loads(
            data.decode("utf-8"), parse_constant=_refuse, object_pairs_hook=_unique, parse_float=_finite
        )
    except UnicodeDecodeError as error:
        raise NotStrictError(f"not UTF-8 at byte {error.start}") from None
    except json.JSONDecodeError as error:
        mixed = error.msg == "Extra data"
        what = "other text follows the JSON" if mixed else "not JSON, or cut short"
        raise NotStrictError(f"{what} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise NotStrictError("nested too deep") from None


def _say(reasons: list[str] | None, path: str, text: str) -> None:
    if reasons is not None:
        reasons.append(f"{path or 'value'} {text}")


def _is_scalar(value: Any) -> bool:
    """A numpy or torch scalar, told by its shape: neither library is imported for it."""
    return (
        hasattr(value, "item") and getattr(value, "shape", None) == () and not isinstance(value, (int, str))
    )


def _scalar(value: Any) -> Any:
    item = value.item()
    return item if isinstance(item, (int, float, bool, str)) else str(item)


def _key(key: Any) -> str:
    if isinstance(key, str):
        return str(key)
    return json.dumps(key) if isinstance(key, (bool, int, float)) or key is None else str(key)


def _refuse(token: str) -> None:
    raise NotStrictError(f"holds {token}, which strict JSON does not have")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise NotStrictError(f"holds {text}, which no number can be")
    return number


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotStrictError("an object names the same key twice")
    return found


def _pretty(value: Any, depth: int) -> str:
    """Indented JSON in which lists of plain values stay on one line: diffs and eyes read it."""
    pad, inner = " " * depth, " " * (depth + 1)
    if isinstance(value, dict) and value:
        items = (f"{inner}{json.dumps(key)}: {_pretty(item, depth + 1)}" for key, item in value.items())
        return "{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        items = (f"{inner}{_pretty(item, depth + 1)}" for item in value)
        return "[\n" + ",\n".join(items) + f"\n{pad}]"
    return json.dumps(value, ensure_ascii=True, allow_nan=False)
