"""What runs on the machine: kernel, distribution, Python, packages, drivers, and this project."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

from env import git
from env.sysfs import Files

DRIVER_VERSION = re.compile(r"\b(\d{3,}\.\d+(?:\.\d+)?)\b")
OS_FIELDS = ("ID", "VERSION_ID", "PRETTY_NAME")

# What a worker may add: it alone imports torch. An allow-list, so that no path or address comes along.
WORKER_FIELDS = frozenset(
    {
        "torch",
        "torchvision",
        "triton",
        "cuda",
        "cudnn",
        "driver",
        "numpy",
        "mkl",
        "onednn",
        "openmp",
        "nccl",
        "backends",
    },
)
TORCH_FIELDS = frozenset(
    {
        "version", "git_version", "debug", "cuda", "cudnn", "hip", "rocm", "nccl", "triton", "torchvision",
        "build_config", "config", "cxx11_abi", "compiler", "arch_list", "cpu_capability", "mkl", "mkldnn",
        "onednn", "openmp", "lapack", "blas", "numpy", "driver", "python", "capability",
    },
)  # fmt: skip


def software(
    files: Files,
    errors: dict[str, str],
    *,
    commit_facts: Callable[[], dict[str, Any]] = git.commit_facts,
    distributions: Callable[[], Any] = importlib.metadata.distributions,
) -> dict[str, Any]:
    """The software part of a fingerprint, without torch's own account, which only a worker can give."""
    project = commit_facts()
    if project["reason"]:
        errors["software.project"] = project["reason"]
    return {
        "kernel": kernel(files, errors),
        "distribution": distribution(files, errors),
        "container": container(files),
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "compiler": platform.python_compiler(),
            "free_threaded": not getattr(sys, "_is_gil_enabled", lambda: True)(),
        },
        "libc": " ".join(platform.libc_ver()).strip() or None,
        "driver": {"nvidia": nvidia_driver(files)},
        "project": {
            "commit": project["commit"],
            "dirty": project["dirty"],
            "source_sha256": git.source_sha256(),
        },
        "packages": packages(errors, distributions),
    }


def merge(facts: dict[str, Any], told: dict[str, Any] | None, errors: dict[str, str]) -> dict[str, Any]:
    """The software facts with those a worker told; what is not on the allow-list is left out."""
    merged = dict(facts)
    if told is None:
        merged.setdefault("torch", None)
        errors.setdefault("software.torch", "no worker was asked; only one that imports torch knows")
        return merged
    for name in sorted(WORKER_FIELDS & told.keys()):
        value = told[name]
        if name == "torch" and isinstance(value, dict):
            value = {key: item for key, item in value.items() if key in TORCH_FIELDS}
        if name == "driver" and not isinstance(value, dict):
            value = {**facts.get("driver", {}), "nvidia": value or facts.get("driver", {}).get("nvidia")}
        merged[name] = value
    merged.setdefault("torch", None)
    if merged["torch"] is not None:
        errors.pop("software.torch", None)
    return merged


def kernel(files: Files, errors: dict[str, str]) -> dict[str, Any]:
    """System, release and build; never /proc/version, which names the account and host that built it."""
    release = files.read("/proc/sys/kernel/osrelease").value
    version = files.read("/proc/sys/kernel/version").value
    system = files.read("/proc/sys/kernel/ostype").value
    if files.real:
        about = os.uname() if hasattr(os, "uname") else None
        system = system or platform.system() or None
        release = release or (about.release if about else platform.release()) or None
        version = version or (about.version if about else platform.version()) or None
    if release is None:
        errors["software.kernel"] = files.read("/proc/sys/kernel/osrelease").reason
    return {"system": system, "release": release, "version": version}


def distribution(files: Files, errors: dict[str, str]) -> dict[str, Any]:
    """Name and version of the distribution, from os-release."""
    reading = files.read("/etc/os-release")
    if reading.text is None:
        reading = files.read("/usr/lib/os-release")
    if reading.text is None:
        errors["software.distribution"] = reading.reason
    fields: dict[str, str] = {}
    for line in (reading.text or "").splitlines():
        key, mark, value = line.partition("=")
        if mark and key in OS_FIELDS:
            try:
                fields[key] = " ".join(shlex.split(value))
            except ValueError:
                fields[key] = value.strip("\"'")
    return {
        "id": fields.get("ID"),
        "version": fields.get("VERSION_ID"),
        "name": fields.get("PRETTY_NAME"),
    }


def container(files: Files) -> str | None:
    """The kind of container we are in, as its files say; None for none that is known."""
    if files.exists("/.dockerenv"):
        return "docker"
    if files.exists("/run/.containerenv"):
        return "podman"
    return (files.read("/run/systemd/container").value or "").split(" ")[0] or None


def nvidia_driver(files: Files) -> str | None:
    """The version of the NVIDIA kernel driver; the rest of its line names a build host."""
    first = (files.read("/proc/driver/nvidia/version").text or "").partition("\n")[0]
    match = DRIVER_VERSION.search(first)
    return match[1] if match else files.read("/sys/module/nvidia/version").value or None


def packages(
    errors: dict[str, str], distributions: Callable[[], Any] = importlib.metadata.distributions
) -> dict[str, str]:
    """Installed packages by normalised name; the first on the path wins, as it does for an import."""
    found: dict[str, str] = {}
    broken = 0
    for item in distributions():
        try:
            name, version = item.metadata["Name"], item.version
        except Exception:
            broken += 1
            continue
        if name and version:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)
        else:
            broken += 1
    if broken:
        errors["software.packages"] = f"{broken} installed packages have unreadable metadata"
    return dict(sorted(found.items()))
