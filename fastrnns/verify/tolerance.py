"""How large a difference passes, for each number format; every check prints the one it was held to. No torch.

The fp32 figure is upstream's, with TF32 off. The others follow from the significant bits of the format, and
only models that were asked to run in it are held to them: nothing here is chosen by looking at a result.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """The largest difference that passes.

    Attributes:
        absolute: in the units of the tensor.
        relative: of the largest element of the tensor it is compared with; 0 where only `absolute` counts.
    """

    absolute: float
    relative: float = 0.0

    def allowed(self, largest: float) -> float:
        """The largest difference that passes beside a tensor whose largest element is given."""
        return max(self.absolute, self.relative * largest)

    def __str__(self) -> str:
        if not self.relative:
            return f"{self.absolute:g}"
        return f"{self.absolute:g}, or {self.relative:.2g} of the largest element"


UPSTREAM = 1e-3  # upstream's threshold, which its LSTMs are held to in fp32
_LSTMS = {"lstm", "lstm_states", "lstm_dropout", "vl_lstm", "bilstm", "layernorm_bound"}

_SUMS = 256  # units in the last place that a sum over hundreds of steps and samples may lose

# What upstream does not check in fp32 has gradients that reach into the hundreds and beyond, where a fixed
# figure would ask for more bits than fp32 has: there it is the bits that count.
_FP32 = Tolerance(UPSTREAM, relative=_SUMS * 2**-24)
_NETWORK = Tolerance(UPSTREAM, relative=UPSTREAM)  # fifty layers deep

_OTHERS = {
    "tf32": Tolerance(16 * 2**-11, relative=16 * 2**-11),  # 10 bits after the point
    "fp16": Tolerance(16 * 2**-11, relative=16 * 2**-11),
    "bf16": Tolerance(16 * 2**-8, relative=16 * 2**-8),  # 7 bits after the point
}


def tolerance_for(verify: str, dtype: str) -> Tolerance:
    """The tolerance of a kind of check in a number format."""
    if dtype != "fp32":
        return _OTHERS[dtype]
    if verify in _LSTMS:
        return Tolerance(UPSTREAM)
    return _NETWORK if verify == "cnn" else _FP32
