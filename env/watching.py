"""Putting a watch together for one worker on one machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from env import cpus, samplers, slow_samplers, topology
from env.journal import Journal
from env.sysfs import CPU, Files
from env.watch import Watch

# Settings of the whole machine that a daemon may put back while we measure.
GLOBAL_SETTINGS = (
    f"{CPU}/intel_pstate/no_turbo",
    f"{CPU}/cpufreq/boost",
    f"{CPU}/smt/control",
    "/proc/sys/kernel/numa_balancing",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)


def settings(files: Files, bench: Iterable[int], journal: Journal | None = None) -> dict[str, Path]:
    """The files whose values must not move: what was set, and what would have been."""
    found: dict[str, Path] = {}
    for path in GLOBAL_SETTINGS:
        if files.exists(path):
            found[path.rpartition("/")[2]] = Path(files.path(path))
    covered = topology.sibling_closure(topology.read(files), bench)
    for policy in cpus.policies(files, covered):
        label = policy.path.removeprefix(f"{CPU}/").removeprefix("cpufreq/").removesuffix("/cpufreq")
        for name in ("scaling_governor", "boost"):
            if files.exists(f"{policy.path}/{name}"):
                found[f"{label} {name}"] = Path(files.path(f"{policy.path}/{name}"))
    for entry in journal.entries if journal is not None else ():
        if entry.op == "write" and entry.new is not None:
            place = Path(files.path(entry.path))
            if place not in found.values():
                found[entry.path] = place
    return found


def build(
    files: Files,
    pid: int,
    bench: Iterable[int],
    *,
    housekeeping: Iterable[int] = (),
    gpu: int | None = None,
    partition: str | None = None,
    journal: Journal | None = None,
) -> Watch:
    """A watch of one worker, not yet started; each sampler only where the machine has something to see."""
    root = Path(files.root)
    measured = tuple(bench)
    worker = samplers.Worker(root, pid, measured)
    processors = samplers.Processors(root, measured, worker)
    chosen: list[samplers.Sampler] = [
        worker,
        processors,
        slow_samplers.Frequencies(root, measured, processors),
        slow_samplers.Thermal(root, measured),
        slow_samplers.Settings(settings(files, measured, journal)),
    ]
    if partition is not None:
        chosen.append(slow_samplers.Partition(Path(files.path(partition))))
    if gpu is not None and files.real:
        from env import gpu as nvml  # it takes its time to start

        chosen.append(slow_samplers.Gpu(nvml.sample, gpu, nvml.SLOWING_REASONS))
    return Watch(chosen, cpus=housekeeping if files.real else ())
