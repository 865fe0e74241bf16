"""The fused LSTM on a GPU against float64, beside cuDNN at the same precision: each problem in a process with a time limit.

    python -m tests.benchmarks.fused_check [--jobs 8] [--timeout 120] [--output FILE.json] [NAME ...]

A hang costs the limit, not the run. Prints one line a problem and precision; exit code 1 when any failed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PRECISIONS = ("bf16", "fp16", "tf32", "fp32")
SEEDS = (7, 8, 9)  # one draw alone may favour either: with large weights the recurrence is chaotic
# The fused error may be this many times cuDNN's (rounding differs from run to run), plus a floor of a few ulps.
MARGIN = 1.1
FLOOR = {"bf16": 4e-3, "fp16": 5e-4, "tf32": 5e-4, "fp32": 4e-7}


def problems() -> dict[str, dict]:
    """Twenty-two problems: the default, edges, and sizes that are no multiple of anything."""
    named = {
        "default": {"S": 100, "B": 64, "I": 512, "H": 512},
        "one_of_all": {"S": 1, "B": 1, "I": 1, "H": 1},
        "length_1": {"S": 1, "B": 64, "I": 512, "H": 512, "state": True},
        "batch_1": {"S": 37, "B": 1, "I": 100, "H": 200},
        "large_weights": {"S": 50, "B": 16, "I": 64, "H": 128, "scale": 8.0},
        "two_layers": {"S": 30, "B": 24, "I": 64, "H": 96, "L": 2, "state": True},
        "packed": {"S": 40, "B": 21, "I": 30, "H": 72, "lengths": True, "state": True},
        "no_bias": {"S": 20, "B": 8, "I": 16, "H": 48, "bias": False},
        "wide": {"S": 10, "B": 64, "I": 256, "H": 1024},
        "many_rows": {"S": 10, "B": 200, "I": 128, "H": 512},
        "packed_wide": {"S": 26, "B": 11, "I": 106, "H": 587, "lengths": True, "state": True},
        # More steps than one launch exchanges: the state is carried in fp32 from launch to launch.
        "several_launches": {"S": 2500, "B": 64, "I": 16, "H": 512, "state": True},
        "long": {"S": 1000, "B": 64, "I": 64, "H": 512},
    }
    draw = random.Random(20)
    for number in range(11, 20):
        size = {
            "S": draw.randint(1, 60),
            "B": draw.randint(1, 90),
            "I": draw.randint(1, 300),
            "H": draw.randint(1, 700),
        }
        size["state"] = draw.random() < 0.5
        size["lengths"] = draw.random() < 0.3
        named[f"random_{number}"] = size
    return named


def run(name: str, precision: str) -> dict:
    """One problem at one precision: errors against float64, tensor by tensor, as geometric means over SEEDS."""
    found = [once(name, precision, seed) for seed in SEEDS]
    mine, theirs = (
        {k: statistics.geometric_mean(max(one[who][k], 1e-12) for one in found) for k in found[0][who]}
        for who in ("fused", "cudnn")
    )
    bad = [k for k in mine if not mine[k] <= max(MARGIN * theirs[k], FLOOR[precision])]
    worst = max(mine, key=lambda k: mine[k] / theirs[k])
    same = all(one["same_bits"] for one in found)
    return {
        "backend": found[0]["backend"], "same_bits": same, "fused": mine, "cudnn": theirs, "worse": bad,
        "worst": [worst, mine[worst], theirs[worst]], "ok": same and not bad,
    }  # fmt: skip


def once(name: str, precision: str, seed: int) -> dict:
    """The errors of fused and of cuDNN for one draw of weights, inputs and gradients."""
    import torch
    from torch import nn
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

    from fastrnns.fused.lstm import FusedLSTM

    p = {"L": 1, "bias": True, "state": False, "scale": 1.0, "lengths": False, **problems()[name]}
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    gen = torch.Generator().manual_seed(seed)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=gen, dtype=torch.float64).to(dtype).double()

    exact = nn.LSTM(p["I"], p["H"], p["L"], bias=p["bias"]).double()
    with torch.no_grad():
        for w in exact.parameters():
            w.copy_(
                (torch.rand(w.shape, generator=gen, dtype=torch.float64) * 2 - 1)
                * p["H"] ** -0.5
                * p["scale"]
            )
            w.copy_(w.to(dtype).double())
    x = randn(p["S"], p["B"], p["I"])
    state = [randn(p["L"], p["B"], p["H"]) for _ in range(2)] if p["state"] else None
    grads = [randn(p["S"], p["B"], p["H"]), randn(p["L"], p["B"], p["H"]), randn(p["L"], p["B"], p["H"])]
    lengths = None
    if p["lengths"]:
        lengths = [p["S"], *torch.randint(1, p["S"] + 1, (p["B"] - 1,), generator=gen).tolist()]

    def outcome(model: nn.Module, kind: torch.dtype) -> dict:
        xx = x.to("cuda", kind).requires_grad_()
        hx = None if state is None else tuple(s.to("cuda", kind).requires_grad_() for s in state)
        model.zero_grad(set_to_none=True)
        y, (h, c) = model(
            xx if lengths is None else pack_padded_sequence(xx, lengths, enforce_sorted=False), hx
        )
        if lengths is not None:
            y, _ = pad_packed_sequence(y, total_length=p["S"])
        torch.autograd.backward((y, h, c), [g.to("cuda", kind) for g in grads])
        out = {"y": y.detach(), "h": h.detach(), "c": c.detach(), "dx": xx.grad}
        if hx is not None:
            out |= {"dh0": hx[0].grad, "dc0": hx[1].grad}
        return out | {n: q.grad for n, q in model.named_parameters()}

    reference = outcome(exact.cuda(), torch.float64)
    cudnn = nn.LSTM(p["I"], p["H"], p["L"], bias=p["bias"]).to("cuda", dtype)
    cudnn.load_state_dict(exact.state_dict())
    fused = FusedLSTM(
        p["I"], p["H"], p["L"], bias=p["bias"], precision="tf32" if precision == "tf32" else "fp32"
    )
    fused = fused.to("cuda", dtype)
    fused.load_state_dict(exact.state_dict())

    def errors(got: dict) -> dict:
        return {k: float((got[k].double() - v).norm() / (v.norm() + 1e-30)) for k, v in reference.items()}

    first = outcome(fused, dtype)
    again = outcome(fused, dtype)
    same = all(torch.equal(first[k], again[k]) for k in first)
    theirs = errors(outcome(cudnn, dtype))
    return {"backend": fused.backend, "same_bits": same, "fused": errors(first), "cudnn": theirs}


def launches() -> dict:
    """Ten thousand launches, two streams at once, and graph replay: the same bits each time."""
    import torch

    from fastrnns.fused.lstm import FusedLSTM

    torch.manual_seed(0)
    small = FusedLSTM(64, 64).cuda().half()
    x = torch.randn(12, 33, 64, device="cuda", dtype=torch.float16)
    out: dict = {}
    with torch.no_grad():
        first = small(x)[0].clone()
        wrong = torch.zeros((), device="cuda", dtype=torch.int64)
        start = time.time()
        for _ in range(10_000):
            wrong += (small(x)[0] != first).any()
        out["launches_10000_wrong"] = int(wrong)
        out["launches_10000_s"] = round(time.time() - start, 1)
    big = FusedLSTM(512, 512).cuda().bfloat16()
    xb = torch.randn(50, 64, 512, device="cuda", dtype=torch.bfloat16)
    grad = torch.randn(50, 64, 512, device="cuda", dtype=torch.bfloat16)

    def both() -> tuple:
        y, _ = big(xb)
        return (y.detach(), *torch.autograd.grad(y, list(big.parameters()), grad))

    want = [t.clone() for t in both()]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    wrong = 0
    for _ in range(100):
        got = []
        for s in streams:
            with torch.cuda.stream(s):
                got.append(both())
        torch.cuda.synchronize()
        wrong += sum(not torch.equal(a, b) for g in got for a, b in zip(want, g, strict=True))
    out["two_streams_wrong"] = wrong
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        both()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        got = both()
    wrong = 0
    for _ in range(200):
        graph.replay()
        torch.cuda.synchronize()
        wrong += sum(not torch.equal(a, b) for a, b in zip(want, got, strict=True))
    out["graph_wrong"] = wrong
    return {**out, "ok": out["launches_10000_wrong"] == out["two_streams_wrong"] == out["graph_wrong"] == 0}


def tiny() -> dict:
    """A small problem, forward and backward, for compute-sanitizer."""
    import torch

    from fastrnns.fused.lstm import FusedLSTM

    torch.manual_seed(0)
    ok = True
    for dtype in (torch.float16, torch.float32):
        model = FusedLSTM(32, 48).cuda().to(dtype)
        x = torch.randn(6, 20, 32, device="cuda", dtype=dtype, requires_grad=True)
        model(x)[0].sum().backward()
        torch.cuda.synchronize()
        ok = ok and bool(torch.isfinite(x.grad).all())
    return {"ok": ok}


def child(name: str, precision: str, timeout: float) -> dict:
    """Run one problem in its own process."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--child", name, precision],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        return {"ok": False, "error": f"no answer in {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"ok": False, "error": done.stderr[-600:]}


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--child", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.child:
        name, precision = args.names
        special = {"launches": launches, "tiny": tiny}
        print(json.dumps(special[name]() if name in special else run(name, precision)))
        return 0
    jobs = [(n, q) for n in (args.names or [*problems()]) for q in PRECISIONS] + [("launches", "-")]
    with ThreadPoolExecutor(args.jobs) as pool:
        results = list(pool.map(lambda job: child(*job, args.timeout), jobs))
    for (name, precision), result in zip(jobs, results, strict=True):
        detail = {k: v for k, v in result.items() if k not in {"fused", "cudnn", "ok"}}
        print("ok  " if result["ok"] else "BAD ", name, precision, json.dumps(detail)[:420])
    if args.output:
        args.output.write_text(json.dumps([[*job, r] for job, r in zip(jobs, results, strict=True)]))
    return 0 if all(r["ok"] for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
