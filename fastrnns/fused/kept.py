"""Compiled Triton kernels kept for the next call, which then goes straight to the launcher."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import triton
from torch import Tensor

from fastrnns.fused import kernels

# Under TRITON_INTERPRET=1 the kernels are interpreted, program after program.
INTERPRETED = not isinstance(kernels.lstm_forward, triton.runtime.JITFunction)


@dataclass(frozen=True, eq=False)
class Kept:
    """Kernels compiled for arguments of one kind; tensors must begin at multiples of 16 bytes.

    Triton's own call finds the compiled kernel by looking at every argument for more than their types, which takes
    longer than the launch.
    """

    compiled: dict[tuple[Any, ...], Any] = field(default_factory=dict)

    def start(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        args: tuple[Any, ...],
        constants: tuple[Any, ...],
        **options: Any,
    ) -> None:
        """Launch on the current stream; `constants` are the kernel's compile-time arguments, `options` Triton's."""
        if INTERPRETED:
            kernel[grid](*args, *constants)
            return
        # A state's type differs between the launches of a long sequence: between them it is carried in fp32.
        types = tuple(a.dtype if isinstance(a, Tensor) else a is None for a in args)
        key = (id(kernel), constants, types)
        known = self.compiled.get(key)
        if known is None:
            self.compiled[key] = kernel[grid](*args, *constants, **options)
            return
        # Addresses as numbers: given tensors, the launcher asks the driver about each one.
        plain = [a.data_ptr() if isinstance(a, Tensor) else a for a in args]
        known[grid + (1,) * (3 - len(grid))](*plain, *constants)
