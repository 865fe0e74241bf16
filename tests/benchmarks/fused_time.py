"""Times the fused LSTM: every tiling of a fixed table, then fused against nn.LSTM, stream time and graph replay.

    python -m tests.benchmarks.fused_time variants|compare|sweep [--output FILE.json] [PRECISION ...]

Milliseconds are medians. `variants` times the kernels alone (graph replay); each tiling runs in a process with a limit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

# (batch rows, hidden units, warps, chunk, swap)
FORWARD = {
    1: [(16, 16, 4, 128, False), (16, 16, 4, 256, False), (16, 16, 8, 128, False), (16, 16, 4, 256, True),
        (8, 32, 8, 256, True), (8, 32, 4, 256, True), (16, 32, 8, 128, False), (16, 32, 8, 256, True), (32, 16, 8, 128, False)],
    2: [(16, 16, 4, 64, False), (16, 16, 8, 128, False), (16, 16, 8, 256, False), (16, 16, 8, 64, False),
        (16, 16, 4, 64, True), (16, 16, 4, 128, True)],
}  # fmt: skip
# (batch rows, hidden units, warps, chunk, makers, swap)
BACKWARD = {
    1: [(16, 16, 4, 256, 32, False), (16, 16, 4, 512, 32, False), (16, 16, 4, 128, 32, False), (16, 16, 8, 256, 32, False),
        (16, 16, 8, 512, 32, False), (16, 16, 4, 256, 32, True), (8, 32, 4, 256, 16, True), (8, 32, 8, 256, 16, True),
        (16, 32, 8, 256, 16, False), (16, 32, 8, 512, 16, False), (16, 32, 4, 256, 16, False)],
    2: [(16, 16, 4, 128, 32, False), (16, 16, 8, 128, 32, False), (16, 16, 8, 256, 32, False), (16, 16, 4, 64, 32, False),
        (16, 16, 8, 256, 32, True)],
}  # fmt: skip
# (steps, batch, input size, hidden size)
SWEEP = [(100, b, h, h) for h in (64, 256, 512, 1024, 2048) for b in (1, 64, 256)]
SWEEP += [(s, 64, 512, 512) for s in (1, 10, 1000)]
SIZE = {"S": 100, "B": 64, "I": 512, "H": 512}


def replay_ms(step, n: int = 40) -> float:
    """Device time of `step` by graph replay: the median of n replays."""
    import torch

    # One stream for warm-up and capture, and no output kept: a node of the autograd graph that outlives its step
    # remembers the stream it was made on, and the capture would have to wait for it.
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        step()
    times = []
    for _ in range(n):
        a, b = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        a.record()
        graph.replay()
        b.record()
        torch.cuda.synchronize()
        times.append(a.elapsed_time(b))
    return statistics.median(times[5:])


def variant(direction: str, index: int, precision: str) -> dict:
    """One tiling of one kernel at the default size."""
    import torch

    from fastrnns.fused import launch
    from fastrnns.fused.plan import Tiles, choose

    how = launch.PRECISIONS[precision]
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    s, b, h = SIZE["S"], SIZE["B"], SIZE["H"]
    plan = choose(h, b, how.parts, how.scaled, launch.processors(0))
    steps = launch.Steps(s, b, s * b)
    torch.manual_seed(0)
    x = torch.randn(s * b, 4 * h, device="cuda", dtype=dtype)
    w = ((torch.rand(4 * h, h, device="cuda") * 2 - 1) * h**-0.5).to(dtype)
    dy = torch.randn(s * b, h, device="cuda", dtype=dtype)

    def tiled(which: str) -> object:
        if which == "forward":
            bt, hb, warps, chunk, swap = FORWARD[how.parts][index]
            tiles = Tiles(bt, hb, warps, chunk, swap=swap)
            return replace(plan, forward=tiles, groups_forward=launch.processors(0) // -(-h // hb))
        bt, hb, warps, chunk, makers, swap = BACKWARD[how.parts][index]
        tiles = Tiles(bt, hb, warps, chunk, makers, swap)
        return replace(plan, backward=tiles, groups_backward=launch.processors(0) // -(-h // hb))

    if direction == "forward":
        mine = tiled("forward")
        want = launch.forward(x.clone(), w, None, None, None, steps, plan, how, True)[0]
        got = launch.forward(x.clone(), w, None, None, None, steps, mine, how, True)[0]
        ms = replay_ms(lambda: launch.forward(x, w, None, None, None, steps, mine, how, True))
        shown = FORWARD[how.parts][index]
    else:
        mine = tiled("backward")
        saved = launch.forward(x, w, None, None, None, steps, plan, how, True)[3]
        want = launch.backward(saved, w, None, dy, None, None, steps, plan, how)[0]
        got = launch.backward(saved, w, None, dy, None, None, steps, mine, how)[0]
        ms = replay_ms(lambda: launch.backward(saved, w, None, dy, None, None, steps, mine, how))
        shown = BACKWARD[how.parts][index]
    difference = float((got.double() - want.double()).norm() / want.double().norm())
    return {
        "direction": direction,
        "precision": precision,
        "tiles": shown,
        "ms": ms,
        "difference": difference,
    }


def compare(precision: str, s: int, b: int, i: int, h: int, n: int = 60) -> dict:
    """Fused and nn.LSTM at one size: stream time a call, host time, graph replay."""
    import torch
    from torch import nn

    from fastrnns.fused.lstm import FusedLSTM

    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision, torch.float32)
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.manual_seed(0)
    cudnn = nn.LSTM(i, h).cuda().to(dtype)
    fused = FusedLSTM.from_lstm(cudnn, precision="tf32" if precision == "tf32" else "fp32")
    x = torch.randn(s, b, i, device="cuda", dtype=dtype)
    hx = tuple(torch.randn(1, b, h, device="cuda", dtype=dtype) for _ in range(2))
    grad = torch.randn(s, b, h, device="cuda", dtype=dtype)
    out: dict = {"precision": precision, "size": [s, b, i, h]}

    def event() -> torch.cuda.Event:
        e = torch.cuda.Event(enable_timing=True)
        e.record()
        return e

    for name, model in (("cudnn", cudnn), ("fused", fused)):
        params = list(model.parameters())

        def step(model=model, params=params) -> tuple:
            y, _ = model(x, hx)
            return (y.detach(), *torch.autograd.grad(y, params, grad))

        forward, backward, total, host = [], [], [], []
        for _ in range(n):
            model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            t0, e0 = time.perf_counter(), event()
            y, _ = model(x, hx)
            e1, t1 = event(), time.perf_counter()
            torch.cuda.synchronize()
            t2, e2 = time.perf_counter(), event()
            y.backward(grad)
            e3, t3 = event(), time.perf_counter()
            torch.cuda.synchronize()
            forward.append(e0.elapsed_time(e1))
            backward.append(e2.elapsed_time(e3))
            host.append([1e3 * (t1 - t0), 1e3 * (t3 - t2)])
        for _ in range(n):
            model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            e0 = event()
            y, _ = model(x, hx)
            y.backward(grad)
            e1 = event()
            torch.cuda.synchronize()
            total.append(e0.elapsed_time(e1))
        del y, _
        skip = n // 4
        out[name] = {
            "forward_ms": statistics.median(forward[skip:]), "backward_ms": statistics.median(backward[skip:]),
            "total_ms": statistics.median(total[skip:]),
            "host_forward_ms": statistics.median(t[0] for t in host[skip:]),
            "host_backward_ms": statistics.median(t[1] for t in host[skip:]),
            "samples": {"forward_ms": forward, "backward_ms": backward, "total_ms": total},
            "backend": getattr(model, "backend", "nn.LSTM"),
        }  # fmt: skip
        try:
            out[name]["graph_forward_ms"] = replay_ms(lambda model=model: model(x, hx)[0].detach())
            out[name]["graph_total_ms"] = replay_ms(step)
            with torch.no_grad():
                out[name]["graph_inference_ms"] = replay_ms(lambda model=model: model(x, hx)[0])
        except RuntimeError as error:
            out[name]["graph_error"] = str(error)[:200]
    a, c = out["fused"], out["cudnn"]
    keys = (
        "forward_ms",
        "backward_ms",
        "total_ms",
        "graph_forward_ms",
        "graph_total_ms",
        "graph_inference_ms",
    )
    out["times_faster"] = {k: round(c[k] / a[k], 2) for k in keys if k in a and k in c}
    return out


def child(arguments: list[str], timeout: float) -> dict:
    """Run one measurement in its own process."""
    try:
        done = subprocess.run(
            [sys.executable, __file__, "--child", *arguments], capture_output=True, text=True, timeout=timeout
        )
    except subprocess.TimeoutExpired:
        return {"arguments": arguments, "error": f"no answer in {timeout:.0f} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"arguments": arguments, "error": done.stderr[-500:]}


def measure(arguments: list[str]) -> dict:
    """In a child: what the arguments name."""
    what, *rest = arguments
    if what in {"forward", "backward"}:
        return variant(what, int(rest[0]), rest[1])
    if what == "all":  # every tiling of one precision in turn, in one process
        results = []
        parts = 2 if rest[0] == "fp32" else 1
        for direction, table in (("forward", FORWARD), ("backward", BACKWARD)):
            for index in range(len(table[parts])):
                try:
                    results.append(variant(direction, index, rest[0]))
                except Exception as error:  # one tiling that does not fit spares the others
                    results.append(
                        {"direction": direction, "tiles": table[parts][index], "error": str(error)[:160]}
                    )
        return {"variants": results}
    if what == "several":  # sizes in turn, in one process
        return {"several": [_attempt(text) for text in rest]}
    return compare(rest[0], *(int(n) for n in rest[1:]))


def _attempt(text: str) -> dict:
    precision, *size = text.split(",")
    try:
        return compare(precision, *(int(n) for n in size), n=24)
    except RuntimeError as error:  # one size that does not fit spares the others
        return {"precision": precision, "size": size, "error": str(error)[:160]}


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "what", choices=["variants", "compare", "sweep", "several", "all", "forward", "backward"]
    )
    parser.add_argument("rest", nargs="*")
    parser.add_argument("--child", action="store_true")
    parser.add_argument(
        "--warm", type=int, default=0, help="compile the tilings first, this many processes at once"
    )
    parser.add_argument("--timeout", type=float, default=90.0)
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure([args.what, *args.rest])))
        return 0
    results = []
    precisions = args.rest or ["bf16", "fp16", "tf32", "fp32"]
    if args.what == "variants":
        jobs = []
        for q in precisions:
            parts = 2 if q == "fp32" else 1
            for d, table in (("forward", FORWARD), ("backward", BACKWARD)):
                jobs += [[d, str(i), q] for i in range(len(table[parts]))]
        if args.warm:
            with ThreadPoolExecutor(args.warm) as pool:
                warm = list(pool.map(lambda job: child(job, args.timeout), jobs))
            print("failed:", [w for w in warm if "error" in w])
        for q in precisions:
            results += child(["all", q], 2 * args.timeout).get(
                "variants", [{"precision": q, "error": "no answer"}]
            )
        for r in results:
            print(json.dumps(r)[:260])
    else:
        sizes = SWEEP if args.what == "sweep" else [(100, 64, 512, 512)]
        jobs = [["compare", q, *map(str, size)] for size in sizes for q in precisions]
        if args.warm:  # fills Triton's cache; what these time is thrown away
            with ThreadPoolExecutor(args.warm) as pool:
                list(pool.map(lambda job: child(job, args.timeout), jobs))
        answers = child(["several", *(",".join(job[1:]) for job in jobs)], args.timeout * 2)
        for r in answers.get("several", [answers]):
            results.append(r)
            if "error" in r:
                print(json.dumps(r)[:600])
                continue
            show = {
                n: {k: round(v, 3) for k, v in r[n].items() if isinstance(v, float)}
                for n in ("cudnn", "fused")
            }
            print(
                r["precision"],
                r["size"],
                r["fused"]["backend"],
                json.dumps(r["times_faster"]),
                json.dumps(show),
                flush=True,
            )
    if args.output:
        args.output.write_text(json.dumps(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
