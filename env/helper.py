"""The part that runs as root: a fixed list of operations, each with validated arguments. Standard library only.

Started by `env.privilege` as `sudo -n PYTHON -I .../env/helper.py`, with nothing else on the command
line. It reads one JSON object a line (`{"op": ..., ...}`), answers one a line, and ends when its
input closes; what it holds open (the wake-up latency) is released by that.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

JOURNALS = "/run/fastrnns"  # the write-ahead journals of whoever may change the machine
OURS = "fastrnns"  # the cgroups that we make are called so; no other is ever made, emptied or removed

LATENCY = "/dev/cpu_dma_latency"
MOST_MHZ = 10_000
BASE_CLOCK = 0xFFFFFF01  # NVML_CLOCK_LIMIT_ID_TDP (nvml.h): the clock that the power cap always allows
COMMAND_LIMIT_S = 60.0

_NUMBER = r"\d{1,9}"
_WORD = r"[a-z][a-z0-9_-]{0,31}"
_CPUS = r"[0-9,:/-]{0,4096}"
_MASK = r"[0-9a-f,]{1,4096}"
_CPUFREQ = r"/sys/devices/system/cpu/(cpufreq/policy\d{1,5}|cpu\d{1,5}/cpufreq)"
_CGROUP = r"/sys/fs/cgroup(/[A-Za-z0-9_.@:-]+){0,8}"
_CPUSETS = r"/(cpusets|dev/cpuset)"  # where cpusets of cgroup v1 are mounted when not below /sys
_OUR_CGROUP = rf"{_CGROUP}/{OURS}[a-z0-9_-]{{0,32}}(/[a-z0-9_-]{{1,32}})?"

# (file, value): nothing else is ever written.
WRITES: tuple[tuple[str, str], ...] = (
    (rf"{_CPUFREQ}/scaling_governor", _WORD),
    (rf"{_CPUFREQ}/energy_performance_preference", rf"{_WORD}|{_NUMBER}"),
    (rf"{_CPUFREQ}/(boost|cpb)", r"[01]"),
    (rf"{_CPUFREQ}/scaling_setspeed", _NUMBER),
    (
        rf"({_CPUFREQ}|/sys/devices/system/cpu/cpufreq)/(ondemand|conservative|schedutil)/[a-z_]{{1,40}}",
        _NUMBER,
    ),
    (rf"{_CPUFREQ}/scaling_(min|max)_freq", _NUMBER),
    (r"/sys/devices/system/cpu/intel_pstate/no_turbo", r"[01]"),
    (r"/sys/devices/system/cpu/cpufreq/boost", r"[01]"),
    (r"/sys/kernel/mm/transparent_hugepage/(enabled|defrag)", r"[a-z+]{1,32}"),
    (r"/proc/sys/kernel/numa_balancing", r"[0-3]"),
    (r"/proc/sys/vm/swappiness", r"\d{1,3}"),
    (r"/proc/sys/kernel/perf_event_max_sample_rate", _NUMBER),
    (r"/proc/sys/kernel/perf_cpu_time_max_percent", r"\d{1,3}"),
    (r"/proc/irq/\d{1,6}/smp_affinity_list", _CPUS),
    (r"/proc/irq/default_smp_affinity", _MASK),
    (rf"{_OUR_CGROUP}/cpuset\.(cpus|mems|cpus\.exclusive)", _CPUS),
    (rf"{_OUR_CGROUP}/cpuset\.cpus\.partition", r"member|root|isolated"),
    (rf"{_CGROUP}/cgroup\.subtree_control", r"[+-]cpuset"),
    (rf"{_CGROUP}/(cgroup\.procs|cgroup\.threads|tasks)", r"\d{1,10}"),
    (rf"{_CPUSETS}(/{OURS}-[a-z]{{1,16}})?/(cgroup\.procs|tasks)", r"\d{1,10}"),
    (rf"{_CPUSETS}/{OURS}-[a-z]{{1,16}}/(cpuset\.)?mems", _CPUS),
)
FOLDERS: tuple[str, ...] = (_OUR_CGROUP, rf"{_CPUSETS}/{OURS}-[a-z]{{1,16}}")  # made and removed
# Programs, each with the argument lists that it may be given: one pattern an argument, "..." repeats the last.
_OUR_SETS = (rf"--userset=/{OURS}-[a-z]{{1,16}}", rf"--sysset=/{OURS}-[a-z]{{1,16}}")
_SLICE = rf"user\.slice|system\.slice|machine\.slice|init\.scope|{OURS}[a-z-]{{0,16}}\.(slice|service)"
_PROPERTY = r"AllowedCPUs=[0-9,-]{0,4096}"
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "cset": (
        ("--version",),
        ("shield", r"--cpu=[0-9,-]{1,4096}", r"--kthread=(on|off)", *_OUR_SETS),
        ("shield", "--reset", *_OUR_SETS),
    ),
    "systemctl": (
        ("show", r"--property=(AllowedCPUs|EffectiveCPUs|ControlGroup|LoadState)", "--value", _SLICE),
        ("set-property", "--runtime", _SLICE, _PROPERTY),
        ("stop", rf"{OURS}[a-z-]{{0,16}}\.(slice|service)"),
    ),
    "systemd-run": (
        (
            "--quiet",
            "--collect",
            rf"--unit={OURS}[a-z-]{{0,16}}\.service",
            rf"--slice={OURS}[a-z-]{{0,16}}\.slice",
            rf"--property=({_PROPERTY}|AllowedMemoryNodes=[0-9,-]{{1,256}}|Delegate=yes|KillMode=process)",
            rf"--property=({_PROPERTY}|AllowedMemoryNodes=[0-9,-]{{1,256}}|Delegate=yes|KillMode=process)",
            rf"--property=({_PROPERTY}|AllowedMemoryNodes=[0-9,-]{{1,256}}|Delegate=yes|KillMode=process)",
            rf"--property=({_PROPERTY}|AllowedMemoryNodes=[0-9,-]{{1,256}}|Delegate=yes|KillMode=process)",
            "sleep",
            "infinity",
        ),
    ),
}

_WRITES = tuple((re.compile(path), re.compile(value)) for path, value in WRITES)
_FOLDERS = tuple(re.compile(path) for path in FOLDERS)


class RefusedError(Exception):
    """The request is not on the list."""


def check_write(path: str, value: str) -> None:
    """Refuse a write that is not on the list."""
    if not any(p.fullmatch(path) and v.fullmatch(value.strip()) for p, v in _WRITES) or ".." in path:
        raise RefusedError(
            f"writing {value.strip()[:40]!r} to {path} is not one of this program's operations"
        )


def check_folder(path: str) -> None:
    """Refuse to make or remove a folder that is not ours."""
    if not any(p.fullmatch(path) for p in _FOLDERS) or ".." in path:
        raise RefusedError(f"{path} is not a folder that this program makes or removes")


def check_command(program: str, arguments: Sequence[str]) -> None:
    """Refuse a command that is not on the list."""
    for patterns in COMMANDS.get(program, ()):
        if _fits(patterns, arguments):
            return
    raise RefusedError(f"`{program} {' '.join(arguments)[:80]}` is not one of this program's operations")


def _fits(patterns: Sequence[str], arguments: Sequence[str]) -> bool:
    if patterns and patterns[-1] == "...":
        fixed = patterns[:-1]
        if len(arguments) < len(fixed):
            return False
        patterns = [*fixed, *[fixed[-1]] * (len(arguments) - len(fixed))]
    return len(patterns) == len(arguments) and all(
        re.fullmatch(pattern, argument) for pattern, argument in zip(patterns, arguments, strict=True)
    )


def op_hello() -> dict[str, Any]:
    """Who answers, and which version: a digest of this very file."""
    return {"euid": os.geteuid(), "version": version(__file__)}


def version(path: str) -> str:
    """A digest of a helper's file, by which caller and helper know each other."""
    import hashlib  # loads OpenSSL: 10 ms that no other operation needs

    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def op_settle() -> dict[str, Any]:
    """Wait until no tool runs any more that the helper of a killed command had started."""
    os.close(_tool_lock())
    return {}


