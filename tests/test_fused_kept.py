"""Kept kernels: one compiled kernel for each kind of arguments, and never one of another kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed here")

from fastrnns.fused import kept


class Compiled:
    """A compiled kernel that notes what it is launched with."""

    def __init__(self) -> None:
        self.launches: list[tuple[Any, Any]] = []

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args: self.launches.append((grid, args))


class Kernel:
    """A kernel that compiles anew for every call that goes through Triton's own path."""

    def __init__(self) -> None:
        self.compiled: list[Compiled] = []

    def __getitem__(self, grid: Any) -> Any:
        def compile_and_launch(*args: Any, **options: Any) -> Compiled:
            self.compiled.append(Compiled())
            return self.compiled[-1]

        return compile_and_launch


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> tuple[Kernel, Any]:
    monkeypatch.setattr(kept, "INTERPRETED", False)
    kernel, keep = Kernel(), kept.Kept()
    return kernel, lambda *args, constants=(1,): keep.start(kernel, (4,), args, constants)


def test_a_second_call_of_one_kind_goes_to_the_compiled_kernel_with_addresses(started) -> None:
    kernel, start = started
    first, second = torch.zeros(4), torch.zeros(4)
    start(first, None, 3)
    start(second, None, 5)
    assert [compiled.launches for compiled in kernel.compiled] == [
        [((4, 1, 1), (second.data_ptr(), None, 5, 1))]
    ]


@pytest.mark.parametrize(
    "other",
    [
        (torch.zeros(4, dtype=torch.bfloat16), None, 3),  # as the carried state of a long sequence differs
        (torch.zeros(4), torch.zeros(4), 3),
    ],
)
def test_another_type_or_an_argument_that_was_absent_is_compiled_anew(started, other) -> None:
    kernel, start = started
    start(torch.zeros(4), None, 3)
    start(*other)
    assert len(kernel.compiled) == 2
    assert all(not compiled.launches for compiled in kernel.compiled)


def test_other_constants_are_compiled_anew(started) -> None:
    kernel, start = started
    start(torch.zeros(4))
    start(torch.zeros(4), constants=(2,))
    assert len(kernel.compiled) == 2
