"""Operations as torch's own counter sees them. Imports torch; workers only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch.utils.flop_counter import FlopCounterMode

from fastrnns import runner
from fastrnns.sizes import Problem

# The models with the same products, one operator each, by family and whether there are several layers.
THROUGH = {
    ("lstm", False): "py",
    ("lstm", True): "jit_multilayer",
    ("vl_lstm", False): "vl_py",
    ("bilstm", False): "jit_bidirectional",
    ("bilstm", True): "jit_bidirectional",
}


@dataclass(frozen=True)
class Counted:
    """The operations of each phase; `through` names the model that was counted in place of this one."""

    forward: int
    backward: int | None
    operators: dict[str, int] = field(default_factory=dict)
    through: str | None = None
    note: str = ""


def count(model: runner.Model, problem: Problem, device: Any, dtype: str, seed: int) -> Counted:
    """Count one iteration of a model; of a fused operator, through its py model.

    The counter sees each operator that is dispatched; cuDNN's and oneDNN's LSTM are one operator to it, and
    one that it has no formula for.
    """
    if not model.compiled:  # the counter cannot look into what a compiler made
        counted = _count(model, problem, device, dtype, seed)
        if counted.forward:
            return counted
    through = THROUGH.get((model.family, problem.num_layers > 1))
    if through is None or runner.unsupported_reason(runner.lookup(through)):
        return Counted(0, None, note="one fused operator, which torch's counter has no formula for")
    seen = _count(runner.lookup(through), problem, device, dtype, seed)
    backward = seen.backward if model.has_backward else None
    what = "compiled" if model.compiled else "one fused operator to torch's counter"
    note = f"{model.name} is {what}: counted through {through}"
    return Counted(seen.forward, backward, seen.operators, through, note)


def _count(model: runner.Model, problem: Problem, device: Any, dtype: str, seed: int) -> Counted:
    with runner.entered(model):
        made = runner.build(model, problem, device, dtype, seed)
        with FlopCounterMode(display=False) as forward:
            outputs = made.forward(*made.inputs)
        backward: FlopCounterMode | None = None
        if made.backward is not None:
            gradients = made.backward_setup(outputs)
            with FlopCounterMode(display=False) as backward:
                made.backward(*gradients)
    operators: dict[str, int] = {}
    for counter in (forward, backward):
        for operator, number in (counter.get_flop_counts().get("Global", {}) if counter else {}).items():
            operators[str(operator)] = operators.get(str(operator), 0) + int(number)
    return Counted(
        int(forward.get_total_flops()), int(backward.get_total_flops()) if backward else None, operators
    )
