"""The registry: what each model is called, what it is, what it supports, and how to build and run it.

Importing this module does not import torch; building a model does.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fastrnns import sweep
from fastrnns.errors import HarnessError, UnsupportedError, UsageError
from fastrnns.sizes import Problem

if TYPE_CHECKING:
    import torch

    from fastrnns.factory import ModelDef

Creator = Callable[..., "ModelDef"]

DTYPES = ("fp32", "tf32", "bf16", "fp16")  # tf32: fp32 tensors, products on tensor cores at 10 bits
PYTHON_WITHOUT_TORCHSCRIPT = (3, 14)  # torch.jit says so itself from torch 2.10 on


@dataclass(frozen=True)
class Model:
    """One row of the registry: one implementation, by name."""

    name: str
    group: Literal["rnns", "cnns"]  # the flag that names it
    family: str  # the group of the exported JSON: lstm, vl_lstm, resnet are upstream's
    summary: str  # what it is, in one line
    creator: str | Creator  # a name in fastrnns.factory, "module:name", or the function itself
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)  # given to the creator
    layers: Literal["one", "any", "none"] = "one"  # none: not an RNN, the problem's sizes do not apply
    devices: tuple[str, ...] = ("cpu", "cuda")
    dtypes: tuple[str, ...] = DTYPES
    has_backward: bool = True
    legacy: bool = False  # TorchScript
    compiled: bool = False  # by torch.compile, in its first iteration
    comparable_with: str | None = None  # the model its time may be set against
    comparable_note: str = ""  # and what to keep in mind when it is, or why it may not
    context: Literal["no_library", "no_jit"] | None = None  # what must hold while it runs
    needs: tuple[str, ...] = ()  # packages besides torch
    control: str | None = None  # the model that must give the same numbers from the same seed
    verify: str = "lstm"  # the float64 reference, or the kind of check, in fastrnns.verify.references


def _rnn(name: str, summary: str, creator: str, **row: Any) -> Model:
    row.setdefault("family", "lstm")
    return Model(name=name, group="rnns", summary=summary, creator=creator, **row)


def _cnn(name: str, summary: str, **row: Any) -> Model:
    return Model(
        name=name, group="cnns", family="resnet", summary=summary, creator="imagenet_cnn", layers="none",
        needs=("torchvision",), verify="cnn", **row,
    )  # fmt: skip


_SAME = "same forward and backward work"
_ROWS = (
    # upstream's default matrix
    _rnn("cudnn", "torch.nn.LSTM as PyTorch runs it: cuDNN on CUDA, oneDNN on the CPU",
         "nn_rnn", options={"kind": "lstm"}, layers="any", comparable_note="the yardstick"),
    _rnn("aten", "torch.nn.LSTM with cuDNN (CUDA) and oneDNN (CPU) off: ATen's own kernels",
         "nn_rnn", options={"kind": "lstm"}, layers="any", context="no_library",
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("jit", "scripted loop over time around a scripted LSTM cell",
         "loop_lstm", options={"script": True}, legacy=True,
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("jit_premul", "jit, with the input product of all steps done before the loop",
         "premul_lstm", options={"script": True}, legacy=True,
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("jit_premul_bias", "jit_premul, and the input bias added before the loop",
         "premul_lstm", options={"script": True, "premul_bias": True}, legacy=True,
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("jit_simple", "jit on flat inputs that keeps no outputs: returns the last states only",
         "simple_lstm", options={"script": True}, legacy=True,
         comparable_note="not comparable: it makes no output sequence and its backward, "
                         "from the last state only, does less work", control="cudnn", verify="lstm_states"),
    _rnn("jit_multilayer", "scripted loop over layers around the loop over time",
         "multilayer_lstm", options={"script": True}, layers="any", legacy=True,
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("py", "jit without the script: eager Python loop over time",
         "loop_lstm", options={"script": False}, context="no_jit",
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    # upstream's others
    _rnn("cudnn_dropout", "torch.nn.LSTM with dropout 0.4 between layers",
         "nn_rnn", options={"kind": "lstm", "dropout": 0.4}, layers="any",
         comparable_with="jit_dropout", comparable_note="one layer has no dropout to do; masks differ",
         verify="lstm_dropout"),
    _rnn("cudnn_layernorm", "lower bound, forward only: torch.nn.LSTM plus three layer norms a step",
         "layernorm_bound", has_backward=False, comparable_with="jit_layernorm",
         comparable_note="a lower bound of the work, not a layer-norm LSTM; forward only",
         verify="layernorm_bound"),
    _rnn("jit_layernorm", "scripted LSTM with layer norm on both gate inputs and on the cell",
         "layernorm_lstm", layers="any", legacy=True,
         comparable_with="jit_layernorm_decom", comparable_note=_SAME, verify="lstm_layernorm"),
    _rnn("jit_layernorm_decom", "jit_layernorm with the norm written out as mean and biased std",
         "layernorm_lstm", options={"decompose": True}, layers="any", legacy=True,
         comparable_with="jit_layernorm", comparable_note="the same but for the norm's epsilon, left out",
         verify="lstm_layernorm_decomposed"),
    _rnn("jit_dropout", "scripted stack of LSTM layers with dropout 0.4 between them",
         "stacked_lstm", options={"dropout": 0.4}, layers="any", legacy=True,
         comparable_with="cudnn_dropout", comparable_note="one layer has no dropout to do; masks differ",
         verify="lstm_dropout"),
    _rnn("vl_cudnn", "sequences of 30 to 99 steps: packed, torch.nn.LSTM, padded",
         "varlen_nn_lstm", layers="any", family="vl_lstm",
         comparable_note="the yardstick of vl_*; --seqLength does not apply", verify="vl_lstm"),
    _rnn("vl_jit", "sequences of 30 to 99 steps: scripted loops over samples and steps",
         "varlen_loop_lstm", options={"script": True}, legacy=True, family="vl_lstm",
         comparable_with="vl_cudnn", comparable_note="pads its outputs outside the timed forward",
         control="vl_cudnn", verify="vl_lstm"),
    _rnn("vl_py", "vl_jit without the script: eager Python loops",
         "varlen_loop_lstm", options={"script": False}, context="no_jit", family="vl_lstm",
         comparable_with="vl_cudnn", comparable_note="pads its outputs outside the timed forward",
         control="vl_cudnn", verify="vl_lstm"),
    # beside upstream's: other recurrences, directions and stacks
    _rnn("jit_stacked", "scripted stack of LSTM layer modules (custom_lstms), no dropout",
         "stacked_lstm", layers="any", legacy=True,
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("bidirectional", "torch.nn.LSTM in both directions",
         "nn_rnn", options={"kind": "lstm", "bidirectional": True}, layers="any", family="bilstm",
         comparable_note="the yardstick of two directions", verify="bilstm"),
    _rnn("jit_bidirectional", "scripted stack of two-directional LSTM layer modules (custom_lstms)",
         "stacked_lstm", options={"bidirectional": True}, layers="any", legacy=True, family="bilstm",
         comparable_with="bidirectional", comparable_note=_SAME, control="bidirectional", verify="bilstm"),
    _rnn("jit_mi_lstm", "scripted loop around a multiplicative-integration LSTM cell (arXiv 1606.06630)",
         "mi_lstm", legacy=True, family="mi_lstm",
         comparable_note="nothing else here computes it", verify="mi_lstm"),
    _rnn("gru", "torch.nn.GRU as PyTorch runs it: cuDNN on CUDA, ATen on the CPU",
         "nn_rnn", options={"kind": "gru"}, layers="any", family="gru",
         comparable_note="the yardstick of GRU", verify="gru"),
    _rnn("jit_gru", "scripted loop over time around a GRU cell",
         "cell_rnn", options={"kind": "gru"}, legacy=True, family="gru",
         comparable_with="gru", comparable_note=_SAME, control="gru", verify="gru"),
    _rnn("rnn_relu", "torch.nn.RNN with relu",
         "nn_rnn", options={"kind": "rnn_relu"}, layers="any", family="rnn",
         comparable_note="the yardstick of RNN relu", verify="rnn_relu"),
    _rnn("jit_rnn_relu", "scripted loop over time around an RNN cell with relu",
         "cell_rnn", options={"kind": "rnn_relu"}, legacy=True, family="rnn",
         comparable_with="rnn_relu", comparable_note=_SAME, control="rnn_relu", verify="rnn_relu"),
    _rnn("rnn_tanh", "torch.nn.RNN with tanh",
         "nn_rnn", options={"kind": "rnn_tanh"}, layers="any", family="rnn",
         comparable_note="the yardstick of RNN tanh", verify="rnn_tanh"),
    _rnn("jit_rnn_tanh", "scripted loop over time around an RNN cell with tanh",
         "cell_rnn", options={"kind": "rnn_tanh"}, legacy=True, family="rnn",
         comparable_with="rnn_tanh", comparable_note=_SAME, control="rnn_tanh", verify="rnn_tanh"),
    # LSTMs as one would run them today
    _rnn("cudagraph_cudnn", "cudnn replayed as two CUDA graphs: no launch by the host, the same kernels",
         "fastrnns.graphs:graphed", options={"creator": "nn_rnn", "kind": "lstm"}, layers="any",
         devices=("cuda",), comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("cudagraph_aten", "aten replayed as two CUDA graphs: no launch by the host, the same kernels",
         "fastrnns.graphs:graphed", options={"creator": "nn_rnn", "kind": "lstm"}, layers="any",
         devices=("cuda",), context="no_library",
         comparable_with="cudnn", comparable_note=_SAME, control="aten"),
    _rnn("cudagraph_py", "py, the eager Python loop, replayed as two CUDA graphs",
         "fastrnns.graphs:graphed", options={"creator": "loop_lstm", "script": False},
         devices=("cuda",), context="no_jit",
         comparable_with="cudnn", comparable_note=_SAME, control="py"),
    _rnn("onednn", "torch.nn.LSTM on oneDNN; unsupported where PyTorch would run something else",
         "onednn_lstm", layers="any", devices=("cpu",),
         comparable_with="aten", comparable_note=_SAME, control="aten"),
    _rnn("compile", "py, the eager Python loop, under torch.compile: one graph, unrolled over time",
         "fastrnns.compiled:compiled_lstm", compiled=True,
         comparable_with="cudnn", comparable_note=_SAME, control="py"),
    _rnn("compile_reduce_overhead", "compile in mode reduce-overhead: its kernels replayed as CUDA graphs",
         "fastrnns.compiled:compiled_lstm", options={"mode": "reduce-overhead"}, devices=("cuda",),
         compiled=True, comparable_with="cudnn", comparable_note=_SAME, control="py"),
    _rnn("scan", "the loop as torch's higher-order scan under torch.compile: one step compiled, not all",
         "fastrnns.compiled:scan_lstm", compiled=True,
         comparable_with="cudnn", comparable_note=_SAME, control="py"),
    # persistent kernels in Triton (fastrnns.fused): all steps in one launch
    _rnn("fused", "persistent LSTM in Triton: W_hh stays on the chip for all steps, one launch a layer and direction",
         "nn_rnn", options={"kind": "lstm", "fused": True}, layers="any", devices=("cuda",), needs=("triton",),
         comparable_with="cudnn", comparable_note=_SAME, control="cudnn"),
    _rnn("cudagraph_fused", "fused replayed as two CUDA graphs: no launch by the host, the same kernels",
         "fastrnns.graphs:graphed", options={"creator": "nn_rnn", "kind": "lstm", "fused": True}, layers="any",
         devices=("cuda",), needs=("triton",), comparable_with="cudagraph_cudnn", comparable_note=_SAME,
         control="fused"),
    _rnn("fused_varlen", "fused on packed sequences of 30 to 99 steps: no work for the padding",
         "varlen_nn_lstm", options={"fused": True}, layers="any", family="vl_lstm", devices=("cuda",),
         needs=("triton",), comparable_with="vl_cudnn", comparable_note=_SAME, control="vl_cudnn",
         verify="vl_lstm"),
    # convolutional networks, upstream's: what the JIT does to something that is no RNN
    _cnn("resnet18", "torchvision's resnet18, training mode, batch 32 of 3x224x224",
         options={"arch": "resnet18"}, comparable_note="the yardstick of resnet18"),
    _cnn("resnet18_jit", "resnet18, scripted", options={"arch": "resnet18", "script": True}, legacy=True,
         comparable_with="resnet18", comparable_note=_SAME, control="resnet18"),
    _cnn("resnet50", "torchvision's resnet50, training mode, batch 32 of 3x224x224",
         options={"arch": "resnet50"}, comparable_note="the yardstick of resnet50"),
    _cnn("resnet50_jit", "resnet50, scripted", options={"arch": "resnet50", "script": True}, legacy=True,
         comparable_with="resnet50", comparable_note=_SAME, control="resnet50"),
)  # fmt: skip

REGISTRY: dict[str, Model] = {model.name: model for model in _ROWS}

DEFAULT: dict[str, tuple[str, ...]] = {
    "rnns": ("cudnn", "aten", "jit", "jit_premul", "jit_premul_bias", "jit_simple", "jit_multilayer", "py"),
    "cnns": ("resnet18", "resnet18_jit", "resnet50", "resnet50_jit"),
}
DEFAULT_ON_GPU = ("cudagraph_cudnn", "cudagraph_aten", "fused")  # and these, in seconds, where there is one
MODERN = (
    "cudagraph_cudnn", "cudagraph_aten", "cudagraph_py", "onednn", "compile", "compile_reduce_overhead", "scan",
    "fused", "cudagraph_fused", "fused_varlen",
)  # fmt: skip
VARIABLE = ("vl_cudnn", "vl_jit", "vl_py")  # what --variable-lstms adds


def default(group: str, device_type: str) -> tuple[str, ...]:
    """The models of a group that run where none is named."""
    return DEFAULT[group] + (DEFAULT_ON_GPU if (group, device_type) == ("rnns", "cuda") else ())


@contextmanager
def registered(model: Model) -> Iterator[Model]:
    """Add one row to the registry for the duration of a block (a new model, tried or tested)."""
    if model.name in REGISTRY:
        raise UsageError(f"a model named {model.name} is registered already; choose another name")
    REGISTRY[model.name] = model
    try:
        yield model
    finally:
        del REGISTRY[model.name]


def lookup(name: str, group: str | None = None) -> Model:
    """The row of a name; refuses an unknown one with the names that are near, or all that there are."""
    names = [row.name for row in REGISTRY.values() if group in (None, row.group)]
    if name in names:
        return REGISTRY[name]
    if name in REGISTRY:
        raise UsageError(f"{name} is one of the {REGISTRY[name].group}, not of the {group}; "
                         f"name it with --{REGISTRY[name].group}")  # fmt: skip
    near = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"there are: {' '.join(names)}"
    raise UsageError(f"no model is named {name!r}; {hint}")


def of_series(name: str) -> Model:
    """The row of a model, or of a series of a sweep: a model at one point of the grid."""
    return lookup(sweep.parts(name)[0])


def known(name: str) -> Model | None:
    """The row of a series as a record names it, or None: a record may hold models of another time."""
    return REGISTRY.get(sweep.parts(name)[0])


def table() -> list[dict[str, str]]:
    """What `--list` prints: a row for each model, as text."""
    return [
        {
            "name": model.name,
            "group": model.group,
            "what it is": model.summary + (" [legacy: TorchScript]" if model.legacy else ""),
            "layers": model.layers,
            "devices": " ".join(model.devices),
            "gradient": "yes" if model.has_backward else "no",
            "dtypes": " ".join(model.dtypes),
            "compare with": _comparable(model),
        }
        for model in REGISTRY.values()
    ]


def _comparable(model: Model) -> str:
    return f"{model.comparable_with or '-'}: {model.comparable_note}" if model.comparable_note else "-"


def check_supported(model: Model, problem: Problem, device_type: str, dtype: str = "fp32") -> None:
    """Refuse by name what a model cannot do as asked, and name the models that can."""
    if model.layers == "one" and problem.num_layers > 1:
        several = [row for row in REGISTRY.values() if row.layers == "any" and device_type in row.devices]
        same_maths = [row.name for row in several if row.verify == model.verify]
        able = same_maths or [row.name for row in several if row.family == model.family]
        able = able or [row.name for row in several]
        raise UsageError(f"{model.name} computes one layer and --numLayers is {problem.num_layers}; "
                         f"models with several layers: {' '.join(able)}")  # fmt: skip
    if device_type not in model.devices:
        raise UsageError(
            f"{model.name} does not run on {device_type}; it runs on {' and '.join(model.devices)}"
        )
    if dtype not in model.dtypes:
        raise UsageError(f"{model.name} does not run in {dtype}; it runs in {', '.join(model.dtypes)}")
    if dtype == "tf32" and device_type != "cuda":
        raise UsageError(f"tf32 is a mode of NVIDIA GPUs; {model.name} runs on the {device_type} in fp32")
    if model.name == "jit_layernorm_decom" and problem.hidden_size == 1:
        raise UsageError("jit_layernorm_decom divides by the deviation over the hidden units, which is zero "
                         "for --hiddenSize 1; use jit_layernorm")  # fmt: skip


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def _jit_setting() -> bool | None:
    """What PYTORCH_JIT says: on, off, or nothing."""
    value = os.environ.get("PYTORCH_JIT", "").strip().lower()
    return None if not value else value not in ("0", "false", "off", "no")


def unsupported_reason(model: Model, device_type: str = "cpu") -> str | None:
    """Why this Python and this torch cannot run a model, or None; only a worker asks, it may import torch."""
    python = ".".join(str(part) for part in sys.version_info[:3])
    here = f"(Python {python}, torch {_version('torch')})"
    if model.context == "no_jit" and _jit_setting() is True:
        return f"{model.name} is the model without the JIT, and PYTORCH_JIT says the JIT must be on; unset it"
    if model.legacy and _jit_setting() is False:
        return f"{model.name} is scripted, and PYTORCH_JIT switches the JIT off; unset it"
    if model.legacy and tuple(sys.version_info[:2]) >= PYTHON_WITHOUT_TORCHSCRIPT:
        return f"TorchScript is not supported on Python 3.14 and later {here}"
    if model.legacy and (problem := _torchscript_problem()):
        return f"TorchScript does not work here {here}: {problem}"
    if model.compiled and (problem := _compiler_problem(device_type)):
        return f"torch.compile does not work on the {device_type} here {here}: {problem}"
    for package in model.needs:
        try:
            importlib.import_module(package)
        except Exception as error:
            return (f"{package} {_version(package)} cannot be imported with torch {_version('torch')}: "
                    f"{type(error).__name__}: {error}")  # fmt: skip
    return None


def _torchscript_problem() -> str | None:
    """What torch.jit says when it is asked for the least it can do; None when it works."""
    from fastrnns import cells

    try:
        cells.scripted(cells.rnn_tanh_cell)
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return None


def _compiler_problem(device_type: str) -> str | None:
    """What torch.compile lacks on a device: this Python's support, a C++ compiler, Triton and its C compiler."""
    try:
        from torch._dynamo.eval_frame import check_if_dynamo_supported

        check_if_dynamo_supported()
        if device_type == "cpu":
            from torch._inductor.cpp_builder import get_cpp_compiler

            get_cpp_compiler()
        else:
            importlib.import_module("triton")
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0]
    if device_type != "cpu" and not (os.environ.get("CC") or any(map(shutil.which, ("gcc", "clang", "cc")))):
        return "Triton needs a C compiler (gcc, clang or what CC names), and there is none"
    return None


