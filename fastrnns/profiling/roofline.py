"""Operations and bytes of each recurrent model and phase in closed form, and their limit. No torch.

Operations are those of the matrix products (a multiply and an add count as two), which is what torch's FLOP
counter counts. T steps, B sequences, I input features, H hidden units, D directions, G gates (LSTM 4, GRU 3,
RNN 1):

    forward   2 T B G H (I + H) a layer and direction; I is D H from the second layer on
    backward  d input (2 T B G H I), d w_ih (the same), d w_hh, d state (2 T B G H H each): twice the forward
    without d input: less the first layer's d input, which nothing here asks for (the input needs no gradient)

Bytes are the least that a training step must move: every tensor once, the initial states left out.

    forward   read input and weights, write outputs, and keep gates and cells for the backward
    backward  read gates, cells, input, outputs, their gradient and the weights, write the weights' gradients

Between layers an output is written once and read once. Traffic that an implementation adds (the input product
written and read again, the gates' gradients written once and read twice) is in `implementation_bytes` only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from fastrnns.runner import Model, known
from fastrnns.sizes import BYTES, Problem

PHASES = ("forward", "backward")
BYTE_MODEL = "each tensor once, training mode, initial states left out"


@dataclass(frozen=True)
class Cell:
    """What of a recurrent model decides its operations."""

    gates: int
    keeps_cells: bool  # an LSTM keeps its cells for the backward; a plain RNN its outputs only
    biases: int = 2  # vectors of G H
    directions: int = 1
    varying: bool = False  # the sequences have lengths of their own


@dataclass(frozen=True)
class Layer:
    """The sizes of one layer in one direction."""

    steps: int  # T, of the sequences together: T B where all are equal
    longest: int  # the steps that must follow each other
    sequences: int
    inputs: int
    hidden: int
    first: bool  # its input is the problem's, which asks for no gradient


@dataclass(frozen=True)
class Work:
    """What one phase of one model has to do, whatever does it."""

    flops: int  # with the gradient of the input
    flops_without_input_gradient: int
    flops_done: int  # what is asked for here: no gradient of the input, nor of the first state
    bytes: int  # the least, without the gradient of the input
    bytes_with_input_gradient: int
    implementation_bytes: int  # the least and what a product per phase adds
    serial_steps: int  # steps that must follow each other, over all layers; directions run side by side
    byte_model: str = BYTE_MODEL

    def as_dict(self) -> dict[str, Any]:
        """The facts by name, as a record holds them."""
        return asdict(self)


def cell_of(model: Model) -> Cell | None:
    """The cell of a registry row; None for what has no closed form (a convolutional network)."""
    if model.group != "rnns":
        return None
    kind = str(model.options.get("kind", "lstm"))
    if model.family in {"gru", "rnn"}:
        kind = model.family
    gates = {"lstm": 4, "gru": 3}.get(kind, 1)
    if model.family not in {"lstm", "vl_lstm", "bilstm", "mi_lstm", "gru", "rnn"}:
        return None
    return Cell(
        gates=gates,
        keeps_cells=gates == 4,
        biases=4 if model.family == "mi_lstm" else 2,
        directions=2 if model.options.get("bidirectional") else 1,
        varying=model.family == "vl_lstm",
    )


def _layers(problem: Problem, cell: Cell, lengths: Sequence[int]) -> Iterator[Layer]:
    for number in range(problem.num_layers):
        for _ in range(cell.directions):
            yield Layer(
                steps=sum(lengths),
                longest=max(lengths),
                sequences=len(lengths),
                inputs=problem.input_size if number == 0 else problem.hidden_size * cell.directions,
                hidden=problem.hidden_size,
                first=number == 0,
            )


def for_result(
    model: Model | str,
    problem: Problem | Mapping[str, int],
    dtype: str = "fp32",
    phase: str = "forward",
    *,
    lengths: Sequence[int] | None = None,
) -> dict[str, Any] | None:
    """Operations and bytes of one phase, or None where there is no closed form or no such phase.

    Models with sequences of different lengths need `lengths`, which their worker reports.
    """
    row = known(model) if isinstance(model, str) else model
    sizes = problem if isinstance(problem, Problem) else Problem(**problem)
    cell = None if row is None else cell_of(row)
    if row is None or cell is None or phase not in PHASES or dtype not in BYTES:
        return None
    if phase == "backward" and not row.has_backward:
        return None
    if lengths is None:
        if cell.varying:
            return None
        lengths = [sizes.seq_length] * sizes.mini_batch
    layers = list(_layers(sizes, cell, lengths))
    work = (
        _forward(cell, layers, BYTES[dtype]) if phase == "forward" else _backward(cell, layers, BYTES[dtype])
    )
    return work.as_dict()


def _product(layer: Layer, cell: Cell, inner: int) -> int:
    return 2 * layer.steps * cell.gates * layer.hidden * inner


def _weights(layer: Layer, cell: Cell) -> int:
    return cell.gates * layer.hidden * (layer.inputs + layer.hidden + cell.biases)


def _serial(cell: Cell, layers: Sequence[Layer]) -> int:
    return sum(layer.longest for layer in layers) // cell.directions


def _forward(cell: Cell, layers: Sequence[Layer], size: int) -> Work:
    flops = sum(_product(layer, cell, layer.inputs + layer.hidden) for layer in layers)
    moved = extra = 0
    for layer in layers:
        gates = layer.steps * cell.gates * layer.hidden
        cells = layer.steps * layer.hidden if cell.keeps_cells else 0
        inputs = layer.steps * layer.inputs // cell.directions  # both directions read the same
        moved += inputs + _weights(layer, cell) + layer.steps * layer.hidden + gates + cells
        extra += 2 * gates
    return Work(
        flops=flops,
        flops_without_input_gradient=flops,
        flops_done=flops,
        bytes=size * moved,
        bytes_with_input_gradient=size * moved,
        implementation_bytes=size * (moved + extra),
        serial_steps=_serial(cell, layers),
    )


def _backward(cell: Cell, layers: Sequence[Layer], size: int) -> Work:
    flops = without = done = moved = extra = input_gradient = 0
    for layer in layers:
        of_input = _product(layer, cell, layer.inputs)
        of_state = _product(layer, cell, layer.hidden)
        flops += 2 * of_input + 2 * of_state
        without += (1 if layer.first else 2) * of_input + 2 * of_state
        # Of the first step's product nobody asks for the gradient of the state: one step less.
        first_state = 2 * layer.sequences * cell.gates * layer.hidden * layer.hidden
        done += (1 if layer.first else 2) * of_input + 2 * of_state - first_state
        gates = layer.steps * cell.gates * layer.hidden
        cells = layer.steps * layer.hidden if cell.keeps_cells else 0
        inputs = layer.steps * layer.inputs // cell.directions
        outputs = layer.steps * layer.hidden
        moved += gates + cells + inputs + 2 * outputs + 2 * _weights(layer, cell)
        moved += 0 if layer.first else inputs  # its gradient goes to the layer below
        input_gradient += inputs if layer.first else 0
        extra += 3 * gates
    return Work(
        flops=flops,
        flops_without_input_gradient=without,
        flops_done=done,
        bytes=size * moved,
        bytes_with_input_gradient=size * (moved + input_gradient),
        implementation_bytes=size * (moved + extra),
        serial_steps=_serial(cell, layers),
    )


def limit(
    work: Mapping[str, Any], ceilings: Mapping[str, Any], dtype: str, measured_ms: float | None
) -> dict[str, Any]:
    """The least time that the machine's ceilings allow for a phase, what sets it, and the share reached.

    `ceilings` are the facts of `fastrnns.profiling.ceilings`; one that was not measured sets no limit.
    """
    rate = (ceilings.get("matrix_flops_per_s") or {}).get(dtype)
    bandwidth = ceilings.get("copy_bytes_per_s")
    barrier = ceilings.get("grid_barrier_s")
    compute_ms = work["flops_without_input_gradient"] / rate * 1e3 if rate else None
    memory_ms = work["bytes"] / bandwidth * 1e3 if bandwidth else None
    known = {name: ms for name, ms in (("compute", compute_ms), ("memory", memory_ms)) if ms is not None}
    bound = max(known, key=lambda name: known[name]) if known else None
    limit_ms = known[bound] if bound else None
    return {
        "limit_ms": limit_ms,
        "bound": bound,
        "compute_ms": compute_ms,
        "memory_ms": memory_ms,
        # Not part of the limit: what as many grid barriers as there are serial steps would cost.
        "barriers_ms": work["serial_steps"] * barrier * 1e3 if barrier else None,
        "share": limit_ms / measured_ms if limit_ms is not None and measured_ms else None,
        "flops_per_s": work["flops_without_input_gradient"] / measured_ms * 1e3 if measured_ms else None,
    }


def of_result(
    result: Mapping[str, Any],
    problem: Problem | Mapping[str, int],
    ceilings: Mapping[str, Any],
    *,
    tf32: bool = False,
    lengths: Sequence[int] | None = None,
) -> dict[str, Any] | None:
    """The work and the limit of each phase of a record's result; None for a model without a closed form."""
    dtype = str(result.get("dtype") or "fp32")
    rate = "tf32" if tf32 and dtype == "fp32" else dtype
    found = {}
    for phase in PHASES:
        measured = result.get(phase)
        work = for_result(str(result["model"]), problem, rate, phase, lengths=lengths)
        if measured and work:
            found[phase] = {"work": work, "limit": limit(work, ceilings, rate, measured.get("median"))}
    return found or None


def percent(found: Mapping[str, Any] | None, phase: str) -> str:
    """The share of the limit for a table's cell: `23 %`, or a dash."""
    share = (((found or {}).get(phase) or {}).get("limit") or {}).get("share")
    return "-" if share is None else f"{share:.0%}" if share >= 0.1 else f"{share:.1%}"
