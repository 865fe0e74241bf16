"""The affinity masks of everybody's threads: noted before a shield moves them, and put back after."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from env.cpulist import format_list, parse_list
from env.cpus import online
from env.privilege import Privilege
from env.sysfs import Files

# CPU list -> [[thread id, start time in ticks], ...]; the start time tells threads of one id apart.
Masks = Mapping[str, list[list[int]]]

_START_TIME = 19  # field 22 of /proc/TID/stat, counted from the one after the name


def snapshot(files: Files) -> dict[str, list[list[int]]]:
    """Every thread that may not run everywhere; the others come back by themselves when a set is removed."""
    if not files.real:
        return {}  # a tree has no threads
    everywhere = online(files)
    found: dict[str, list[list[int]]] = {}
    for pid in files.names("/proc"):
        if not pid.isdigit():
            continue
        for tid in files.names(f"/proc/{pid}/task"):
            mask = _mask(int(tid))
            if mask is None or mask >= everywhere:
                continue
            started = start_time(files, int(tid))
            if started is not None:
                found.setdefault(format_list(mask), []).append([int(tid), started])
    return found


def put_back(files: Files, privilege: Privilege, masks: Masks, ours: Collection[frozenset[int]]) -> list[str]:
    """Give threads their masks again where they hold one of `ours`; what was refused, in sentences.

    A mask that is neither the old one nor one that a shield of ours leaves behind was set by its
    owner meanwhile, and stays.
    """
    if not files.real:
        return []
    ours = {*ours, online(files)}
    refused = 0
    for text, threads in masks.items():
        wanted = parse_list(text)
        for tid, started in threads:
            now = _mask(tid)
            if now is None or now == wanted or start_time(files, tid) != started:
                continue
            if not any(now == mask for mask in ours):
                continue
            if privilege.affinity(tid, text) is not None and _mask(tid) not in (None, wanted):
                refused += 1
    return [f"{refused} threads kept another affinity mask than before"] if refused else []


def start_time(files: Files, tid: int) -> int | None:
    """When a thread started, in ticks since boot; /proc/TID serves every thread, listed or not."""
    text = files.read(f"/proc/{tid}/stat").text
    if text is None:
        return None
    fields = text.rpartition(")")[2].split()
    return int(fields[_START_TIME]) if len(fields) > _START_TIME else None


def _mask(tid: int) -> frozenset[int] | None:
    try:
        return frozenset(os.sched_getaffinity(tid))
    except OSError:
        return None
