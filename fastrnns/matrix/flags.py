"""The command line of the matrix, and its checks, before anything is installed or touched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from fastrnns import environments, installer, runner
from fastrnns import options as command_line
from fastrnns.environments import Environment
from fastrnns.errors import UsageError
from fastrnns.measure import plan as planning

if TYPE_CHECKING:
    from fastrnns.matrix.cells import Cell, Maker
    from fastrnns.matrix.versions import Version
    from fastrnns.options import BenchOptions

EPILOG = (
    "What follows -- is for fastrnns.bench: models, sizes, --env, --archive, ... "
    "exit codes: 0 nothing is slower than in the first version, or the first bad one was found; "
    "1 something is slower, a version could not be installed or a model failed, or the first bad one was not found; "
    "2 the command line; 3 the machine, or the versions are not comparable; 130 interrupted."
)
REPEATS = 2  # of a comparison that told nothing, each with twice the processes of the one before


@dataclass(frozen=True)
class MatrixOptions:
    """One matrix command, checked."""

    cells: tuple[Cell, ...]  # in order
    ends: tuple[int, int] | None  # of a bisection: the good and the bad one
    bench: BenchOptions
    maker: Maker
    known: dict[str, Environment]  # environments that were there, by label
    margin: float | None
    repeats: int
    json: bool


def parser() -> argparse.ArgumentParser:
    """Build the command's parser."""
    made = argparse.ArgumentParser(
        prog="python -m fastrnns.matrix",
        usage="python -m fastrnns.matrix --torch VERSION VERSION ... [flags] -- BENCH ARGS",
        description="Measure several builds of PyTorch in turn on one machine, each in an environment of its own that"
        " is made once and kept; compare them, and show the steps between them, or find the first bad one.",
        epilog=EPILOG,
        allow_abbrev=False,
    )
    what = made.add_argument_group("what is compared")
    what.add_argument(
        "--torch",
        nargs="+",
        default=[],
        metavar="VERSION",
        help="in order, the first is the base: a release (2.14.1, 2.15.0.dev20261101), the path of a wheel, or the"
        " folder of an environment that is there",
    )
    what.add_argument(
        "--python",
        nargs="+",
        default=[],
        metavar="VERSION",
        help="interpreters that environments are made from: a version (3.12) or a path (default: this one)",
    )
    what.add_argument(
        "--bisect",
        nargs=2,
        metavar=("GOOD", "BAD"),
        help="find the first version that is slower than GOOD, among those of --torch in their order, or the releases"
        " between the two that the package index offers",
    )
    what.add_argument(
        "--margin",
        type=float,
        metavar="PCT",
        help="differences below it do not matter (default: 1; to call a version bad in a bisection, half of what BAD is"
        " slower)",
    )
    what.add_argument(
        "--repeats",
        type=int,
        default=REPEATS,
        metavar="N",
        help="in a bisection, how often a comparison that told nothing is repeated, each time with twice the processes"
        f" (default: {REPEATS})",
    )
    how = made.add_argument_group("environments")
    how.add_argument(
        "--cache",
        type=Path,
        metavar="DIR",
        help="where environments are kept, some GB each (default: fastrnns in the user's cache)",
    )
    how.add_argument(
        "--installer",
        choices=("auto", "uv", "pip"),
        default="auto",
        help="auto (the default) is uv where it is on the PATH, else venv and pip; uv does not read pip's settings",
    )
    how.add_argument(
        "--extra-index-url",
        action="append",
        default=[],
        metavar="URL",
        help="a further package index, as of nightly builds; may be given several times",
    )
    made.add_argument("--json", action="store_true", help="the answer as JSON on stdout")
    return made


