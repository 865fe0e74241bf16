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


_FP32 = Tolerance(1e-3)  # upstream's threshold
_NETWORK = Tolerance(1e-3, relative=1e-3)  # fifty layers deep; its gradients reach into the thousands

_OTHERS = {
    "tf32": Tolerance(16 * 2**-11, relative=16 * 2**-11),  # 10 bits after the point
    "fp16": Tolerance(16 * 2**-11, relative=16 * 2**-11),
    "bf16": Tolerance(16 * 2**-8, relative=16 * 2**-8),  # 7 bits after the point
}


def tolerance_for(verify: str, dtype: str) -> Tolerance:
    """The tolerance of a kind of check in a number format."""
    if dtype != "fp32":
        return _OTHERS[dtype]
    return _NETWORK if verify == "cnn" else _FP32