def op_journal(action: str, name: str, data: str = "") -> dict[str, Any]:
    """Write one of the two journals of this machine."""
    if name not in {"setup", "hold"}:
        raise RefusedError(f"{name[:40]!r} is not a journal of this program")
    path = f"{JOURNALS}/{name}.jsonl"
    if action == "create":
        create_file(path)
    elif action == "append":
        append_file(path, data.encode())
    elif action == "remove":
        remove_file(path)
    else:
        raise RefusedError(f"a journal is created, appended to or removed, not {action[:40]!r}")
    return {}


def op_write(path: str, value: str) -> dict[str, Any]:
    """Write a value to a kernel file."""
    check_write(path, value)
    _stays_below(path)
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
    return {}


def op_mkdir(path: str) -> dict[str, Any]:
    """Make one of our cgroups."""
    check_folder(path)
    _stays_below(os.path.dirname(path))
    os.mkdir(path)
    return {}


def op_rmdir(path: str) -> dict[str, Any]:
    """Remove one of our cgroups."""
    check_folder(path)
    _stays_below(path)
    os.rmdir(path)
    return {}


def op_run(program: str, arguments: Sequence[str], timeout: float = COMMAND_LIMIT_S) -> dict[str, Any]:
    """Run one of the listed programs, found on root's own path."""
    check_command(program, arguments)
    found = next((f for f in (f"{d}/{program}" for d in _PATH) if os.access(f, os.X_OK)), None)
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    lock = _tool_lock()
    try:
        done = subprocess.run(
            [found, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=min(timeout, COMMAND_LIMIT_S),
            env={"PATH": ":".join(_PATH), "LC_ALL": "C"},
            pass_fds=(lock,),  # a tool that outlives this process keeps the next one waiting
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), program) from None
    finally:
        os.close(lock)
    return {
        "returncode": done.returncode,
        "stdout": done.stdout.decode("utf-8", "replace"),
        "stderr": done.stderr.decode("utf-8", "replace"),
    }


