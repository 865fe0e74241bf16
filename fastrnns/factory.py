"""Creators: from a problem, a device, a dtype and a seed to the parts of a model that are timed.

Inputs and weights are drawn on the CPU in fp32 and then moved, so that a seed means the same everywhere.
Shapes: T steps, B sequences, I input features, H hidden units, L layers, D directions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from fastrnns import backends, cells, custom_lstms, loops
from fastrnns.errors import UnsupportedError
from fastrnns.sizes import Problem

if TYPE_CHECKING:
    from fastrnns.fused.lstm import FusedLSTM

SHORTEST, LONGEST = 30, 100  # lengths of vl_*: 30 to 99, upstream's, whatever --seqLength is
GRADIENT_STREAM = 0x9E3779B97F4A7C15 % 2**63  # added to a seed for the random gradient
IMAGES, IMAGE_SIZE = 32, 224  # what a resnet is given: upstream's


@dataclass(frozen=True)
class ModelDef:
    """A model, ready to run: outputs = forward(*inputs); backward(*backward_setup(outputs))."""

    inputs: tuple[Any, ...]
    params: tuple[Tensor, ...]  # every tensor with requires_grad
    forward: Callable[..., Any]
    backward_setup: Callable[
        ..., tuple[Tensor, ...]
    ]  # (outputs, seed=None) -> what backward takes; not timed
    backward: Callable[..., None] | None  # None: a model without a gradient
    names: tuple[str, ...] = ()  # of params, for people
    backend: str = ""  # what runs it, where its creator knows better than the graph that autograd records
    graphs: Any = None  # fastrnns.graphs.Graphs, of a model that is replayed


# -- the parts every creator shares ------------------------------------------------------------------------


def generators(device: torch.device) -> list[torch.Generator]:
    """The generators that PyTorch draws from when a model on this device is made or run."""
    if device.type != "cuda":
        return [torch.default_generator]
    index = torch.empty(0, device=device).get_device()  # starts CUDA, and says which GPU a plain "cuda" is
    return [torch.default_generator, torch.cuda.default_generators[index]]


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed them; not by torch.manual_seed, whose first call may import the compiler, which takes seconds."""
    for generator in generators(device):
        generator.manual_seed(seed)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Run a block that may draw, and leave the generators as they were."""
    before = [generator.get_state() for generator in generators(device)]
    try:
        yield
    finally:
        for generator, state in zip(generators(device), before, strict=True):
            generator.set_state(state)


def random_gradient(output: Tensor, seed: int | None = None) -> tuple[Tensor, Tensor]:
    """An output and a random gradient like it; any seed, 0 too, decides the gradient."""
    if seed is None:
        return output, torch.randn_like(output)
    # Another stream than that of the inputs: the same seed would draw the inputs again, as the gradient.
    generator = torch.Generator(output.device).manual_seed((seed + GRADIENT_STREAM) % 2**63)
    gradient = torch.randn(output.shape, generator=generator, device=output.device, dtype=torch.float32)
    return output, gradient.to(output.dtype)


def backward_of_first(outputs: Sequence[Any], seed: int | None = None) -> tuple[Tensor, Tensor]:
    """The gradient of a model that returns (outputs or last hidden state, states)."""
    return random_gradient(outputs[0], seed)


def backward_of_padded(outputs: Sequence[Any], seed: int | None = None) -> tuple[Tensor, Tensor]:
    """The gradient of a model that returns a list of sequences: that of the padded sequences."""
    return random_gradient(nn.utils.rnn.pad_sequence(outputs[0]), seed)


def simple_backward(output: Tensor, gradient: Tensor) -> None:
    """Accumulate the gradients of the parameters, by the autograd engine itself.

    `torch.autograd.backward` ends in this very call; before it, it compares shapes by symbolic ones, and imports
    SymPy for that at its first call: 2 to 3 s in every process (torch 2.11, H200), more than the model takes.
    """
    if output.shape != gradient.shape:
        raise ValueError(f"the gradient is {list(gradient.shape)}, the output {list(output.shape)}")
    torch.autograd.Variable._execution_engine.run_backward(  # noqa: SLF001 - what the public function calls
        (output,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True
    )


def _rnn_module(
    kind: str, problem: Problem, *, dropout: float = 0.0, bidirectional: bool = False
) -> nn.LSTM | nn.GRU | nn.RNN:
    sizes: dict[str, Any] = {
        "input_size": problem.input_size,
        "hidden_size": problem.hidden_size,
        "num_layers": problem.num_layers,
        "bidirectional": bidirectional,
        "dropout": dropout if problem.num_layers > 1 else 0.0,  # there is nothing between one layer
    }
    if kind == "lstm":
        return nn.LSTM(**sizes)
    if kind == "gru":
        return nn.GRU(**sizes)
    return nn.RNN(nonlinearity=kind.removeprefix("rnn_"), **sizes)


def _lstm_module(problem: Problem, *, bidirectional: bool = False) -> nn.LSTM:
    module = _rnn_module("lstm", problem, bidirectional=bidirectional)
    assert isinstance(module, nn.LSTM)  # noqa: S101 - for the type checker
    return module


def _fused(module: nn.Module) -> FusedLSTM:
    """The persistent kernels in a torch.nn.LSTM's place, with its parameters."""
    from fastrnns.fused.lstm import FusedLSTM  # needs Triton

    assert isinstance(module, nn.LSTM)  # noqa: S101 - for the type checker
    return FusedLSTM.from_lstm(module)


