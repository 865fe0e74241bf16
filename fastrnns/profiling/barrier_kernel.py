"""The Triton kernel of the barrier measurement."""

# No `from __future__ import annotations`: Triton reads the annotations.

import triton
import triton.language as tl


@triton.jit
def barriers(counter, rounds, blocks):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - Triton's types
    """Every block adds one and waits until all have, `rounds` times: release to arrive, acquire to leave."""
    for round_ in range(rounds):
        tl.debug_barrier()
        arrived = tl.atomic_add(counter, 1, sem="acq_rel", scope="gpu") + 1
        wanted = (round_ + 1) * blocks
        while arrived < wanted:
            arrived = tl.atomic_add(counter, 0, sem="acquire", scope="gpu")
        tl.debug_barrier()
