"""Device time: a model's CUDA graphs replayed one behind the other, so that the host's launches hide behind them."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import Any

import torch

from fastrnns.graphs import Graphs, capture

BATCH = 10  # replays of each graph between two waits for the GPU
BATCHES = 5
SECONDS = 1.0  # of one process and model: no batch is begun after it


@dataclass(frozen=True)
class Replayed:
    """The times of replays in milliseconds, in the order of time; no backward where the model has none."""

    forward_ms: list[float]
    backward_ms: list[float]


def replayed(made: Any) -> Replayed:
    """Capture a model, where it is not a replay already, and time its graphs; raises what cannot be captured."""
    return time_graphs(made.graphs or capture(made))


def time_graphs(graphs: Graphs) -> Replayed:
    """Replay forward and backward in turn, and time each from the end of the one before it to its own end.

    A pair that is not timed goes ahead of each batch: behind it, the host launches while the GPU works. A graph
    that the GPU finishes before the host has launched the next one is timed with that launch.
    """
    forward_ms: list[float] = []
    backward_ms: list[float] = []
    order = [graphs.forward] if graphs.backward is None else [graphs.forward, graphs.backward]
    events = [
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]  # torch's
        for _ in range(BATCH * len(order) + 1)
    ]
    began = time.monotonic()
    for _ in range(BATCHES):
        torch.cuda.synchronize()
        for graph in order:
            graph.replay()
        events[0].record()
        for index, event in enumerate(events[1:]):
            order[index % len(order)].replay()
            event.record()
        torch.cuda.synchronize()
        spans = [start.elapsed_time(end) for start, end in itertools.pairwise(events)]
        forward_ms += spans[:: len(order)]
        if graphs.backward is not None:
            backward_ms += spans[1::2]
        if time.monotonic() - began > SECONDS:
            break
    return Replayed(forward_ms, backward_ms)
