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
        norm: of the Euclidean norm of that tensor: a difference whose own norm is within it passes whatever
            its largest element; 0 where only elements count.
    """

    absolute: float
    relative: float = 0.0
    norm: float = 0.0

    def allowed(self, largest: float) -> float:
        """The largest difference that passes beside a tensor whose largest element is given."""
        return max(self.absolute, self.relative * largest)

    def __str__(self) -> str:
        if not self.relative:
            return f"{self.absolute:g}"
        text = f"{self.absolute:g}, or {self.relative:.2g} of the largest element"
        return f"{text}, or {self.norm:.2g} of the norm" if self.norm else text


_FP32 = Tolerance(1e-3)  # upstream's threshold
_NETWORK = Tolerance(1e-3, relative=1e-3)  # fifty layers deep; its gradients reach into the thousands
# Gradients of a network beside float64: a relu whose input is within rounding of zero (there is always one among a
# million) has another slope there, and moves single elements by parts of a thousand in any implementation. A slope
# flips few of very many paths, so it hardly moves the norm; a wrong derivative of any layer moves it by its whole.
_NETWORK_GRADIENT = Tolerance(1e-3, relative=1e-3, norm=1e-2)

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


def gradient_tolerance_for(verify: str, dtype: str) -> Tolerance:
    """The tolerance of gradients beside float64."""
    return _NETWORK_GRADIENT if (verify, dtype) == ("cnn", "fp32") else tolerance_for(verify, dtype)
