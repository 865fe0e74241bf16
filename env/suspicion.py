"""From what the watch saw to how far the samples may be believed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

# Below one in twenty a median does not notice; above one in five the disturbance is what is measured.
TAINTED_SHARE = 0.05
INVALID_SHARE = 0.20
# These leave no doubt, however short: the machine was not the one that was set up.
ALWAYS_TAINT = (
    "a worker thread may run outside",
    "the worker was moved",
    "the partition became",
    " changed from ",
)

Judgement = Literal["valid", "tainted", "invalid"]
Span = tuple[int, int]


@dataclass(frozen=True)
class Disturbance:
    """One cause over one stretch of time, on CLOCK_MONOTONIC."""

    from_ns: int
    to_ns: int
    cause: str

    def as_dict(self) -> dict[str, int | str]:
        """For the record."""
        return {"from_ns": self.from_ns, "to_ns": self.to_ns, "cause": self.cause}


def merge(seen: Iterable[Disturbance]) -> list[Disturbance]:
    """Join stretches of one cause that touch; in the order of their start."""
    joined: list[Disturbance] = []
    last: dict[str, int] = {}
    for item in sorted(seen, key=lambda item: item.from_ns):
        place = last.get(item.cause)
        if place is not None and item.from_ns <= joined[place].to_ns:
            before = joined[place]
            joined[place] = Disturbance(before.from_ns, max(before.to_ns, item.to_ns), item.cause)
        else:
            last[item.cause] = len(joined)
            joined.append(item)
    return joined


def disturbed(span: Span, seen: Iterable[Disturbance]) -> list[str]:
    """The causes that touch a stretch of time, such as one iteration."""
    return list(dict.fromkeys(item.cause for item in seen if item.from_ns < span[1] and span[0] < item.to_ns))


def share_disturbed(seen: Iterable[Disturbance], spans: Sequence[Span]) -> float:
    """What share of the spans' time was disturbed by anything."""
    total = sum(end - start for start, end in spans)
    if total <= 0:
        return 0.0
    covered = 0
    stretches = _union(seen)
    for start, end in spans:
        covered += sum(max(0, min(end, high) - max(start, low)) for low, high in stretches)
    return covered / total


def _union(seen: Iterable[Disturbance]) -> list[Span]:
    stretches: list[Span] = []
    for item in sorted(seen, key=lambda item: item.from_ns):
        if stretches and item.from_ns <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(stretches[-1][1], item.to_ns))
        else:
            stretches.append((item.from_ns, item.to_ns))
    return stretches


def is_grave(cause: str) -> bool:
    """Whether a cause taints however short it was."""
    return any(word in cause for word in ALWAYS_TAINT)


def judge(seen: Sequence[Disturbance], spans: Sequence[Span]) -> tuple[Judgement, list[str]]:
    """How far measurements over these spans may be believed, and why not."""
    reasons = []
    by_cause: dict[str, list[Disturbance]] = {}
    for item in seen:
        by_cause.setdefault(item.cause, []).append(item)
    grave = False
    for cause, items in by_cause.items():
        share = share_disturbed(items, spans)
        if is_grave(cause) and share > 0:
            grave = True
            reasons.append(cause)
        elif share >= TAINTED_SHARE:
            reasons.append(f"{cause} during {share:.0%} of the time")
    total = share_disturbed(seen, spans)
    if total >= INVALID_SHARE:
        return "invalid", [f"the machine was disturbed during {total:.0%} of the time", *reasons]
    if total >= TAINTED_SHARE or grave:
        return "tainted", [f"the machine was disturbed during {total:.0%} of the time", *reasons]
    return "valid", []
