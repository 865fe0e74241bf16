"""CUDA graphs of a model: its forward and its backward captured once, then replayed by one call each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fastrnns import backends, factory
from fastrnns.factory import ModelDef
from fastrnns.sizes import Problem

WARMUPS = 3  # on the capturing side stream, so that libraries allocate and choose before it


@dataclass(frozen=True)
class Graphs:
    """A captured model: both graphs read and write the tensors named here, at fixed addresses.

    A backward is replayed after its forward: it uses, and may overwrite, what that forward saved.
    """

    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph | None  # None: a model without a gradient
    outputs: Any
    gradient: Tensor | None  # what backward starts from
    gradients: tuple[Tensor | None, ...]  # what backward makes, one for each parameter


def capture(made: ModelDef) -> Graphs:
    """Capture a model's forward and backward; raises what CUDA or PyTorch raise where it cannot be captured."""
    current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch's
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARMUPS):
            _once(made)
    current.wait_stream(side)
    forward = torch.cuda.CUDAGraph()
    with torch.cuda.graph(forward):
        outputs = made.forward(*made.inputs)
    if made.backward is None:
        return Graphs(forward, None, outputs, None, ())
    output, gradient = made.backward_setup(outputs)
    backward = torch.cuda.CUDAGraph()
    with torch.cuda.graph(backward, pool=forward.pool()):
        gradients = torch.autograd.grad(output, made.params, gradient, allow_unused=True)
    return Graphs(forward, backward, outputs, gradient, tuple(gradients))


def _once(made: ModelDef) -> None:
    outputs = made.forward(*made.inputs)
    if made.backward is not None:
        output, gradient = made.backward_setup(outputs)
        torch.autograd.grad(output, made.params, gradient, allow_unused=True)


def graphed(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    creator: str,
    **options: Any,
) -> ModelDef:
    """Another creator's model, replayed: what is timed is the call of a replay and what the GPU does in it."""
    made: ModelDef = getattr(factory, creator)(problem, device=device, dtype=dtype, seed=seed, **options)
    return replayed(made, capture(made))


def replayed(made: ModelDef, graphs: Graphs) -> ModelDef:
    """The same model whose forward and backward are replays; its inputs are those it was captured with."""
    start, replay_backward = graphs.gradient, graphs.backward
    if start is None or replay_backward is None:
        raise ValueError("a model without a gradient is replayed by its forward graph alone")

    def forward(*_inputs: Any) -> Any:
        graphs.forward.replay()
        return graphs.outputs

    def backward_setup(outputs: Any, seed: int | None = None) -> tuple[Tensor, Tensor]:
        output, gradient = made.backward_setup(outputs, seed)
        start.copy_(gradient)
        return output, start

    def backward(_output: Tensor, gradient: Tensor) -> None:
        if gradient is not start:
            start.copy_(gradient)
        replay_backward.replay()
        for parameter, found in zip(made.params, graphs.gradients, strict=True):
            parameter.grad = found

    ran = made.backend or backends.library_of(graphs.outputs)
    return replace(
        made,
        forward=forward,
        backward_setup=backward_setup,
        backward=backward,
        graphs=graphs,
        backend=f"CUDA graph of {ran}",
    )
