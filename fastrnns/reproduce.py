"""`python -m fastrnns.reproduce RECORD`: run what a record ran, with its software, and say if it holds.

The answer is one of: reproduced; not reproduced, and by how much; cannot be reproduced here, and why.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from env.command import framed
from fastrnns import installer, sweep
from fastrnns.errors import SAID, MachineError, UsageError

if TYPE_CHECKING:
    from fastrnns.archive.compare import Comparison

ROOT = Path(__file__).resolve().parent.parent
KIND = "reproduce"
REPRODUCED, NOT_REPRODUCED, UNDECIDED = "reproduced", "not reproduced", "undecided"
BESIDE_TORCH = ("torchvision", "numpy", "scipy", "rich", "jsonschema", "psutil", "py-cpuinfo", "nvidia-ml-py")


def say(text: str) -> None:
    """Tell a person; stdout is for data."""
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Software:
    """The versions that decide which interpreter may repeat a record; None where the record does not say."""

    python: str | None  # 3.11
    torch: str | None  # 2.14.1, without the build's local part

    def __str__(self) -> str:
        """Name both."""
        return f"Python {self.python or '?'} with torch {self.torch or '?'}"


def software_of(record: Mapping[str, Any]) -> Software:
    """What the record ran on."""
    facts = (record.get("fingerprint") or {}).get("software") or {}
    python = str((facts.get("python") or {}).get("version") or "")
    torch = (record.get("options") or {}).get("torch") or (facts.get("torch") or {}).get("version")
    minor = re.match(r"\d+\.\d+", python)
    return Software(minor[0] if minor else None, str(torch).partition("+")[0] if torch else None)


def software_here() -> Software:
    """What this interpreter would run on, without importing torch."""
    from importlib import metadata

    try:
        torch: str | None = metadata.version("torch").partition("+")[0]
    except metadata.PackageNotFoundError:
        torch = None
    return Software(f"{sys.version_info[0]}.{sys.version_info[1]}", torch)


def bench_flags(record: Mapping[str, Any]) -> list[str]:
    """The bench flags with every option as it took effect in the record, whatever the defaults are by now."""
    options = record.get("options") or {}
    models: dict[str, list[str]] = {}
    for result in record.get("results") or ():
        if result.get("status") != "unsupported":
            names = models.setdefault(str(result.get("group")), [])
            name = sweep.parts(str(result["model"]))[0]  # the points of a sweep follow from --sweep
            names += [name] if name not in names else []
    if not models:
        raise UsageError(f"record {record.get('id')} holds no results to repeat; choose a bench record")
    flags = [word for group, names in models.items() for word in (f"--{group}", *names)]
    for key, value in (record.get("problem") or {}).items():
        flags += [f"--{key.replace('_', '-')}", str(value)]
    for key in ("device", "dtype", "seed", "fuser", "executor", "warmup", "nloops", "cpus", "cache"):
        if options.get(key) is not None:
            flags += [f"--{key}", str(options[key])]
    if options.get("tf32") is not None:
        flags += ["--tf32", "on" if options["tf32"] else "off"]
    for key, value in (options.get("cuda_pointwise") or {}).items():
        if value is not None:
            flags += [f"--cuda-pointwise-{key.replace('_', '-')}", str(value)]
    if options.get("precision") is not None:
        flags += ["--precision", f"{options['precision'] * 100:g}"]
    if options.get("sweep"):
        flags += ["--sweep", *map(str, options["sweep"])]
    if options.get("graph_replay"):
        flags += ["--graph-replay"]
    if options.get("compile_limit_s") is not None:
        flags += ["--compile-limit", f"{options['compile_limit_s']:g}"]
    if options.get("budget_s") is not None:
        flags += ["--budget", f"{options['budget_s']:g}"]
    for name in options.get("skip") or ():
        flags += ["--skip", name]
    if options.get("lock_gpu_clocks") is not None:
        flags += ["--lock-gpu-clocks", str(options["lock_gpu_clocks"])]
    if options.get("env") is not None:
        flags += ["--env", str(options["env"])]
    processes = options.get("processes_run") or options.get("processes")
    return [*flags, *(["--processes", str(processes)] if processes else [])]


def refuse_elsewhere(record: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Raise MachineError where this is another machine, with what differs."""
    from fastrnns.archive import comparable

    found = comparable.hardware_differences(record, {"fingerprint": here})
    if found:
        raise MachineError(
            f"cannot be reproduced here: {comparable.sentence(found)}; run it on a machine of that kind, "
            "or compare ratios with python -m fastrnns.compare --within-machine MODEL"
        )


def interpreter(wanted: Software, python: str | None, *, install: bool) -> str:
    """The Python that has the record's torch: this one, the one named, or a new environment for it."""
    here = software_here()
    if python is not None:
        return python
    if wanted.torch in {None, here.torch} and wanted.python in {None, here.python}:
        return sys.executable
    if not install:
        raise MachineError(
            f"cannot be reproduced here: the record ran {wanted}, this is {here}; "
            "leave --no-install out, or name an interpreter with --python"
        )
    return environment(wanted)


