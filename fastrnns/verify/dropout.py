"""Checks of a model with dropout: its masks are random, so its statistics and its seed are checked."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fastrnns import factory, runner
from fastrnns.runner import Model
from fastrnns.sizes import Problem
from fastrnns.verify import tensors
from fastrnns.verify.tensors import Check

if TYPE_CHECKING:
    from fastrnns.verify.checks import Settings

SMALL = 1e-2  # layer 2's weight: small enough for tanh to be a line (its cubic term is 3e-5 of the value)
SHARE_DEVIATIONS = 6.0  # of the binomial share: about one false alarm in 5e8
KEPT_ERROR = 0.02  # of the value 1 / (1 - p) by which what is kept must be scaled
DRAWS = 64 * 512  # elements of the mask that are looked at, about


def checks(model: Model, settings: Settings) -> list[Check]:
    """The share that is dropped, the scale of what is kept, and that a seed decides both."""
    p = float(model.options["dropout"])
    hidden = settings.problem.hidden_size
    batch = max(1, DRAWS // hidden)
    shown, plain = _mask(model, settings, (batch, hidden), p), _mask(model, settings, (batch, hidden), 0.0)
    found = [
        tensors.finite("output under dropout", shown, (1, batch, hidden)),
        tensors.finite("output without dropout", plain, (1, batch, hidden)),
    ]
    if not all(check.ok for check in found):
        return found
    count = shown.numel()
    share = float((shown == 0).double().mean())
    allowed = SHARE_DEVIATIONS * math.sqrt(p * (1 - p) / count)
    found.append(
        tensors.stated(
            "share dropped", f"p = {p:g}", abs(share - p) <= allowed,
            f"{share:.4f} of {count} elements are dropped; {p:g} +- {allowed:.4f} would be right",
            abs(share - p),
        )
    )  # fmt: skip
    kept = shown != 0
    scale = float((shown[kept] / plain[kept]).double().median()) if bool(kept.any()) else math.nan
    wanted = 1 / (1 - p)
    found.append(
        tensors.stated(
            "scale of what is kept", f"1 / (1 - p) = {wanted:.4g}", abs(scale / wanted - 1) <= KEPT_ERROR,
            f"what is kept is scaled by {scale:.4f}; {wanted:.4f} would be right", abs(scale - wanted),
        )
    )  # fmt: skip
    again = _mask(model, settings, (batch, hidden), p)
    other = _mask(model, settings, (batch, hidden), p, seed=settings.seed + 1)
    if seed_decides(model, settings.device):
        found.append(
            tensors.stated(
                "same seed", "itself", torch.equal(shown == 0, again == 0), "the same seed gave another mask"
            )
        )
    found.append(
        tensors.stated(
            "another seed",
            "itself",
            not torch.equal(shown == 0, other == 0),
            "another seed gave the same mask",
        )
    )
    return found


def seed_decides(model: Model, device: torch.device) -> bool:
    """Whether a seed decides the masks: PyTorch seeds cuDNN's own generator once in a process, and never again."""
    return model.legacy or device.type != "cuda"


def _mask(
    model: Model, settings: Settings, shape: tuple[int, int], p: float, seed: int | None = None
) -> Tensor:
    """One step of two layers whose second layer shows, element by element, what it was given.

    With zero states and biases and weights on the cell gate alone, the second layer returns
    tanh(tanh(w x) / 2) / 2, which is zero exactly where x was dropped.
    """
    batch, hidden = shape
    problem = Problem(1, 2, settings.problem.input_size, hidden, batch)
    seed = settings.seed if seed is None else seed
    with runner.entered(model), torch.no_grad():
        made = runner.build(model, problem, settings.device, settings.dtype, seed, dropout=p)
        for weight in made.params[4:]:
            weight.zero_()
        made.params[4][2 * hidden : 3 * hidden] = SMALL * torch.eye(hidden)  # w_ih of layer 2: i, f, g, o
        x, (h, c) = made.inputs
        # the masks of a model follow from the seed alone, however much its creator drew
        factory.seed_generators(seed, settings.device)
        output: Tensor = made.forward(x, (torch.zeros_like(h), torch.zeros_like(c)))[0]
    return output
