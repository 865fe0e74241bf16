"""What one barrier across the whole GPU costs: a Triton kernel that does nothing else. CUDA workers only."""

from __future__ import annotations

from typing import Any

from fastrnns.measure.clock import Clock
from fastrnns.profiling.ceiling_worker import best_ms

ROUNDS = 1000


def barrier_seconds(torch: Any, device: Any, clock: Clock) -> float:
    """Seconds of one barrier, one block a multiprocessor: the difference of many and few in one launch."""
    from fastrnns.profiling.barrier_kernel import barriers

    blocks = torch.cuda.get_device_properties(device).multi_processor_count
    counter = torch.zeros(1, dtype=torch.int32, device=device)

    def run(rounds: int) -> float:
        def work() -> None:
            counter.zero_()
            # Cooperative: all blocks run at once, or the launch is refused; else they could wait for ever.
            barriers[(blocks,)](counter, rounds, blocks, num_warps=4, launch_cooperative_grid=True)

        return best_ms(clock, work, 0.2)

    return max(0.0, run(2 * ROUNDS) - run(ROUNDS)) / ROUNDS / 1e3
