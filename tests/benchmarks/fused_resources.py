"""Compiles the fused kernels for sm_90 without a GPU and prints what each takes: registers, spills, shared memory.

    python -m tests.benchmarks.fused_resources [--json] [HIDDEN BATCH]

Exit code 1 when a plan's kernel spills in its registers' stack or passes the shared memory of a program.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from fastrnns.fused import kernels, launch
from fastrnns.fused.plan import SHARED_BYTES, Plan, Tiles, ceil_div, choose, words

SM90 = GPUTarget("cuda", 90, 32)
PROCESSORS = 132
TYPES = {"bf16": "*bf16", "fp16": "*fp16", "tf32": "*fp32", "fp32": "*fp32"}
FIXED = {
    "cells": "*fp32",
    "exch": "*i32",
    "lengths": "*i32",
    "offsets": "*i32",
    "db": "*fp32",
    "inboxes": "*i32",
}
WHOLE = {"t0", "t1", "steps", "tile0"}
SIZES = [(512, 64), (64, 16), (1024, 64), (512, 256), (200, 7), (1, 1)]
STACK_LIMIT = 128  # bytes a thread: a handful of registers parked outside the time loop


def constants(
    kernel: Any, hidden: int, batch: int, plan: Plan, precision: launch.Precision, varlen: bool
) -> dict[str, Any]:
    """The compile-time arguments of a training launch with everything present."""
    forward = kernel is kernels.lstm_forward
    tiles: Tiles = plan.forward if forward else plan.backward
    units = ceil_div(hidden, tiles.hidden)
    shared = {
        "B": batch, "H": hidden, "NT": units, "NBT": ceil_div(batch, tiles.batch), "BT": tiles.batch, "HB": tiles.hidden,
        "OP": precision.operand, "PARTS": precision.parts, "SCALED": precision.scaled, "SWAP": tiles.swap,
        "HAS_C": True, "VARLEN": varlen, "PHASE": 0, "SPINS": 0,
    }  # fmt: skip
    if forward:
        width = words(hidden, tiles.hidden, precision.parts)
        return shared | {
            "KW": width, "BK": tiles.chunk, "NK": ceil_div(width, tiles.chunk),
            "HAS_BIAS": True, "HAS_H": True, "TRAIN": True,
        }  # fmt: skip
    return shared | {
        "BN": tiles.chunk, "NN": ceil_div(units * tiles.hidden, tiles.chunk),
        "BP": tiles.makers, "NP": ceil_div(units, tiles.makers),
        "VEC": max(1, tiles.batch * tiles.hidden // (32 * tiles.warps)),
        "HAS_DY": True, "HAS_DH": True, "HAS_DC": True, "WANT_DH": True, "WANT_DC": True,
    }  # fmt: skip


def usage(kernel: Any, fixed: dict[str, Any], element: str, warps: int) -> dict[str, Any]:
    """Compile one kernel for sm_90 and read its resources."""
    names = kernel.arg_names
    types = {n: "constexpr" if n in fixed else FIXED.get(n, "i32" if n in WHOLE else element) for n in names}
    attributes = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if types[n].startswith("*")}
    source = ASTSource(kernel, types, fixed, attributes)
    options = {"num_warps": warps, "num_stages": 1, "launch_cooperative_grid": True}
    compiled = triton.compile(source, target=SM90, options=options)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(compiled.asm["cubin"])
        file.flush()
        text = subprocess.run(
            [tool, "-res-usage", file.name], capture_output=True, text=True, check=True
        ).stdout
    ptx = compiled.asm["ptx"]
    return {
        "registers": int(re.findall(r"REG:(\d+)", text)[-1]),
        "stack_bytes": int(re.findall(r"STACK:(\d+)", text)[-1]),
        "shared_bytes": compiled.metadata.shared,
        "matrix": "wgmma" if "wgmma.mma_async" in ptx else "mma.sync" if "mma.sync" in ptx else "none",
    }


def report(sizes: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Resources of both kernels, for each size and precision that has a plan."""
    rows: list[dict[str, Any]] = []
    for hidden, batch in sizes:
        for name, precision in launch.PRECISIONS.items():
            plan = choose(hidden, batch, precision.parts, precision.scaled, PROCESSORS)
            if isinstance(plan, str):
                rows.append({"hidden": hidden, "batch": batch, "precision": name, "fallback": plan})
                continue
            for kernel, tiles in (
                (kernels.lstm_forward, plan.forward),
                (kernels.lstm_backward, plan.backward),
            ):
                fixed = constants(kernel, hidden, batch, plan, precision, varlen=False)
                row = {
                    "hidden": hidden,
                    "batch": batch,
                    "precision": name,
                    "kernel": kernel.__name__,
                    "tiles": str(tiles),
                }
                rows.append(row | usage(kernel, fixed, TYPES[name], tiles.warps))
    return rows


def main() -> int:
    """Parse, compile, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("size", nargs="*", type=int)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = report([(args.size[0], args.size[1])] if args.size else SIZES)
    if args.json:
        print(json.dumps({"triton": triton.__version__, "kernels": rows}))
    else:
        print(f"triton {triton.__version__}, sm_90")
        for r in rows:
            print(" ".join(f"{k}={v}" for k, v in r.items()))
    over = [
        r
        for r in rows
        if r.get("stack_bytes", 0) > STACK_LIMIT or r.get("shared_bytes", 0) > SHARED_BYTES + 4096
    ]
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