COMPILERS = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch._higher_order_ops")


def status_of(model: Model, error: BaseException) -> str:
    """The status of a model that raised: unsupported where it, or torch.compile, says that it cannot run."""
    by_compiler = model.compiled and type(error).__module__.startswith(COMPILERS)
    return "unsupported" if by_compiler or isinstance(error, UnsupportedError) else "failed"


def _resolve(creator: str | Creator) -> Creator:
    if callable(creator):
        return creator
    module, _, name = creator.rpartition(":")
    found: Creator = getattr(importlib.import_module(module or "fastrnns.factory"), name)
    return found


def lengths_of(model: Model, made: ModelDef) -> list[int] | None:
    """The lengths of the sequences, where each has its own."""
    return [len(sequence) for sequence in made.inputs[0]] if model.family == "vl_lstm" else None


def build(
    model: Model,
    problem: Problem,
    device: str | torch.device,
    dtype: str = "fp32",
    seed: int = 17,
    **overrides: Any,
) -> ModelDef:
    """Make a model's inputs, parameters and functions, the same for the same seed on every device."""
    import torch

    from fastrnns.precision import torch_dtype

    options = {**model.options, **overrides}
    create = _resolve(model.creator)
    return create(problem, device=torch.device(device), dtype=torch_dtype(dtype), seed=seed, **options)


