"""Which algorithm cuDNN's RNN ran, read from the names of its kernels. Pure.

cuDNN has three (cudnnRNNAlgo_t): STANDARD launches a product and an elementwise kernel a step (or for
several steps at once); PERSIST_STATIC and PERSIST_DYNAMIC keep the recurrent weights on the chip in one long
kernel, called after the cell and the architecture that it was written for (ampere_lstm_tile16,
ampere_lstm_bp_largeB: seen on an H200 with cuDNN 9 in fp16) or after what it does (RNN_blockPersist_fp_LSTM).
PyTorch asks for a persistent one in fp16 at some sizes only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_PERSISTENT = re.compile(r"persist", re.IGNORECASE)
_WHOLE = re.compile(r"\b(volta|turing|ampere|ada|hopper|blackwell)_(lstm|gru|rnn)_", re.IGNORECASE)
_DYNAMIC = re.compile(r"dynamic|dyn_", re.IGNORECASE)
_ELEMENTWISE = re.compile(
    r"elemwise\w*rnn|rnn\w*elemwise|(lstm|gru|rnn)_elementwise|elementwise\w*(lstm|gru)|lstm\w*cell|rnncell",
    re.IGNORECASE,
)
_PRODUCT = re.compile(r"gemm|xmma|cutlass|matmul|_mma|nvjet", re.IGNORECASE)
_OPERATOR = re.compile(r"_cudnn_rnn")


def is_product(name: str) -> bool:
    """Whether a kernel is a matrix product, by its name."""
    return bool(_PRODUCT.search(name))


def algorithm(kernels: Sequence[str], operators: Sequence[str] = ()) -> dict[str, Any] | None:
    """The algorithm and the kernels that show it; None where cuDNN's RNN did not run."""
    names = sorted(set(kernels))
    persistent = [
        name
        for name in names
        if _WHOLE.search(name)
        or (_PERSISTENT.search(name) and re.search("rnn|lstm|gru", name, re.IGNORECASE))
    ]
    elementwise = [name for name in names if _ELEMENTWISE.search(name) and "at::native" not in name]
    ran = any(_OPERATOR.search(name) for name in operators)
    if persistent and (ran or not operators or not elementwise):
        kind = "PERSIST_DYNAMIC" if any(_DYNAMIC.search(name) for name in persistent) else "PERSIST_STATIC"
        return {"algorithm": kind, "evidence": persistent}
    if not ran and (operators or not elementwise):  # a counter tool lists no operators: the kernels must tell
        return None
    if elementwise:
        return {
            "algorithm": "STANDARD",
            "evidence": elementwise + [name for name in names if is_product(name)],
        }
    return {"algorithm": "unknown", "evidence": names}
