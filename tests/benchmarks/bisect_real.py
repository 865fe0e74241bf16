"""The bisection for real: environments of one torch, a slowdown planted from one of them on, found or not.

    python -m tests.benchmarks.bisect_real                       three versions, the step at each place in turn
    python -m tests.benchmarks.bisect_real --versions 9 --at 6   of nine, the step at the seventh

Each version is an environment of its own that shares the torch of this one. In the bad ones, a module loaded at start
wraps torch.nn.LSTM.forward and computes a share of the time steps once more (above 1: all of them several times): real
work, in the measured region. The search is `python -m fastrnns.matrix --bisect`, as a person would call it; it is told
nothing else.

Exit code 0 where every step was found; an answer that names another version counts as wrong, "one of" as undecided.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.benchmarks import runs

# Loaded at the interpreter's start, before torch: waits for torch.nn's recurrent modules, and wraps the LSTM there.
PLANTED = """
import importlib.abc
import importlib.util
import sys

WHERE = "torch.nn.modules.rnn"


class Planter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name != WHERE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def exec_module(module):
            run(module)
            plant(module.LSTM)

        spec.loader.exec_module = exec_module
        return spec


def plant(lstm):
    original = lstm.forward

    def forward(self, input, hx=None):
        import torch

        whole, rest = divmod({share}, 1.0)
        with torch.no_grad():
            for steps in [1.0] * int(whole) + [rest] * (rest > 0):
                original(self, input[: max(1, round(steps * input.shape[0]))], hx)
        return original(self, input, hx)

    lstm.forward = forward


sys.meta_path.insert(0, Planter())
"""


def environment(folder: Path, share: float | None) -> Path:
    """An environment that has this one's packages, and the slowdown where there is a share."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    (site / "shared.pth").write_text(f"{Path(spec.origin).parents[1]}\n")
    if share is not None:
        (site / "planted.py").write_text(PLANTED.replace("{share}", repr(share)))
        (site / "planted.pth").write_text("import planted\n")
    return folder


def searched(args: argparse.Namespace, folder: Path, at: int) -> dict[str, Any]:
    """One search with the step at one place: what was found, and what it took."""
    named = [
        environment(folder / f"v{index}", args.share if index >= at else None)
        for index in range(args.versions)
    ]
    started = time.monotonic()
    done = subprocess.run(
        [
            sys.executable, "-m", "fastrnns.matrix", "--torch", *map(str, named), "--bisect", "v0",
            named[-1].name, "--json", "--repeats", str(args.repeats), "--", *runs.argv(args),
        ],
        cwd=runs.ROOT, env={**os.environ, "PYTHONPATH": str(runs.ROOT)}, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if not done.stdout.strip():
        raise SystemExit(f"fastrnns.matrix ended with {done.returncode}, see above")
    bisect = json.loads(done.stdout)["bisect"]
    found = bisect["first_bad"]
    return {
        "planted": f"v{at}",
        "found": found,
        "answer": "undecided" if found is None else "right" if found == f"v{at}" else "wrong",
        "exit_code": done.returncode,
        "asked": bisect["asked"],
        "seconds": round(time.monotonic() - started, 1),
    }


def main() -> int:
    """Search for the step at each place, and print what was found; the last line is JSON."""
    parser = runs.flags(__doc__)
    parser.add_argument("--versions", type=int, default=3)
    parser.add_argument(
        "--at", type=int, nargs="*", metavar="INDEX", help="of the first bad version (default: each)"
    )
    parser.add_argument(
        "--share",
        type=float,
        default=0.6,
        help="of the time steps, computed once more; above 1 several times",
    )
    parser.add_argument("--repeats", type=int, default=2)
    args = parser.parse_args()
    cases = []
    for at in args.at or range(1, args.versions):
        with tempfile.TemporaryDirectory(prefix="fastrnns-bisect-") as folder:
            case = searched(args, Path(folder), at)
        cases.append(case)
        print(
            f"planted at {case['planted']}: {case['answer']} ({case['found']}) in {case['seconds']} s",
            flush=True,
        )
        for each in case["asked"]:
            print(f"  {each['version']} is {each['answer']}: {each['reason']}", flush=True)
    answers = [case["answer"] for case in cases]
    summary = {
        "benchmark": "bisect_real",
        "versions": args.versions,
        "share": args.share,
        **{word: answers.count(word) for word in ("right", "undecided", "wrong")},
        "found": {case["planted"]: case["found"] for case in cases},
        "asked": [len(case["asked"]) for case in cases],
        "seconds": [case["seconds"] for case in cases],
        "met": answers.count("right") == len(cases),
    }
    runs.save(args.json, summary, {"cases": cases})
    return int(not summary["met"])


if __name__ == "__main__":
    sys.exit(main())
