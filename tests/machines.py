"""The machines under tests/trees: one JSON object each, file to content, laid out below a folder."""

from __future__ import annotations

import json
from pathlib import Path

from env.privilege import Privilege
from env.step import Host, Wanted
from env.sysfs import Files

TREES = Path(__file__).parent / "trees"


def lay_out(folder: Path, *names: str, **more: str) -> Path:
    """Write the named machines, later ones over earlier ones."""
    files: dict[str, str] = {}
    for name in names:
        files.update(json.loads((TREES / f"{name}.json").read_text()))
    files.update(more)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def program(folder: Path, name: str, script: str) -> None:
    """A stub of an external program, found below the root alone."""
    path = folder / "bin" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def host(folder: Path, **wanted: object) -> Host:
    """A host on such a machine."""
    files = Files(str(folder))
    return Host(files, Privilege(files), Wanted(**wanted))  # type: ignore[arg-type] - options by name


def snapshot(folder: Path, *, but: tuple[str, ...] = ("bin",)) -> dict[str, str]:
    """Every file with its content, to compare before and after."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file() and not name.startswith(but):
            found[name] = path.read_text()
        elif path.is_dir() and not name.startswith(but):
            found[f"{name}/"] = ""
    return found


# What the real cset does to the two sets, as far as a shield needs it.
CSET = r"""
base="$FASTRNNS_ROOT/sys/fs/cgroup/cpuset"
echo "$@" >> "$FASTRNNS_ROOT/bin/cset.log"
for a in "$@"; do case "$a" in
  --version) echo "Cpuset (cset) 1.6"; exit 0;;
  --cpu=*) cpus="${a#--cpu=}";; --reset) reset=1;;
  --userset=*) user="${a#--userset=}";; --sysset=*) sys="${a#--sysset=}";;
esac; done
if [ -n "$reset" ]; then rm -r "$base$user" "$base$sys"; exit 0; fi
for s in "$user" "$sys"; do mkdir "$base$s"; echo 0 > "$base$s/cpuset.mems"; echo 1 > "$base$s/cpuset.cpu_exclusive"; : > "$base$s/tasks"; done
echo "$cpus" > "$base$user/cpuset.cpus"
echo "${REST:-0}" > "$base$sys/cpuset.cpus"
echo "cset: done"
"""
