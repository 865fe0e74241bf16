"""What is checked of each model: equal inputs, then outputs and gradients beside a control and float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fastrnns import factory, runner
from fastrnns.errors import HarnessError
from fastrnns.precision import torch_dtype
from fastrnns.runner import Model
from fastrnns.sizes import Problem
from fastrnns.verify import dropout, references, tensors
from fastrnns.verify.tensors import Check
from fastrnns.verify.tolerance import Tolerance, gradient_tolerance_for, tolerance_for

SCRIPTED_RUNS = 3  # TorchScript specialises after its first runs: the optimised code is what must be right
# A layer-norm LSTM amplifies a difference about 1.1 times a step: 1e-7 reaches the tolerance near step 90.
STEPS_OF_LAYER_NORM = 10
NEAR_KINK = (
    5e-6  # a few times what fp32 rounds in a pre-activation: nearer to zero, relu's slope is a matter of luck
)
EXACT = Tolerance(0.0)
FLOAT64 = "float64"

Named = dict[str, Any]
AskReference = Callable[["Model", "Outcome"], "tuple[Named, Named | None]"]


@dataclass(frozen=True)
class Settings:
    """What all models of one verification are built with."""

    problem: Problem
    device: torch.device
    dtype: str = "fp32"  # as its tolerance is named
    seed: int = 17
    check_grad: bool = True
    images: int = factory.IMAGES  # what a resnet is given
    image_size: int = factory.IMAGE_SIZE


@dataclass(frozen=True)
class Outcome:
    """One model's run: what went in, what came out, and the gradients."""

    data: Named
    weights: tuple[Tensor, ...]
    names: tuple[str, ...]  # of the weights
    outputs: Named
    gradients: tuple[Tensor | None, ...] | None
    start: str  # the output that the gradient starts from
    gradient: Tensor | None

    def by_name(self, values: tuple[Tensor | None, ...], names: tuple[str, ...], prefix: str = "") -> Named:
        """Weights or their gradients by name; those that have none by their place."""
        return {
            f"{prefix}{names[i] if i < len(names) else f'parameter {i}'}": value
            for i, value in enumerate(values)
        }


