"""The cells of a matrix, versions in Pythons: what each takes, whether there is room, and its environment, made."""

from __future__ import annotations

import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging import tags
from packaging.utils import parse_wheel_filename

from fastrnns import environments, installer
from fastrnns.environments import Environment
from fastrnns.errors import UsageError
from fastrnns.installer import InstallError, Recipe
from fastrnns.matrix.interpreters import Interpreter
from fastrnns.matrix.versions import Version

# Of one release with the CUDA libraries that it asks for: torch 2.14.1 and torchvision took 5.56 GB on x86-64.
RELEASE_BYTES = 6_000_000_000
BESIDE_BYTES = 500_000_000  # what a wheel's own size does not hold: NumPy, SymPy, pip
BESIDE = ("numpy",)  # torch warns without it


@dataclass(frozen=True)
class Cell:
    """A version in one Python; `recipe` is None for an environment that is there."""

    label: str
    version: Version
    recipe: Recipe | None


@dataclass(frozen=True)
class Maker:
    """How environments come to be: where they are kept, by what they are made, what must import in them."""

    cache: Path
    uv: str | None  # its path; None: venv and pip
    modules: tuple[str, ...] = ("torch",)
    say: Callable[[str], None] = lambda _text: None


def cells(
    versions: Sequence[Version],
    pythons: Sequence[Interpreter],
    beside: Sequence[str],
    index: Sequence[str] = (),
) -> list[Cell]:
    """Every version in every Python; an environment that is there has its own Python."""
    minors = [python.minor for python in pythons]
    found = []
    for version in versions:
        if version.kind == "environment":
            found.append(Cell(version.label, version, None))
            continue
        for python in pythons:
            name = python.minor if minors.count(python.minor) == 1 else python.version
            label = version.label if len(pythons) == 1 else f"{version.label} on Python {name}"
            found.append(Cell(label, version, recipe(version, python, beside, index)))
    return found


def recipe(version: Version, python: Interpreter, beside: Sequence[str], index: Sequence[str]) -> Recipe:
    """What the environment of a version is made of; UsageError for a wheel that is for another Python."""
    torch, key = f"torch=={version.source}", version.source
    if version.kind == "wheel":
        torch, key = version.source, f"{Path(version.source).name.split('-')[1]}-{version.digest[:16]}"
        if not suits(Path(version.source).name, python):
            raise UsageError(
                f"{Path(version.source).name} is not for Python {python.minor} on this machine; "
                "give --python with one that it is for"
            )
    return Recipe(python.path, python.version, torch, key, tuple(beside), tuple(index))


def suits(wheel: str, python: Interpreter) -> bool:
    """Whether a wheel's tags admit a Python on this machine."""
    major, minor = (int(part) for part in python.minor.split("."))
    able = {*tags.cpython_tags((major, minor)), *tags.compatible_tags((major, minor), f"cp{major}{minor}")}
    return bool(able & parse_wheel_filename(wheel)[3])


def to_make(wanted: Sequence[Cell], cache: Path) -> list[Cell]:
    """The cells whose environment is not kept yet."""
    return [cell for cell in wanted if cell.recipe is not None and installer.kept(cell.recipe, cache) is None]


def refuse_full_disk(missing: Sequence[Cell], cache: Path) -> None:
    """Raise UsageError where the environments that are to be made would not fit."""
    if not missing:
        return
    there = next(folder for folder in (cache, *cache.absolute().parents) if folder.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise UsageError(f"--cache {cache}: nothing can be written there; give another folder")
    needed, free = sum(size(cell) for cell in missing), shutil.disk_usage(there).free
    if needed > free:
        raise UsageError(
            f"{len(missing)} environments to make take about {needed / 1e9:.0f} GB, and {cache} has "
            f"{free / 1e9:.1f} GB free; make room, or give --cache on another disk"
        )


def size(cell: Cell) -> int:
    """About how many bytes the environment of a cell takes."""
    if cell.version.kind != "wheel":
        return RELEASE_BYTES
    with zipfile.ZipFile(cell.version.source) as wheel:
        return BESIDE_BYTES + sum(entry.file_size for entry in wheel.infolist())


def obtain(wanted: Sequence[Cell], maker: Maker) -> dict[str, Environment | str]:
    """The environment of each cell by its label, made where it is not kept; or why there is none."""
    pythons: dict[str, str] = {}
    found: dict[str, Environment | str] = {}
    for cell in wanted:
        try:
            pythons[cell.label] = _python(cell, maker)
        except InstallError as error:
            found[cell.label] = f"it could not be installed: {error}"
    answers = environments.answers(list(pythons.values()), maker.modules)
    found |= dict(zip(pythons, answers, strict=True))
    return {cell.label: found[cell.label] for cell in wanted}


def _python(cell: Cell, maker: Maker) -> str:
    if cell.recipe is None:
        return cell.version.source
    if installer.kept(cell.recipe, maker.cache) is None:
        tool = "uv" if maker.uv else "pip"
        maker.say(
            f"making an environment for torch {cell.label} with {tool} in {maker.cache / cell.recipe.name}"
        )
    return installer.make(cell.recipe, maker.cache, maker.uv)


def uv_path(choice: str) -> str | None:
    """The path of uv where it is to be used; UsageError where it was asked for and is not there."""
    beside = Path(sys.executable).parent / "uv"
    found = shutil.which("uv") or (str(beside) if os.access(beside, os.X_OK) else None)
    if choice == "uv" and found is None:
        raise UsageError("--installer uv: there is no uv on the PATH; install it, or leave --installer out")
    return None if choice == "pip" else found
