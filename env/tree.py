"""What the kernel does by itself to a control group, done by us below a `--root` tree where there is no kernel."""

from __future__ import annotations

import os

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
    """Make a group; its files appear with it where its parent is a group too."""
    os.mkdir(folder)
    if os.path.exists(os.path.join(os.path.dirname(folder), "cgroup.procs")):
        for name, text in FRESH.items():
            with open(os.path.join(folder, name), "x", encoding="ascii") as file:
                file.write(text)


def rmdir(folder: str) -> None:
    """Remove a group with the files that the kernel keeps in it; a group with a group below stays."""
    names = os.listdir(folder)
    if any(os.path.isdir(os.path.join(folder, name)) for name in names):
        os.rmdir(folder)  # raises as the kernel would
    for name in names:
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