@dataclass(frozen=True)
class Verified:
    """What one model's checks found."""

    checks: list[Check]
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether every check passed, and there was one."""
        return bool(self.checks) and all(check.ok for check in self.checks)


class Verifier:
    """Checks models one after the other; a float64 reference that several of them share is computed once."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._references: dict[
            tuple[references.Reference, str], tuple[list[Tensor], tuple[Named, Named | None]]
        ] = {}

    def verify(self, model: Model) -> Verified:
        """All checks of one model."""
        notes = list(self._notes(model))
        if model.verify != "cnn" and model.verify not in references.REFERENCES:
            raise HarnessError(f"{model.name} names the reference {model.verify!r}, which does not exist")
        if model.group == "cnns":
            checks = self._network(model, notes)
        else:
            overrides = {"dropout": 0.0} if model.verify == "lstm_dropout" else {}
            checks = self._each_run(model, notes, overrides, self._reference)
        if model.verify == "lstm_dropout":
            checks += dropout.checks(model, self.settings)
        return Verified(checks, list(dict.fromkeys(notes)))

    def _network(self, model: Model, notes: list[str]) -> list[Check]:
        """Check a network training beside its control, and evaluating beside float64 too.

        Batch norm over a few images amplifies the last bit of a product into the first of a gradient, in
        every implementation; so float64 judges the same layers with fixed statistics.
        """
        checks = self._each_run(model, notes, {"train": True}, None)
        evaluated = self._each_run(model, notes, {"train": False}, self._network_in_float64)
        return checks + [replace(check, tensor=f"evaluating: {check.tensor}") for check in evaluated]

    def _each_run(
        self, model: Model, notes: list[str], overrides: Mapping[str, Any], reference: AskReference | None
    ) -> list[Check]:
        runs = SCRIPTED_RUNS if model.legacy else 1
        settings = self._settings(model, notes)
        gradient = self._gradient_off_kinks(model, settings, notes) if model.verify == "rnn_relu" else None
        if gradient is not None and not bool(gradient.any()):
            settings = replace(settings, check_grad=False)  # nothing would be compared: the notes say why
        outcomes = run(model, settings, runs=runs, gradient=gradient, overrides=overrides)
        control = None
        if (
            model.control is not None
        ):  # from the same seed, with the model's own gradient, the same in each run
            first = outcomes[0]
            control = run(
                runner.lookup(model.control), settings,
                start=first.start, gradient=first.gradient, overrides=overrides,
            )[0]  # fmt: skip
        checks: list[Check] = []
        for number, outcome in enumerate(outcomes, 1):
            found = self._compare(model, outcome, control, notes, reference)
            if number < len(outcomes):  # earlier runs are told of only where they fail
                found = [replace(c, tensor=f"{c.tensor} (run {number})") for c in found if not c.ok]
            checks += found
        return checks

    def _notes(self, model: Model) -> list[str]:
        notes = []
        if not model.has_backward:
            notes.append("forward only: it has no gradient to check")
        if model.verify == "lstm_dropout":
            notes.append(
                "its masks are random, so it is compared with the dropout at 0, and then by its statistics"
            )
            if not dropout.seed_decides(model, self.settings.device):
                notes.append(
                    "a seed decides only the first masks of a process: cuDNN keeps its own generator"
                )
        if model.verify == "layernorm_bound":
            notes.append("a lower bound of the work: its outputs are those of a plain LSTM")
        if model.group == "cnns":
            s = self.settings
            notes.append(
                f"on {s.images} images of 3x{s.image_size}x{s.image_size};"
                " beside float64 with fixed batch statistics"
            )
            if s.dtype != "fp32":
                notes.append(
                    f"its gradients are not compared with float64: in {s.dtype} rounding decides the slopes"
                    " of many relus, in any implementation"
                )
        return notes

    def _compare(
        self,
        model: Model,
        outcome: Outcome,
        control: Outcome | None,
        notes: list[str],
        reference: AskReference | None,
    ) -> list[Check]:
        tolerance = tolerance_for(model.verify, self.settings.dtype)
        checks: list[Check] = []
        if control is not None and model.control is not None:
            same = _same_start(outcome, control, model.control)
            if not all(check.ok for check in same):
                notes.append(
                    f"its inputs or weights are not those of {model.control}: nothing else was compared"
                )
                return same
            wanted = {name: control.outputs.get(name) for name in outcome.outputs}
            checks += same
            checks += tensors.compare_all(outcome.outputs, wanted, model.control, tolerance)
            if outcome.gradients is not None:
                checks += tensors.compare_all(
                    outcome.by_name(outcome.gradients, outcome.names, "gradient of "),
                    control.by_name(control.gradients or (), outcome.names, "gradient of "),
                    model.control,
                    tolerance,
                )
        if reference is None:
            return checks or _well_formed(outcome)
        found = reference(model, outcome)
        return checks + self._against_float64(model, outcome, control, notes, found)

    def _gradient_off_kinks(self, model: Model, settings: Settings, notes: list[str]) -> Tensor | None:
        """A random gradient, zero for the sequences in which rounding decides the slope of a relu."""
        if not settings.check_grad:
            return None
        started = run(model, replace(settings, check_grad=False))[0]
        with torch.no_grad():
            distance = references.distance_to_kink(
                [tensor.double() for tensor in started.data.values()],
                [weight.double() for weight in started.weights],
            )
        clear = distance > NEAR_KINK  # (B,)
        _, gradient = factory.random_gradient(started.outputs["output"], settings.seed)  # (T, B, H)
        if not bool(clear.all()):
            notes.append(
                f"gradients from {int(clear.sum())} of {len(clear)} sequences: in the others a relu's input "
                f"is within {NEAR_KINK:g} of zero, where rounding decides its slope"
            )
        return gradient * clear.to(gradient.dtype).view(1, -1, 1)

    def _settings(self, model: Model, notes: list[str]) -> Settings:
        """The settings, with fewer steps for a model in which rounding grows from step to step."""
        problem = self.settings.problem
        if not model.verify.startswith("lstm_layernorm") or problem.seq_length <= STEPS_OF_LAYER_NORM:
            return self.settings
        notes.append(
            f"over {STEPS_OF_LAYER_NORM} of the {problem.seq_length} steps: layer norm makes rounding grow "
            "from step to step, in any implementation"
        )
        return replace(self.settings, problem=replace(problem, seq_length=STEPS_OF_LAYER_NORM))

    def _against_float64(
        self,
        model: Model,
        outcome: Outcome,
        control: Outcome | None,
        notes: list[str],
        reference: tuple[Named, Named | None],
    ) -> list[Check]:
        """Compare with float64, and note beside each error what the control's is."""
        checks = self._errors(model, outcome, outcome.names, reference)
        if control is None:
            return checks
        beside = self._errors(model, control, outcome.names, reference)
        if wrong := [check.tensor for check in beside if not check.ok and check.tensor in reference[0]]:
            notes.append(f"the control {model.control} is itself off the float64 reference in {wrong[0]}")
        errors = {check.tensor: check.max_abs for check in beside}
        return [replace(check, control_max_abs=errors.get(check.tensor)) for check in checks]

    def _errors(
        self, model: Model, outcome: Outcome, names: tuple[str, ...], reference: tuple[Named, Named | None]
    ) -> list[Check]:
        tolerance = tolerance_for(model.verify, self.settings.dtype)
        dtype = torch_dtype(self.settings.dtype)
        outputs, gradients = reference
        checks = tensors.compare_all(outcome.outputs, outputs, FLOAT64, tolerance, dtype=dtype)
        if outcome.gradients is not None and gradients is not None:
            named = outcome.by_name(outcome.gradients, names, "gradient of ")
            tolerance = gradient_tolerance_for(model.verify, self.settings.dtype)
            checks += tensors.compare_all(named, gradients, FLOAT64, tolerance, dtype=dtype)
        return checks

    def _reference(self, model: Model, outcome: Outcome) -> tuple[Named, Named | None]:
        """Outputs and gradients in float64 of the same inputs, weights and random gradient."""
        given = [
            *outcome.data.values(),
            *outcome.weights,
            *([] if outcome.gradient is None else [outcome.gradient]),
        ]
        key = references.REFERENCES[model.verify], outcome.start
        known = self._references.get(key)
        if known and len(known[0]) == len(given) and all(map(torch.equal, known[0], given)):
            outputs, gradients = known[1]
        else:
            outputs, gradients = _in_float64(references.REFERENCES[model.verify], outcome)
            self._references[key] = ([tensor.detach() for tensor in given], (outputs, gradients))
        if gradients is not None:
            values = tuple(gradients.values())
            gradients = outcome.by_name(values, outcome.names, "gradient of ")
        return outputs, gradients

    def _network_in_float64(self, model: Model, outcome: Outcome) -> tuple[Named, Named | None]:
        """The same network, weights and images in float64, evaluating: eager, whatever the model is."""
        settings = replace(self.settings, dtype="fp64")
        found = run(
            model,
            settings,
            start=outcome.start,
            gradient=outcome.gradient,
            overrides={"script": False, "train": False},
        )[0]
        # Beside fp32 only: see _notes.
        gradients = found.gradients if self.settings.dtype == "fp32" else None
        named = None if gradients is None else found.by_name(gradients, outcome.names, "gradient of ")
        return found.outputs, named


