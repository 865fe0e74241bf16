"""Whether the timed region is the model and nothing else, by one command: `python -m tests.benchmarks.region`.

In one process, at seqLength 20, miniBatch 16, sizes 128: our forward and backward medians added up, over
`torch.utils.benchmark`'s time of the same forward and backward, the two taking turns. They agree within 10 %.
Its time is the median of single runs, as ours is, for a block of runs carries whatever else ran meanwhile; that
of `blocked_autorange` is printed beside it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 15  # short and many: what else runs on the machine then hits both alike
SINGLE_RUNS = 40
LIMIT = 0.10


def main() -> int:
    """Measure both ways in turns, print both and the ratio, and fail outside the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="cudnn", help="one that returns its outputs first")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()

    import torch
    from torch.utils import benchmark

    from fastrnns import runner
    from fastrnns.measure import loop
    from fastrnns.measure.clock import clock_for
    from fastrnns.measure.plan import Rule
    from fastrnns.sizes import Problem

    torch.set_num_threads(1)
    device = torch.device(args.device)
    problem = Problem(seq_length=20, input_size=128, hidden_size=128, mini_batch=16)
    model = runner.lookup(args.model)
    rule = Rule(warmup=5, nloops=60, precision=0.01, seconds=60, limit_seconds=60)
    ours: list[float] = []
    forwards: list[float] = []
    theirs: list[float] = []
    blocks: list[float] = []
    with runner.entered(model):
        modeldef = runner.build(model, problem, device)
        _, gradient = modeldef.backward_setup(modeldef.forward(*modeldef.inputs))

        def once() -> None:
            outputs = modeldef.forward(*modeldef.inputs)
            modeldef.backward(outputs[0], gradient)
            for parameter in modeldef.params:
                parameter.grad = None

        timer = benchmark.Timer("once()", globals={"once": once}, num_threads=1)
        for _ in range(ROUNDS):
            events: list[dict[str, list[float]]] = []
            loop.measure(args.model, modeldef, clock_for(device), rule, emit=events.append)
            timed = [event for event in events if event["phase"] == "timed"]
            forward = statistics.median(value for event in timed for value in event["forward_ms"])
            backward = statistics.median(value for event in timed for value in event["backward_ms"])
            forwards.append(forward)
            ours.append(forward + backward)
            theirs.append(statistics.median(timer.timeit(1).median for _ in range(SINGLE_RUNS)) * 1e3)
            blocks.append(timer.blocked_autorange(min_run_time=0.2).median * 1e3)
    ratio = statistics.median(here / there for here, there in zip(ours, theirs, strict=True))
    print(
        json.dumps(
            {
                "model": args.model,
                "forward_ms": round(statistics.median(forwards), 4),
                "ours_ms": round(statistics.median(ours), 4),
                "torch_utils_benchmark_ms": round(statistics.median(theirs), 4),
                "blocked_autorange_ms": round(statistics.median(blocks), 4),
                "ratio": round(ratio, 4),
                "ratio_to_blocked_autorange": round(
                    statistics.median(here / there for here, there in zip(ours, blocks, strict=True)), 4
                ),
                "limit": LIMIT,
            },
            indent=2,
        )
    )
    return int(abs(ratio - 1) > LIMIT)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main())