def matrix_options(argv: Sequence[str], args: argparse.Namespace, bench_argv: Sequence[str]) -> MatrixOptions:
    """Check everything that can be checked; raise UsageError that says what is possible."""
    from fastrnns.matrix import cells, offered, versions
    from fastrnns.matrix.interpreters import resolve

    bench = bench_options(argv, bench_argv)
    if args.margin is not None and not 0 <= args.margin < 100:
        raise UsageError(f"--margin is {args.margin:g}; give a percentage from 0 up to 100, such as 1")
    if not 0 <= args.repeats <= 5:
        raise UsageError(f"--repeats is {args.repeats}; it must be from 0 to 5: each doubles the processes")
    named = list(dict.fromkeys(args.python)) or [None]
    if args.bisect and len(named) > 1:
        raise UsageError("--bisect searches one Python's versions; give one --python")
    if not args.torch and not args.bisect:
        raise UsageError("nothing is to be measured; give --torch with two versions or more, or --bisect")
    chosen = versions.distinct(args.torch)
    ends = _ends(args.bisect, chosen) if args.bisect and chosen else None
    pythons = list({python.version: python for python in map(resolve, named)}.values())
    cnns = any(runner.of_series(name).group == "cnns" for name in bench.models)
    maker = cells.Maker(
        args.cache or installer.default_cache(),
        cells.uv_path(args.installer),
        ("torch", "torchvision") if cnns else ("torch",),
    )
    beside = (*cells.BESIDE, *maker.modules[1:])
    index = tuple(args.extra_index_url)
    if args.bisect and not chosen:
        found = offered.releases(pythons[0], index)
        if found is None:
            raise UsageError(
                "--bisect asks pip for the releases between; install pip, or list them with --torch"
            )
        chosen = _between(args.bisect, found)
        ends = (0, len(chosen) - 1)
    wanted = cells.cells(chosen, pythons, beside, index)
    if len(wanted) < 2:
        raise UsageError("one version is nothing to compare; name another, or use python -m fastrnns.bench")
    missing = cells.to_make(wanted, maker.cache)
    for python in pythons:
        releases = [
            cell.version.source
            for cell in missing
            if cell.version.kind == "release" and cell.recipe is not None and cell.recipe.base == python.path
        ]
        if releases and (found := offered.releases(python, index)) is not None:
            offered.refuse_missing(releases, found, python)
    cells.refuse_full_disk(missing if ends is None else _most(missing, wanted, ends), maker.cache)
    there = {cell.label: cell.version.source for cell in wanted if cell.recipe is None}
    known = dict(zip(there, environments.ask(list(there.values()), "--torch", maker.modules), strict=True))
    margin = None if args.margin is None else args.margin / 100
    return MatrixOptions(tuple(wanted), ends, bench, maker, known, margin, args.repeats, args.json)


def bench_options(argv: Sequence[str], bench_argv: Sequence[str]) -> BenchOptions:
    """Bench's own options; with enough processes to compare where only iterations were asked for."""
    args = command_line.parser().parse_args(bench_argv)
    for flag, given in (
        ("--list", args.list),
        ("--ab", args.ab),
        ("--against", args.against),
        ("--print-json", args.print_json),
    ):
        if given:
            raise UsageError(f"{flag} is for bench alone; leave it out, the matrix compares by itself")
    if args.processes is None and args.nloops is not None:
        args.processes = planning.PROCESSES
    found = command_line.bench_options(bench_argv, args)
    return replace(found, argv=("python", "-m", "fastrnns.matrix", *argv))


def _ends(named: Sequence[str], chosen: Sequence[Version]) -> tuple[int, int]:
    from fastrnns.matrix import versions

    good, bad = (versions.find(chosen, name, "--bisect") for name in named)
    if good >= bad:
        raise UsageError(
            f"--bisect {named[0]} {named[1]}: the good version must stand before the bad one in --torch; "
            "change their order"
        )
    return good, bad


def _between(named: Sequence[str], found: Sequence[str]) -> list[Version]:
    """The releases from the good to the bad one; UsageError where an end is none, or they are the wrong way round."""
    from packaging.version import Version as Parsed

    from fastrnns.matrix import versions

    good, bad = (versions.parse(name) for name in named)
    if good.kind != "release" or bad.kind != "release":
        raise UsageError(
            "--bisect with wheels or environments needs --torch with all versions in their order"
        )
    if Parsed(good.source) >= Parsed(bad.source):
        raise UsageError(
            f"--bisect {named[0]} {named[1]}: the good version must be the older one; where a release became faster,"
            " give --torch in the order to search"
        )
    return versions.distinct(versions.between(good.source, bad.source, found))


def _most(missing: Sequence[Cell], wanted: Sequence[Cell], ends: tuple[int, int]) -> list[Cell]:
    """As many of the environments to be made as a bisection makes: both ends and one for each halving."""
    count = ends[1] - ends[0]
    steps = max(0, (count - 1).bit_length())
    inside = [cell for cell in wanted[ends[0] : ends[1] + 1] if cell in missing]
    return inside[: 2 + steps]