def run(
    model: Model,
    settings: Settings,
    *,
    runs: int = 1,
    start: str | None = None,
    gradient: Tensor | None = None,
    overrides: Mapping[str, Any] | None = None,
) -> list[Outcome]:
    """Build a model and run it: by its own backward, or with a given gradient from a given output."""
    options = dict(overrides or {})
    if model.group == "cnns":
        options |= {"images": settings.images, "image_size": settings.image_size}
    outcomes = []
    with runner.entered(model):
        made = runner.build(
            model, settings.problem, settings.device, settings.dtype, settings.seed, **options
        )
        for _ in range(runs):
            for param in made.params:
                param.grad = None
            raw = made.forward(*made.inputs)
            outputs = named_outputs(model, raw)
            grads = None
            if model.has_backward and settings.check_grad and made.backward is not None:
                if gradient is None:
                    tensor, used = made.backward_setup(raw, settings.seed)
                else:
                    tensor, used = outputs[start or "output"], gradient.to(torch_dtype(settings.dtype))
                made.backward(tensor, used)
                grads = tuple(None if p.grad is None else p.grad.detach().clone() for p in made.params)
            outcomes.append(
                Outcome(
                    data=named_inputs(made),
                    weights=made.params,
                    names=made.names,
                    outputs={name: tensor.detach() for name, tensor in outputs.items()},
                    gradients=grads,
                    start=start or ("state h" if "output" not in outputs else "output"),
                    gradient=used if grads is not None else None,
                )
            )
    return outcomes


