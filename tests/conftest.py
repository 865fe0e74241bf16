"""Fixtures for all tests, and the guard: no test touches the machine unless it is marked `root`."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROJECT_ROOT = Path(__file__).parent.parent
MACHINE = ("/sys/", "/proc/sys/", "/proc/irq/", "/dev/cpu_dma_latency", "/dev/cpuset/")
PRIVILEGED_TOOLS = {"sudo", "cset", "systemctl", "systemd-run", "nvidia-smi"}
# Settings that every step may change; compared before and after the whole run.
KNOBS = (
    "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
    "/sys/devices/system/cpu/cpufreq/policy*/energy_performance_preference",
    "/sys/devices/system/cpu/cpufreq/boost",
    "/sys/devices/system/cpu/intel_pstate/no_turbo",
    "/proc/sys/kernel/perf_event_max_sample_rate",
    "/proc/sys/kernel/perf_cpu_time_max_percent",
    "/proc/sys/kernel/numa_balancing",
    "/proc/irq/*/smp_affinity",
    "/proc/irq/default_smp_affinity",
    "/sys/kernel/mm/transparent_hugepage/enabled",
)

_guarded = False


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not _guarded:
        return
    if event == "open" and isinstance(args[0], str) and args[0].startswith(MACHINE):
        mode, flags = args[1], args[2]
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else False
        if writes or (isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)):
            raise PermissionError(f"a test that is not marked root tried to write {args[0]}")
    if event == "subprocess.Popen":
        tool = Path(os.fsdecode(args[0])).name
        if tool in PRIVILEGED_TOOLS and os.fsdecode(args[0]).startswith(("/usr", "/bin", "/sbin")):
            raise PermissionError(f"a test that is not marked root tried to run {tool}")


sys.addaudithook(_audit)

# A background job of a shell, and nohup, start us with signals ignored, and what we start would inherit that.
for _number, _usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)


@pytest.fixture(autouse=True)
def _machine_is_guarded(request: pytest.FixtureRequest) -> Iterator[None]:
    global _guarded  # noqa: PLW0603 - an audit hook cannot be removed, only told to look away
    _guarded = request.node.get_closest_marker("root") is None
    yield
    _guarded = False


def _settings() -> dict[str, str]:
    found: dict[str, str] = {}
    for pattern in KNOBS:
        for path in sorted(Path("/").glob(pattern.lstrip("/"))):
            try:
                found[str(path)] = path.read_text()
            except OSError as error:
                found[str(path)] = f"unreadable: {error.errno}"
    for mount in ("/sys/fs/cgroup/cpuset", "/sys/fs/cgroup"):
        root = Path(mount)
        if root.is_dir():
            found[f"groups below {mount}"] = " ".join(sorted(p.name for p in root.iterdir() if p.is_dir()))
    return found


@pytest.fixture(scope="session", autouse=True)
def _machine_is_put_back() -> Iterator[None]:
    before = _settings()
    yield
    after = _settings()
    changed = {
        key: (before.get(key), after.get(key)) for key in before | after if before.get(key) != after.get(key)
    }
    assert not changed, f"the tests left the machine changed: {changed}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    no_root = os.geteuid() != 0
    no_gpu = not Path("/dev/nvidia0").exists()
    for item in items:
        if no_root and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="changes the real machine: needs root"))
        if no_gpu and item.get_closest_marker("cuda"):
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