_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_held: dict[str, int] = {}


def op_latency(us: int) -> dict[str, Any]:
    """Hold the wake-up latency at most at `us` until this process ends."""
    if not 0 <= us <= 1_000_000:
        raise RefusedError(f"a latency of {us} us is out of range")
    if LATENCY not in _held:
        _held[LATENCY] = os.open(LATENCY, os.O_WRONLY | os.O_CLOEXEC)
    os.write(_held[LATENCY], struct.pack("=i", us))
    return {}


def op_release() -> dict[str, Any]:
    """Let the wake-up latency go."""
    fd = _held.pop(LATENCY, None)
    if fd is not None:
        os.close(fd)
    return {}


def op_gpu_clocks(uuid: str, mhz: int | None) -> dict[str, Any]:
    """Lock the clocks of a GPU at one value, or (None) let the driver choose again. Needs nvidia-ml-py."""
    if not re.fullmatch(r"GPU-[0-9a-zA-Z-]{1,64}", uuid):
        raise RefusedError(f"{uuid[:40]!r} is not a GPU")
    if mhz is not None and mhz != BASE_CLOCK and not 0 < mhz <= MOST_MHZ:
        raise RefusedError(f"a clock of {mhz} MHz is out of range")
    try:
        import pynvml
    except ImportError:
        raise OSError(
            errno.ENOSYS, "nvidia-ml-py is not installed for the Python that runs as root"
        ) from None
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        if mhz is None:
            pynvml.nvmlDeviceResetGpuLockedClocks(handle)
        else:
            pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
    except pynvml.NVMLError as error:  # MIG, no right to it, a GPU older than Volta: the driver says which
        raise OSError(errno.EPERM, f"the driver says: {error}") from None
    return {}


def op_affinity(tid: int, cpus: list[int]) -> dict[str, Any]:
    """Give one thread an affinity mask (again)."""
    if tid <= 0 or not 0 < len(cpus) <= 65536:
        raise RefusedError(f"no mask for thread {tid}")
    os.sched_setaffinity(tid, cpus)
    return {}


OPERATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "hello": op_hello,
    "settle": op_settle,
    "journal": op_journal,
    "write": op_write,
    "mkdir": op_mkdir,
    "rmdir": op_rmdir,
    "run": op_run,
    "latency": op_latency,
    "release": op_release,
    "gpu_clocks": op_gpu_clocks,
    "affinity": op_affinity,
}


def create_file(path: str) -> None:
    """Make an empty file that must not be there yet, and its folder; both are on disk on return."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
        os.chmod(folder, 0o755)  # noqa: S103 - whatever the umask: everybody may read what was changed, and by whom
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    try:
        os.fchmod(fd, 0o644)
    finally:
        os.close(fd)
    _sync_folder(folder)


def append_file(path: str, data: bytes) -> None:
    """Add all of `data` to a file, on disk on return; what did not fit leaves nothing behind."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            os.fsync(fd)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size)
            raise
    finally:
        os.close(fd)


def remove_file(path: str) -> None:
    """Delete a file, and its folder when that is empty then."""
    folder = os.path.dirname(path)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    with contextlib.suppress(OSError):
        _sync_folder(folder)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _sync_folder(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _tool_lock() -> int:
    """The descriptor under which a helper's tool runs: one at a time, and free when the tool has ended."""
    fd = os.open("/sys/kernel", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        os.close(fd)
        raise
    return fd


def _stays_below(path: str) -> None:
    """A listed path must not lead elsewhere through a link."""
    if not os.path.realpath(path).startswith(
        ("/sys/", "/proc/sys/", "/proc/irq/", "/cpusets", "/dev/cpuset")
    ):
        raise RefusedError(f"{path} leads out of the kernel's file systems")


def answer(line: str) -> dict[str, Any]:
    """Do what one line asks; whatever happens becomes the answer, which carries the number of its request."""
    number = None
    try:
        request = json.loads(line)
        number = request.pop("id", None)
        return {"id": number, **_done(request)}
    except (ValueError, AttributeError, TypeError) as error:
        return {"id": number, "ok": False, "errno": errno.EINVAL, "error": f"not a request: {error!r}"}


def _done(request: dict[str, Any]) -> dict[str, Any]:
    try:
        operation = OPERATIONS[request.pop("op")]
        return {"ok": True, **operation(**request)}
    except RefusedError as error:
        return {"ok": False, "errno": errno.EPERM, "error": str(error), "refused": True}
    except OSError as error:
        return {"ok": False, "errno": error.errno or errno.EIO, "error": error.strerror or str(error)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return {"ok": False, "errno": errno.EINVAL, "error": f"not a request: {error!r}"}


def main() -> int:
    """Answer requests until the input closes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(
            number, signal.SIG_IGN
        )  # the caller decides when the machine is let go, by closing the pipe
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(line)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
