"""Runs of the product for the evidence scripts here: one fresh `python -m fastrnns.bench` a record."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SMALL = {"seq_length": 20, "num_layers": 1, "input_size": 128, "hidden_size": 128, "mini_batch": 16}


def flags(description: str) -> argparse.ArgumentParser:
    """The flags that all scripts share."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--device", default="cpu", help="cpu or cuda")
    made.add_argument("--models", nargs="+", default=["cudnn"])
    made.add_argument("--processes", type=int, help="exactly so many (default: the product chooses)")
    made.add_argument("--budget", type=float, default=45.0, help="seconds a model and record")
    made.add_argument("--env", default="check", choices=("ignore", "check", "apply"))
    made.add_argument("--seq-length", type=int, default=SMALL["seq_length"])
    made.add_argument("--size", type=int, default=SMALL["hidden_size"], help="input and hidden size")
    made.add_argument("--mini-batch", type=int, default=SMALL["mini_batch"])
    made.add_argument("--json", type=Path, metavar="FILE")
    return made


def argv(args: argparse.Namespace, **changes: Any) -> list[str]:
    """The bench flags for one record."""
    wanted = {**vars(args), **changes}
    return [
        "--rnns", *wanted["models"], "--device", wanted["device"], "--env", wanted["env"],
        *(["--processes", str(wanted["processes"])] if wanted["processes"] else []),
        "--budget", str(wanted["budget"]),
        "--seq-length", str(wanted["seq_length"]), "--mini-batch", str(wanted["mini_batch"]),
        "--input-size", str(wanted["size"]), "--hidden-size", str(wanted["size"]),
    ]  # fmt: skip


def record(
    args: argparse.Namespace, *, command: str = "bench", **changes: Any
) -> tuple[dict[str, Any], float]:
    """One fresh record and the seconds it took."""
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", f"fastrnns.{command}", *argv(args, **changes), "--archive", folder],
            cwd=ROOT, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = time.monotonic() - started
        found = sorted(Path(folder).glob("*/*.json"))
        if not found:
            raise SystemExit(f"fastrnns.{command} ended with {done.returncode}:\n{done.stderr[-2000:]}")
        return json.loads(found[0].read_text(encoding="utf-8")), seconds


def believed(found: dict[str, Any]) -> bool:
    """Whether the record believes itself."""
    return found["verdict"]["status"] != "invalid"


def trusted(found: dict[str, Any]) -> dict[str, Any]:
    """The record as if its machine had been calm: so that a busy machine still says what it shows."""
    return {**found, "verdict": {"status": "tainted", "reasons": ["verdict set aside for this evidence"]}}


def save(path: Path | None, summary: dict[str, Any], figures: dict[str, Any]) -> None:
    """Print the summary, one line of JSON and the last of stdout; with all figures it goes to `path` if asked."""
    print(json.dumps(summary), flush=True)
    if path is not None:
        whole = {"load": os.getloadavg(), "summary": summary, **figures}
        path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