def _sequence(problem: Problem) -> Tensor:
    return torch.randn(problem.seq_length, problem.mini_batch, problem.input_size)  # (T, B, I)


def _states(problem: Problem, directions: int = 1) -> tuple[Tensor, Tensor]:
    shape = (problem.num_layers * directions, problem.mini_batch, problem.hidden_size)  # (L*D, B, H)
    return torch.randn(shape), torch.randn(shape)


def _moved(tensors: Sequence[Tensor], device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    return tuple(tensor.to(device, dtype) for tensor in tensors)


def _leaves(tensors: Sequence[Tensor], device: torch.device, dtype: torch.dtype) -> tuple[Tensor, ...]:
    """Weights as leaves of autograd on the device."""
    return tuple(tensor.detach().to(device, dtype, copy=True).requires_grad_() for tensor in tensors)


def _module_model(
    module: nn.Module, forward: Callable[..., Any], inputs: tuple[Any, ...], backend: str = ""
) -> ModelDef:
    named = dict(module.named_parameters())
    return ModelDef(
        inputs=inputs,
        params=tuple(named.values()),
        forward=forward,
        backward_setup=backward_of_first,
        backward=simple_backward,
        names=tuple(named),
        backend=backend,
    )


@dataclass(frozen=True)
class Drawn:
    """What one seed gives an LSTM: sequence, states and weights, on the device."""

    x: Tensor  # (T, B, I)
    states: tuple[Tensor, Tensor]  # (L, B, H) each
    params: tuple[Tensor, ...]  # w_ih, w_hh, b_ih, b_hh of each layer
    names: tuple[str, ...]


def draw(problem: Problem, device: torch.device, dtype: torch.dtype, seed: int, kind: str = "lstm") -> Drawn:
    """The numbers of one seed, for an LSTM or another kind of torch.nn."""
    seed_generators(seed, device)
    x, (h, c) = _sequence(problem), _states(problem)
    named = dict(_rnn_module(kind, problem).named_parameters())
    h, c = _moved((h, c), device, dtype)
    return Drawn(
        x=x.to(device, dtype),
        states=(h, c),
        params=_leaves(tuple(named.values()), device, dtype),
        names=tuple(named),
    )


def loop_model(
    drawn: Drawn,
    loop: Callable[..., Any],
    script: bool = False,
    *,
    inputs: tuple[Any, ...] | None = None,
    backward_setup: Callable[..., tuple[Tensor, ...]] = backward_of_first,
) -> ModelDef:
    """A model of a loop that takes its weights as inputs, scripted if asked."""
    return ModelDef(
        inputs=(drawn.x, drawn.states, *drawn.params) if inputs is None else inputs,
        params=drawn.params,
        forward=cells.scripted(loop) if script else loop,
        backward_setup=backward_setup,
        backward=simple_backward,
        names=drawn.names,
    )


# -- torch.nn ----------------------------------------------------------------------------------------------


def nn_rnn(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    kind: str,
    dropout: float = 0.0,
    bidirectional: bool = False,
    fused: bool = False,
) -> ModelDef:
    """torch.nn.LSTM, GRU or RNN; or, `fused`, an LSTM by the persistent kernels."""
    seed_generators(seed, device)
    x, (h, c) = _sequence(problem), _states(problem, 2 if bidirectional else 1)
    module = _rnn_module(kind, problem, dropout=dropout, bidirectional=bidirectional).to(device, dtype)
    x, h, c = _moved((x, h, c), device, dtype)
    if fused:
        ours = _fused(module)
        return _module_model(ours, ours, (x, (h, c)), ours.backend_for(x, problem.mini_batch))
    return _module_model(module, module, (x, (h, c) if kind == "lstm" else h))


def onednn_lstm(problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int) -> ModelDef:
    """torch.nn.LSTM on oneDNN; UnsupportedError where PyTorch would quietly run another library.

    Which one runs is read from the graph of a small LSTM: PyTorch chooses by device and dtype, not by sizes.
    """
    small = nn_rnn(Problem(2, 1, 4, 8, 2), device=device, dtype=dtype, seed=seed, kind="lstm")
    library = backends.library_of(small.forward(*small.inputs))
    if "oneDNN" not in library:
        raise UnsupportedError(
            f"{library} runs an LSTM in {dtype} here, not oneDNN: no build or no CPU for it"
        )
    return nn_rnn(problem, device=device, dtype=dtype, seed=seed, kind="lstm")


def layernorm_bound(problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int) -> ModelDef:
    """torch.nn.LSTM and, beside it, the three layer norms of each step: a lower bound, forward only."""
    seed_generators(seed, device)
    x, states = _sequence(problem), _states(problem)
    module = _rnn_module("lstm", problem).to(device, dtype)
    gates = torch.randn(problem.mini_batch, 4 * problem.hidden_size).to(device, dtype)  # (B, 4H)
    norm_ih, norm_hh = (nn.LayerNorm(4 * problem.hidden_size).to(device, dtype) for _ in range(2))
    norm_c = nn.LayerNorm(problem.hidden_size).to(device, dtype)
    x, h_0, c_0 = _moved((x, *states), device, dtype)

    def forward(x: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        output, (h, c) = module(x, state)
        for _ in range(x.size(0)):
            norm_ih(gates)
            norm_hh(gates)
            c = norm_c(c)
        return output, (h, c)

    named = dict(module.named_parameters())
    for prefix, norm in (("norm_ih", norm_ih), ("norm_hh", norm_hh), ("norm_c", norm_c)):
        named |= {f"{prefix}.{name}": value for name, value in norm.named_parameters()}
    return ModelDef(
        inputs=(x, (h_0, c_0)),
        params=tuple(named.values()),
        forward=forward,
        backward_setup=backward_of_first,
        backward=None,
        names=tuple(named),
    )


# -- loops over cells --------------------------------------------------------------------------------------


def loop_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, script: bool
) -> ModelDef:
    """A loop over time around an LSTM cell."""
    return loop_model(draw(problem, device, dtype, seed), loops.lstm(), script)


def premul_lstm(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    script: bool,
    premul_bias: bool = False,
) -> ModelDef:
    """A loop over time after the input product of all steps, and after its bias too if asked."""
    loop = loops.lstm_premul_bias() if premul_bias else loops.lstm_premul()
    return loop_model(draw(problem, device, dtype, seed), loop, script)


def simple_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, script: bool
) -> ModelDef:
    """A loop over time on flat inputs that returns only the last states."""
    drawn = draw(problem, device, dtype, seed)
    return loop_model(drawn, loops.lstm_simple(), script, inputs=(drawn.x, *drawn.states, *drawn.params))


