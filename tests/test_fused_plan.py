"""Which tiles a problem runs at: all programs fit on the chip at once, or one sentence says why not."""

from __future__ import annotations

import pytest

from fastrnns.fused.plan import (
    MAKERS_AT_ONCE,
    SHARED_BYTES,
    Plan,
    backward_bytes,
    ceil_div,
    choose,
    forward_bytes,
)

PRECISIONS = {"16 bits": (1, False), "tf32": (1, True), "fp32": (2, True)}
PROCESSORS = 132  # of an H200


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("hidden", [1, 15, 16, 17, 64, 200, 511, 512, 513, 700, 1024, 1500])
@pytest.mark.parametrize("batch", [1, 16, 17, 64, 200, 1000])
def test_a_plan_fits_the_chip_at_once_and_covers_every_unit_and_row(
    precision: str, hidden: int, batch: int
) -> None:
    parts, scaled = PRECISIONS[precision]
    plan = choose(hidden, batch, parts, scaled, PROCESSORS)
    if isinstance(plan, str):
        assert str(hidden) in plan
        return
    for tiles, groups, need in (
        (plan.forward, plan.groups_forward, forward_bytes(hidden, plan.forward, parts)),
        (plan.backward, plan.groups_backward, backward_bytes(hidden, plan.backward, parts)),
    ):
        assert groups >= 1
        assert groups * ceil_div(hidden, tiles.hidden) <= PROCESSORS
        assert need <= SHARED_BYTES
        assert tiles.makers <= MAKERS_AT_ONCE


@pytest.mark.parametrize(
    ("hidden", "parts", "says"),
    [(132 * 16 + 1, 1, "needs 133 programs at once and this device runs 132"), (1024, 2, "shared memory")],
)
def test_what_does_not_fit_is_refused_with_the_reason(hidden: int, parts: int, says: str) -> None:
    found = choose(hidden, 64, parts, True, PROCESSORS)
    assert isinstance(found, str)
    assert says in found


def test_a_larger_batch_takes_larger_tiles_before_it_takes_turns() -> None:
    small, large = (choose(512, batch, 1, False, PROCESSORS) for batch in (64, 256))
    assert isinstance(small, Plan)
    assert isinstance(large, Plan)
    assert small.forward.batch == 16
    assert large.forward.batch == 64