def named_inputs(made: factory.ModelDef) -> Named:
    """The inputs of a model that are no weights, by name."""
    weights = {id(param) for param in made.params}
    leaves = [value for _, value in tensors.flatten(made.inputs) if id(value) not in weights]
    if len(leaves) <= 3:
        return dict(zip(("input", "initial h", "initial c"), leaves, strict=False))
    names = [f"sequence {i}" for i in range(len(leaves) - 2)]
    return dict(zip((*names, "initial h", "initial c"), leaves, strict=True))


def named_outputs(model: Model, outputs: Any) -> Named:
    """What a model returns, by name: sequences padded and states joined, as torch.nn.LSTM gives them."""
    if isinstance(outputs, Tensor):
        return {"output": outputs}
    if model.verify == "lstm_states":
        return {"state h": outputs[0], "state c": outputs[1]}
    output, states = outputs
    if isinstance(states, Tensor):
        return {"output": output, "state h": states}
    h, c = states
    if isinstance(output, list):
        output = nn.utils.rnn.pad_sequence(output)  # (longest, B, H)
        h, c = torch.cat(list(h)).unsqueeze(0), torch.cat(list(c)).unsqueeze(0)  # (1, B, H)
    return {"output": output, "state h": h, "state c": c}


def _well_formed(outcome: Outcome) -> list[Check]:
    """Shapes and finiteness, where there is nothing to compare with."""
    checks = [tensors.finite(name, value, value.shape) for name, value in outcome.outputs.items()]
    for gradient, weight, name in zip(outcome.gradients or (), outcome.weights, outcome.names, strict=False):
        checks.append(tensors.finite(f"gradient of {name}", gradient, weight.shape))
    return checks


def _same_start(outcome: Outcome, control: Outcome, against: str) -> list[Check]:
    """Whether both models started from the same numbers, exactly."""
    return [
        *tensors.compare_all(outcome.data, control.data, against, EXACT),
        *tensors.compare_all(
            outcome.by_name(outcome.weights, outcome.names),
            control.by_name(control.weights, outcome.names),
            against,
            EXACT,
        ),
    ]


def _in_float64(reference: Callable[..., Named], outcome: Outcome) -> tuple[Named, Named | None]:
    inputs = [tensor.detach().double() for tensor in outcome.data.values()]
    weights = [weight.detach().double().requires_grad_() for weight in outcome.weights]
    outputs = reference(inputs, weights)
    gradients = None
    if outcome.gradient is not None:
        found = torch.autograd.grad(
            outputs[outcome.start], weights, outcome.gradient.double(), allow_unused=True
        )
        gradients = {str(i): gradient for i, gradient in enumerate(found)}
    return {name: tensor.detach() for name, tensor in outputs.items()}, gradients