def multilayer_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, script: bool
) -> ModelDef:
    """A loop over layers around the loop over time."""
    drawn = draw(problem, device, dtype, seed)
    layers = [list(drawn.params[at : at + 4]) for at in range(0, len(drawn.params), 4)]
    return loop_model(drawn, loops.lstm_multilayer(), script, inputs=(drawn.x, drawn.states, layers))


def cell_rnn(problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, kind: str) -> ModelDef:
    """A scripted loop over time around a GRU or a plain RNN cell."""
    drawn = draw(problem, device, dtype, seed, kind)
    return loop_model(
        drawn, loops.one_state(kind), script=True, inputs=(drawn.x, drawn.states[0], *drawn.params)
    )


def mi_lstm(problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int) -> ModelDef:
    """A scripted loop over time around a multiplicative-integration LSTM cell.

    The matrices and the bias are those of the LSTM; alpha is drawn around 1 and the betas around 1/2, the
    paper's initial values, so that no two of them can be swapped unnoticed.
    """
    drawn = draw(problem, device, dtype, seed)
    gates = 4 * problem.hidden_size
    alpha, beta_h, beta_x = 0.5 + torch.rand(gates), torch.rand(gates), torch.rand(gates)
    w_ih, w_hh, bias, _ = drawn.params
    params = (w_ih, w_hh, *_leaves((alpha, beta_h, beta_x), device, dtype), bias)
    names = ("weight_ih", "weight_hh", "alpha", "beta_h", "beta_x", "bias")
    return loop_model(Drawn(drawn.x, drawn.states, params, names), loops.mi_lstm(), script=True)


