"""Comparing named tensors: what differs, where, and by how much. Nothing that cannot be compared passes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from fastrnns.verify.tolerance import Tolerance


@dataclass(frozen=True)
class Check:
    """One tensor beside another."""

    tensor: str  # its name
    against: str  # what it was compared with
    ok: bool
    max_abs: float | None  # the largest difference; None when there is no such number
    allowed: float
    index: tuple[int, ...] | None = None  # the element that differs most, or the first that is no number
    got: float | None = None
    want: float | None = None
    control_max_abs: float | None = None  # the difference of the control from the same reference
    problem: str = ""  # one sentence, when it fails

    def as_dict(self) -> dict[str, Any]:
        """The check as a record holds it: strict JSON, NaN and infinity as words."""
        found = asdict(self)
        for key in ("got", "want", "max_abs", "control_max_abs"):
            if found[key] is not None and not math.isfinite(found[key]):
                found[key] = str(found[key])
        return found


def flatten(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """The leaves of nested lists and tuples with their places: `states[1][0]`."""
    if isinstance(value, (list, tuple)):
        return [leaf for i, item in enumerate(value) for leaf in flatten(item, f"{name}[{i}]")]
    return [(name, value)]


def compare_all(
    got: Mapping[str, Any],
    want: Mapping[str, Any],
    against: str,
    tolerance: Tolerance,
    *,
    dtype: torch.dtype | None = None,
) -> list[Check]:
    """Compare tensors by name; one that only one side has is a failure, never skipped."""
    names = [*want, *(name for name in got if name not in want)]
    return [
        compare(name, got.get(name), want.get(name), against, tolerance, dtype=dtype)
        if name in got and name in want
        else _failed(name, against, tolerance, f"only {against if name in want else 'the model'} has it")
        for name in names
    ]


def compare_sequences(
    name: str, got: Sequence[Any], want: Sequence[Any], against: str, tolerance: Tolerance
) -> list[Check]:
    """Compare nested sequences of tensors leaf by leaf; a different count or nesting is a failure."""
    return compare_all(dict(flatten(got, name)), dict(flatten(want, name)), against, tolerance)


def compare(
    name: str, got: Any, want: Any, against: str, tolerance: Tolerance, *, dtype: torch.dtype | None = None
) -> Check:
    """Compare two tensors; a reference in another number format needs `dtype`, what `got` should be in."""
    for side, value in (("the model", got), (against, want)):
        if value is None:
            return _failed(name, against, tolerance, f"{side} gives none (no gradient?)")
        if not isinstance(value, Tensor):
            return _failed(name, against, tolerance, f"{side} gives a {type(value).__name__}, not a tensor")
    if got.shape != want.shape:
        return _failed(
            name, against, tolerance, f"its shape is {list(got.shape)}, {against} has {list(want.shape)}"
        )
    expected = want.dtype if dtype is None else dtype
    if got.dtype != expected:
        return _failed(name, against, tolerance, f"its dtype is {got.dtype}, it should be {expected}")
    if got.numel() == 0:
        return _failed(name, against, tolerance, "it has no elements, so there is nothing to compare")
    left = got.detach().to("cpu", torch.float64)
    right = want.detach().to("cpu", torch.float64)
    for side, values in (("the model", left), (against, right)):
        if not bool(torch.isfinite(values).all()):
            at = _index(int((~torch.isfinite(values)).flatten().to(torch.uint8).argmax()), values)
            return _failed(
                name, against, tolerance, f"{side} has {float(values[at])} at {list(at)}",
                index=at, got=float(left[at]), want=float(right[at]),
            )  # fmt: skip
    difference = (left - right).abs()
    at = _index(int(difference.argmax()), difference)
    worst, allowed = float(difference[at]), tolerance.allowed(float(right.abs().max()))
    ok = worst <= allowed or bool(difference.norm() <= tolerance.norm * right.norm())
    problem = "" if ok else f"differs from {against} by {worst:.6g} at {list(at)}, allowed {allowed:.6g}"
    return Check(
        name, against, ok=ok, max_abs=worst, allowed=allowed,
        index=at, got=float(left[at]), want=float(right[at]), problem=problem,
    )  # fmt: skip


def finite(name: str, value: Any, shape: Sequence[int]) -> Check:
    """Check that a tensor has a shape and only numbers, where nothing is known of its elements."""
    against, zero = "its shape", Tolerance(0.0)
    if not isinstance(value, Tensor):
        return _failed(name, against, zero, f"the model gives a {type(value).__name__}, not a tensor")
    if list(value.shape) != list(shape):
        return _failed(name, against, zero, f"its shape is {list(value.shape)}, it should be {list(shape)}")
    if not bool(torch.isfinite(value).all()):
        at = _index(int((~torch.isfinite(value)).flatten().to(torch.uint8).argmax()), value)
        got = float(value[at])
        return _failed(name, against, zero, f"the model has {got} at {list(at)}", index=at, got=got)
    return Check(name, against, ok=True, max_abs=None, allowed=0.0)


def stated(name: str, against: str, ok: bool, problem: str, max_abs: float | None = None) -> Check:
    """Record a check of something that is no tensor: a statistic, a property."""
    return Check(name, against, ok=ok, max_abs=max_abs, allowed=0.0, problem="" if ok else problem)


def _failed(name: str, against: str, tolerance: Tolerance, problem: str, **where: Any) -> Check:
    return Check(name, against, ok=False, max_abs=None, allowed=tolerance.absolute, problem=problem, **where)


def _index(flat: int, tensor: Tensor) -> tuple[int, ...]:
    """The place of an element by its place in the flattened tensor."""
    found: list[int] = []
    for size in reversed(tensor.shape):
        flat, here = divmod(flat, size)
        found.append(here)
    return tuple(reversed(found))
