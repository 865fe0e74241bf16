"""What the kernel does by itself to a control group, done by us below a `--root` tree, which has none."""

from __future__ import annotations

from pathlib import Path

# The files of a fresh cgroup v2 group that has the cpuset controller, as far as the shield uses them.
FRESH = {
    "cgroup.procs": "",
    "cgroup.subtree_control": "",
    "cgroup.type": "domain\n",
    "cpuset.cpus": "",
    "cpuset.cpus.exclusive": "",
    "cpuset.cpus.partition": "member\n",
    "cpuset.mems": "",
}


def mkdir(folder: str) -> None:
    """Make a group; its files appear with it where its parent is a group of v2 too."""
    group = Path(folder)
    group.mkdir()
    if (group.parent / "cgroup.subtree_control").exists():
        for name, text in FRESH.items():
            (group / name).write_text(text, encoding="ascii")


def rmdir(folder: str) -> None:
    """Remove a group with the files that the kernel keeps in it; a group with a group below stays."""
    group = Path(folder)
    members = list(group.iterdir())
    if not any(member.is_dir() for member in members):
        for member in members:
            member.unlink()
    group.rmdir()  # raises as the kernel would


def control(path: str, value: str) -> None:
    """Switch a controller on (`+cpuset`) or off (`-cpuset`) for the groups below.

    A kill leaves the old words, or the new ones and blank lines, which the next call removes.
    """
    with Path(path).open("r+b", buffering=0) as file:
        before = file.read()
        words = before.decode("ascii").split()
        name = value[1:].strip()
        if value.startswith("+") and name not in words:
            words.append(name)
        elif value.startswith("-") and name in words:
            words.remove(name)
        after = " ".join(words).encode("ascii") + (b"\n" if before.endswith(b"\n") else b"")
        if after != before:
            file.seek(0)
            file.write(after.ljust(len(before), b"\n"))
            file.truncate(len(after))