def environment(wanted: Software) -> str:
    """An environment of its own for a torch version, made once and kept in the user's cache."""
    base = (
        sys.executable if wanted.python == software_here().python else shutil.which(f"python{wanted.python}")
    )
    if base is None:
        raise MachineError(
            f"cannot be reproduced here: the record ran {wanted}, and python{wanted.python} "
            "is not on the PATH; install it"
        )
    torch, cache = str(wanted.torch), installer.default_cache()
    recipe = installer.Recipe(base, str(wanted.python), f"torch=={torch}", torch, BESIDE_TORCH)
    if installer.kept(recipe, cache) is None:
        say(f"making an environment for {wanted} in {cache / recipe.name}")
    try:
        return installer.make(recipe, cache)
    except installer.InstallError as error:
        raise MachineError(f"cannot be reproduced here: {wanted} could not be installed ({error})") from None


def repeat(record: Mapping[str, Any], python: str) -> dict[str, Any]:
    """Run the bench again by that interpreter; the record it leaves."""
    from fastrnns.archive import store

    with tempfile.TemporaryDirectory(prefix="fastrnns-reproduce-") as folder:
        words = [python, "-m", "fastrnns.bench", *bench_flags(record), "--archive", folder]
        say(f"running: {' '.join(['python', *words[1:-2]])}")
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        done = subprocess.run(
            words, stdout=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": path}, check=False
        )
        found = store.Archive(folder).list()
        if not found:
            raise MachineError(
                f"cannot be reproduced here: bench ended with exit code {done.returncode}, see above"
            )
        return dict(found[-1].record)


def answer(comparison: Comparison) -> str:
    """One word for all models and phases: not reproduced if one is not, undecided if one cannot be told."""
    from fastrnns.archive import compare

    words = set()
    for row in comparison.rows:
        near = (
            row.ratio is not None
            and row.margin is not None
            and max(row.ratio, 1 / row.ratio) <= 1 + row.margin
        )
        if row.verdict in {compare.SLOWER, compare.FASTER, compare.ONLY_BASE}:
            words.add(NOT_REPRODUCED)
        elif row.verdict == compare.SAME or (row.verdict == compare.INCONCLUSIVE and near):
            words.add(REPRODUCED)
        else:
            words.add(UNDECIDED)
    return next((word for word in (NOT_REPRODUCED, UNDECIDED, REPRODUCED) if word in words), UNDECIDED)


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.reproduce",
        description=__doc__,
        epilog="exit codes: 0 reproduced; 1 not reproduced, or undecided; 2 the command line; "
        "3 it cannot be reproduced here.",
        allow_abbrev=False,
    )
    made.add_argument("record", metavar="RECORD", help="a path, an id or its beginning, latest or latest~N")
    made.add_argument(
        "--margin", type=float, default=2.0, metavar="PCT", help="what counts as the same (default: 2)"
    )
    made.add_argument(
        "--python", metavar="PATH", help="the interpreter to use, in place of one that is found"
    )
    made.add_argument("--no-install", action="store_true", help="never make an environment for another torch")
    made.add_argument("--archive", default="results", metavar="DIR", help="the archive's folder (results)")
    made.add_argument("--json", action="store_true", help="the comparison as JSON on stdout")
    return made


def run(args: argparse.Namespace) -> int:
    """Read, refuse or run, compare, keep, and say."""
    from env import fingerprint
    from fastrnns.archive import calibration, comparable, compare, store

    if not 0 < args.margin < 100:
        raise UsageError(f"--margin is {args.margin:g}; give a percentage above 0 and below 100, such as 2")
    archive = store.Archive(args.archive)
    record = archive.load(args.record)
    if record["kind"] not in comparable.KINDS:
        raise UsageError(f"record {record['id']} is of kind {record['kind']}; choose a bench record")
    if record["verdict"]["status"] == "invalid":
        raise UsageError(
            f"record {record['id']} is invalid ({'; '.join(record['verdict']['reasons'][:2])}); "
            "there is nothing to reproduce, choose another"
        )
    bench_flags(record)
    refuse_elsewhere(record, fingerprint.complete(fingerprint.collect()))
    wanted = software_of(record)
    again = repeat(record, interpreter(wanted, args.python, install=not args.no_install))
    known = calibration.find((entry.record for entry in archive.list(calibration.KIND)), again)
    comparison = compare.compare(record, again, margin=args.margin / 100, calibration=known)
    word = answer(comparison)
    again |= {"kind": KIND, "details": {**(again.get("details") or {}), "of": record["id"], "answer": word}}
    path = archive.write(again)
    if comparison.refusals:
        why = comparable.sentence(list(comparison.refusals))
        raise MachineError(f"ran, left {os.path.relpath(path)}, and cannot be compared: {why}")
    show(comparison, word, args)
    say(f"record: {os.path.relpath(path)}")
    return 0 if word == REPRODUCED else 1


def show(comparison: Comparison, word: str, args: argparse.Namespace) -> None:
    """Print the comparison, then the answer."""
    if args.json:
        print(json.dumps({"answer": word, **comparison.as_dict()}, indent=1, allow_nan=False), flush=True)
    else:
        from fastrnns.present import comparison as present

        print(present.text(comparison), flush=True)
    say(f"{comparison.base_id}: {word}")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; errors are one sentence, and the exit code that goes with it."""
    args = parser().parse_args(argv)
    return framed("fastrnns.reproduce", lambda: run(args), SAID)


if __name__ == "__main__":
    sys.exit(main())