@contextmanager
def entered(model: Model) -> Iterator[None]:
    """Hold what a model's row asks for while it runs, and put back what was there."""
    if model.context == "no_library":
        from fastrnns.backends import libraries_off

        with libraries_off():
            yield
        return
    if model.context == "no_jit" and _jit_setting() is True:
        raise HarnessError(str(unsupported_reason(model)))
    yield


def backend(model: Model, device: str | torch.device, dtype: str = "fp32") -> str:
    """The name of what really runs this model on this device; cuDNN on a CPU is not cuDNN.

    It is read from what a small run of the model leaves behind, in the model's own context.
    """
    import torch

    from fastrnns import backends, factory, fuser
    from fastrnns.precision import torch_dtype

    device = torch.device(device)
    if model.compiled:  # not asked of a small one: that would compile it
        return f"torch.compile (Inductor, {'Triton' if device.type == 'cuda' else 'C++'})"
    with entered(model), factory.generators_kept(device):
        if model.group == "cnns":
            library = backends.convolution_library(device, torch_dtype(dtype))
        elif model.legacy:
            library = ""  # its loops are made of ATen's products and pointwise operators
        else:
            made = build(model, Problem(2, 1, 4, 8, 2), device, dtype)
            library = made.backend or backends.library_of(made.forward(*made.inputs))
    if not model.legacy:
        return library
    return f"TorchScript ({fuser.describe()})" + (f" on {library}" if library else "")
