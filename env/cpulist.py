"""CPU lists and masks: the kernel's two spellings of a set of CPUs, and the one a person may type."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from env.errors import UsageError

MAX_CPU = 65535  # far above any kernel's NR_CPUS; stops a mistyped range from becoming a huge set

_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+)/(\d+))?)?")
_MASK = re.compile(r"[0-9a-f]{1,8}(,[0-9a-f]{1,8})*", re.IGNORECASE)


def parse_list(text: str) -> frozenset[int]:
    """The CPUs of a list as the kernel writes it: `0-3,8`, `0-31:2/4`, blank or ` (null)` for none.

    Raises:
        ValueError: the text is no such list.
    """
    text = text.strip().strip("\0")
    if text in {"", "(null)"}:
        return frozenset()
    cpus: set[int] = set()
    for group in text.split(","):
        cpus.update(_group(group.strip()))
    return frozenset(cpus)


def parse_request(
    text: str, allowed: Collection[int] | None = None, *, flag: str = "--cpus"
) -> tuple[int, ...]:
    """The CPUs that a person asks for, checked against those allowed.

    Blanks around a group are accepted (`1-3, 7`), and so are repeats; backward ranges, empty
    groups, words and CPUs that this process may not use are refused.
    """
    groups = text.split(",")
    cpus: set[int] = set()
    for raw in groups:
        group = raw.strip()
        if not group:
            where = "is empty" if len(groups) == 1 else "has an empty group between commas"
            raise UsageError(f"{flag} {text!r} {where}; write CPUs as 1-3,7")
        try:
            cpus.update(_group(group))
        except ValueError as error:
            raise UsageError(f"{flag} {text!r}: {error}; write CPUs as 1-3,7") from None
    if allowed is not None and not cpus <= set(allowed):
        wrong = format_list(cpus - set(allowed))
        raise UsageError(
            f"{flag} {text!r}: CPU {wrong} cannot be used by this process; it may use {format_list(allowed) or 'none'}"
        )
    return tuple(sorted(cpus))


def format_list(cpus: Iterable[int]) -> str:
    """The shortest list in the kernel's spelling: {1, 2, 3, 7} is `1-3,7`."""
    parts: list[str] = []
    ordered = sorted(set(cpus))
    start = 0
    for index, cpu in enumerate(ordered):
        if index + 1 < len(ordered) and ordered[index + 1] == cpu + 1:
            continue
        first = ordered[start]
        parts.append(str(first) if first == cpu else f"{first}-{cpu}")
        start = index + 1
    return ",".join(parts)


def parse_mask(text: str) -> frozenset[int]:
    """The CPUs of a hexadecimal mask, words of 32 bits, highest first: `00000001,00000001` is {0, 32}.

    Raises:
        ValueError: the text is no such mask.
    """
    text = text.strip().replace("0x", "").replace("0X", "")
    if not _MASK.fullmatch(text) or len(text) > (MAX_CPU // 32 + 1) * 9:
        raise ValueError(f"{text[:40]!r} is no CPU mask")
    bits = int("".join(word.rjust(8, "0") for word in text.split(",")), 16)
    return frozenset(bit for bit in range(bits.bit_length()) if bits >> bit & 1)


def format_mask(cpus: Iterable[int], like: str = "") -> str:
    """The mask of a set of CPUs; as wide as `like`, which is a mask that the kernel wrote."""
    bits = sum(1 << cpu for cpu in set(cpus))
    shape = [len(word) for word in like.strip().split(",")] if like.strip() else [8]
    words = max(len(shape), (bits.bit_length() + 31) // 32)
    if words == 1:
        return f"{bits:0{shape[-1]}x}"
    first = shape[0] if words == len(shape) else 8
    text = [f"{bits >> 32 * index & 0xFFFFFFFF:08x}" for index in reversed(range(words))]
    text[0] = f"{bits >> 32 * (words - 1):0{first}x}"
    return ",".join(text)


def _group(group: str) -> set[int]:
    match = _RANGE.fullmatch(group)
    if not match:
        raise ValueError(f"{group!r} is neither a CPU nor a range of CPUs")
    if max(map(len, filter(None, match.groups()))) > len(str(MAX_CPU)):
        raise ValueError(f"{group[:40]!r} is beyond any CPU number")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f"{group!r} runs backwards")
    if last > MAX_CPU:
        raise ValueError(f"{group!r} is beyond any CPU number")
    if match[3] is None:
        return set(range(first, last + 1))
    used, size = int(match[3]), int(match[4])
    if not 0 < used <= size:
        raise ValueError(f"{group!r} has a stride that takes {used} of every {size}")
    return {cpu for cpu in range(first, last + 1) if (cpu - first) % size < used}
