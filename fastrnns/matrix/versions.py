"""What a person may name as a version of torch: a release, a wheel's file, the folder of an environment."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion
from packaging.version import Version as Parsed

from fastrnns import environments
from fastrnns.errors import UsageError

Kind = Literal["release", "wheel", "environment"]
CHUNK = 1 << 20


@dataclass(frozen=True)
class Version:
    """One version as it was named."""

    label: str  # in tables, records and --bisect
    kind: Kind
    source: str  # a release's number; the path of a wheel, or of an environment's interpreter
    digest: str = ""  # SHA-256 of a wheel's content


def parse(named: str) -> Version:
    """The version that one argument means; UsageError with what is possible where it means none.

    What begins with a digit is a release, whatever folders there are: ./2.14.1 is the folder.
    """
    path = Path(named).expanduser()
    if named.endswith(".whl"):
        return _wheel(path, named)
    if path.exists() and not (named[:1].isdigit() and "/" not in named):
        python = environments.interpreter(str(path), "--torch")
        name = path.name if path.is_dir() else path.parent.parent.name
        return Version(name or named, "environment", python)
    if "/" in named:
        raise UsageError(f"--torch {named}: there is no such file or folder; check the path")
    try:
        return Version(named, "release", str(Parsed(named)))
    except InvalidVersion:
        raise UsageError(
            f"--torch {named} is no version; give one release as 2.14.1, the path of a wheel (.whl), or the folder"
            " of an environment"
        ) from None


def _wheel(path: Path, named: str) -> Version:
    if not path.is_file():
        raise UsageError(f"--torch {named}: there is no such file; check the path")
    try:
        name, version, _, _ = parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        raise UsageError(f"--torch {named}: a wheel's name says what it is; do not rename the file") from None
    if name != "torch":
        raise UsageError(f"--torch {named} is a wheel of {name}; give one of torch")
    if not zipfile.is_zipfile(path):
        raise UsageError(f"--torch {named} is torn, or no wheel; fetch it again")
    return Version(str(version), "wheel", str(path.resolve()), content(path))


def content(path: Path) -> str:
    """SHA-256 of a file: two wheels of one name are told apart by it."""
    hashed = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(CHUNK):
            hashed.update(block)
    return hashed.hexdigest()


def distinct(names: Sequence[str]) -> list[Version]:
    """All versions, each with a label of its own; UsageError for one that is named twice."""
    found: list[Version] = []
    for name in names:
        version = parse(name)
        if any(same(version, other) for other in found):
            raise UsageError(f"--torch names {name} twice; leave one out")
        found.append(version)
    labels = [version.label for version in found]
    return [
        version
        if labels.count(version.label) == 1 or version.kind == "release"
        else replace(version, label=f"{version.label} {version.digest[:8]}" if version.digest else name)
        for version, name in zip(found, names, strict=True)
    ]


def same(one: Version, other: Version) -> bool:
    """Whether two names mean one thing; wheels are what they hold."""
    return (one.kind, one.digest or one.source) == (other.kind, other.digest or other.source)


def find(versions: Sequence[Version], named: str, flag: str) -> int:
    """The place of a version among others, by its label or as it was given; UsageError where it is none."""
    for index, version in enumerate(versions):
        if named == version.label:
            return index
    wanted = parse(named)
    for index, version in enumerate(versions):
        if same(version, wanted):
            return index
    raise UsageError(
        f"{flag} {named} is none of the versions; there are: {', '.join(each.label for each in versions)}"
    )


def matches(wanted: str, offered: str) -> bool:
    """Whether a version that an index offers is the one wanted; 2.13.0 is also 2.13.0+cpu, as pip takes it."""
    return SpecifierSet(f"=={wanted}").contains(offered, prereleases=True)


def between(good: str, bad: str, offered: Sequence[str]) -> list[str]:
    """The releases from `good` to `bad` among those offered, oldest first; pre-releases only beside one.

    Local builds of one release (2.13.0+cpu beside 2.13.0) are that release: pip chooses among them.
    """
    first, last = Parsed(good), Parsed(bad)
    unfinished = first.is_prerelease or last.is_prerelease
    found = {Parsed(Parsed(each).public) for each in offered}
    inner = sorted(each for each in found if first < each < last and (unfinished or not each.is_prerelease))
    ends = {first.public, last.public}
    return [good, *(str(each) for each in inner if each.public not in ends), bad]