# -- stacks of modules -------------------------------------------------------------------------------------


def stacked_lstm(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    dropout: float = 0.0,
    bidirectional: bool = False,
) -> ModelDef:
    """A scripted stack of LSTM layers, in one direction or two, with dropout between layers."""
    seed_generators(seed, device)
    x, (h, c) = _sequence(problem), _states(problem, 2 if bidirectional else 1)
    lstm = _lstm_module(problem, bidirectional=bidirectional)
    stack = custom_lstms.stack_from(lstm, dropout=dropout).to(device, dtype)
    x, h, c = _moved((x, h, c), device, dtype)
    return _module_model(stack, custom_lstms.script(stack), (x, (h, c)))


def layernorm_lstm(
    problem: Problem,
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    decompose: bool = False,
) -> ModelDef:
    """A scripted stack of layer-norm LSTM layers."""
    seed_generators(seed, device)
    x, (h, c) = _sequence(problem), _states(problem)
    lstm = _lstm_module(problem)
    stack = custom_lstms.layer_norm_stack_from(lstm, decompose=decompose).to(device, dtype)
    x, h, c = _moved((x, h, c), device, dtype)
    return _module_model(stack, custom_lstms.script(stack), (x, (h, c)))


# -- sequences of different lengths ------------------------------------------------------------------------


def _draw_varlen(
    problem: Problem, device: torch.device, dtype: torch.dtype
) -> tuple[list[Tensor], tuple[Tensor, Tensor]]:
    lengths = torch.randint(SHORTEST, LONGEST, (problem.mini_batch,)).tolist()
    sequences = [
        torch.randn(length, problem.input_size).to(device, dtype) for length in lengths
    ]  # (t, I) each
    h, c = _moved(_states(problem), device, dtype)
    return sequences, (h, c)


def varlen_nn_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, fused: bool = False
) -> ModelDef:
    """Pack the sequences, torch.nn.LSTM (or the persistent kernels), pad its outputs."""
    seed_generators(seed, device)
    sequences, states = _draw_varlen(problem, device, dtype)
    module = _rnn_module("lstm", problem).to(device, dtype)
    backend = ""
    if fused:
        module = _fused(module)
        backend = module.backend_for(sequences[0], problem.mini_batch, packed=True)

    def forward(
        sequences: list[Tensor], state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        packed = nn.utils.rnn.pack_sequence(sequences, enforce_sorted=False)
        output, last = module(packed, state)
        return nn.utils.rnn.pad_packed_sequence(output)[0], last  # (longest, B, H)

    return _module_model(module, forward, (sequences, states), backend)


def varlen_loop_lstm(
    problem: Problem, *, device: torch.device, dtype: torch.dtype, seed: int, script: bool
) -> ModelDef:
    """A loop over samples around a loop over their steps; returns a list of outputs, and lists of states."""
    seed_generators(seed, device)
    sequences, states = _draw_varlen(problem, device, dtype)
    named = dict(_rnn_module("lstm", problem).named_parameters())
    params = _leaves(tuple(named.values()), device, dtype)
    loop = loops.lstm_varlen()
    return ModelDef(
        inputs=(sequences, states, *params),
        params=params,
        forward=cells.scripted(loop) if script else loop,
        backward_setup=backward_of_padded,
        backward=simple_backward,
        names=tuple(named),
    )


# -- convolutional networks --------------------------------------------------------------------------------


def imagenet_cnn(
    problem: Problem,  # noqa: ARG001 - a creator is given the problem; its sizes are those of RNNs
    *,
    device: torch.device,
    dtype: torch.dtype,
    seed: int,
    arch: str,
    script: bool = False,
    images: int = IMAGES,
    image_size: int = IMAGE_SIZE,
    train: bool = True,
) -> ModelDef:
    """A torchvision network, in training mode unless asked otherwise, on random images."""
    from torchvision import models

    seed_generators(seed, device)
    network: nn.Module = getattr(models, arch)(weights=None)
    x = torch.randn(images, 3, image_size, image_size).to(device, dtype)
    network.train(train).to(device, dtype)
    named = dict(network.named_parameters())
    return ModelDef(
        inputs=(x,),
        params=tuple(named.values()),
        forward=custom_lstms.script(network) if script else network,
        backward_setup=random_gradient,
        backward=simple_backward,
        names=tuple(named),
    )
