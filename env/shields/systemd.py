"""Slices of systemd: everybody else is kept on the housekeeping CPUs by the manager of the groups."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from env.cpulist import format_list, parse_list
from env.errors import MachineError
from env.shields.backend import BENCH, STEP, Plan, Present
from env.step import Host

SERVICE = f"{BENCH}.service"
SLICE = f"{BENCH}.slice"
OTHERS = ("init.scope", "system.slice", "user.slice", "machine.slice")
CGROUPS = "/sys/fs/cgroup"
ROUNDS = 20
PAUSE_S = 0.05  # systemd applies a property after it has answered


class Systemd:
    """AllowedCPUs on the slices that everybody lives in; kernel threads and other slices stay."""

    name = "systemd"
    shields = True

    def __init__(self, host: Host) -> None:
        self.host = host
        self.files = host.files
        self.notes: list[str] = []

    def unusable(self) -> str | None:
        """Systemd must be the init system, and must have the cpuset controller to give."""
        if not self.files.is_dir("/run/systemd/system"):
            return "systemd is not running this machine"
        for program in ("systemctl", "systemd-run"):
            if self.files.which(program) is None:
                return f"{program} is not installed"
        if "cpuset" not in (self.files.read(f"{CGROUPS}/cgroup.controllers").text or "").split():
            return "cgroup v2 has no cpuset controller to give here, and AllowedCPUs= needs it"
        if self.files.exists(f"{CGROUPS}/cgroup.type"):
            return "blocked by the container: its host decides about CPUs"
        return None if self.host.privilege.available() else "needs root"

    def obstacle(self, plan: Plan) -> str | None:
        """Somebody else's restriction of a slice that leaves out the housekeeping CPUs."""
        for unit in OTHERS:
            allowed = self._allowed(unit)
            if allowed and not parse_list(allowed.replace(" ", ",")) & set(plan.housekeeping):
                return (
                    f"{unit} is already restricted to CPU {allowed}, none of which the system keeps;"
                    " it is left alone. Choose other CPUs with --cpus"
                )
        return None

    def _show(self, unit: str, name: str) -> str | None:
        done = self.host.privilege.run(
            "systemctl", ["show", f"--property={name}", "--value", unit], root=False
        )
        return done.stdout.strip() if done.returncode == 0 else None

    def _allowed(self, unit: str) -> str:
        return self._show(unit, "AllowedCPUs") or ""

    def present(self) -> Present | None:
        """Our service and what the slices of the others are allowed."""
        if not self.files.is_dir("/run/systemd/system") or self.files.which("systemctl") is None:
            return None
        group = self._show(SERVICE, "ControlGroup")
        if not group:
            return None
        cpus = parse_list(self._allowed(SERVICE).replace(" ", ","))
        problems = []
        for unit in OTHERS:
            allowed = self._allowed(unit)
            if self._show(unit, "LoadState") == "loaded" and (
                not allowed or parse_list(allowed.replace(" ", ",")) & cpus
            ):
                problems.append(f"{unit} may run on the bench CPUs")
        return Present(tuple(sorted(cpus)), f"{SERVICE}, AllowedCPUs of {', '.join(OTHERS)}", tuple(problems))

    def build(self, plan: Plan) -> None:
        """Keep the others off, then start a service that holds a place for the worker."""
        obstacle = self.obstacle(plan)
        if obstacle:
            raise MachineError(obstacle)
        if self.present() is not None:
            raise MachineError(
                f"{SERVICE} runs without a journal of ours;"
                f" stop it with `systemctl stop {SERVICE}`, then run this again"
            )
        units = [unit for unit in OTHERS if self._show(unit, "LoadState") == "loaded"]
        before = {unit: self._allowed(unit) for unit in units}
        rest = format_list(plan.housekeeping)
        if self.host.journal is not None:
            self.host.journal.operation(
                STEP, self.name, cpus=list(plan.cpus), rest=list(plan.housekeeping), allowed=before, new=rest
            )
        for unit in units:
            done = self.host.privilege.run(
                "systemctl", ["set-property", "--runtime", unit, f"AllowedCPUs={rest}"]
            )
            if done.returncode:
                raise MachineError(f"systemd does not restrict {unit}: {done.message}")
        done = self.host.privilege.run(
            "systemd-run",
            [
                "--quiet",
                "--collect",
                f"--unit={SERVICE}",
                f"--slice={SLICE}",
                f"--property=AllowedCPUs={plan.text}",
                f"--property=AllowedMemoryNodes={format_list(plan.mems)}",
                "--property=Delegate=yes",
                "--property=KillMode=process",
                "sleep",
                "infinity",
            ],
        )
        if done.returncode:
            raise MachineError(f"systemd does not start {SERVICE}: {done.message}")
        self._confirm(plan)
        self.notes = [
            "AllowedCPUs= does not reach kernel threads nor slices outside "
            + ", ".join(OTHERS)
            + "; the watch looks for them"
        ]

    def _confirm(self, plan: Plan) -> None:
        present = None
        for _ in range(ROUNDS):
            present = self.present()
            if present is not None and present.cpus == plan.cpus and not present.problems:
                return
            if not self.files.real:
                break
            time.sleep(PAUSE_S)
        detail = (
            "its service is not there"
            if present is None
            else "; ".join(present.problems) or f"CPU {present.text}"
        )
        raise MachineError(f"systemd did not build the shield: {detail}")

    def adopt(self, pid: int, plan: Plan) -> None:
        """Into the control group of our service, which systemd has delegated."""
        group = self._show(SERVICE, "ControlGroup")
        failure = self.host.privilege.write(f"{CGROUPS}{group}/cgroup.procs", str(pid)) if group else None
        if not group or failure is not None:
            why = failure.reason if failure else "the service is gone"
            raise MachineError(f"the worker could not be put on CPU {plan.text} by systemd: {why}")

    def teardown(self, data: Mapping[str, Any]) -> list[str]:
        """Stop our service, and give each slice what it was allowed, where it still is as we set it."""
        drift = []
        if self._show(SERVICE, "ControlGroup"):
            done = self.host.privilege.run("systemctl", ["stop", SERVICE])
            if done.returncode:
                drift.append(f"{SERVICE} could not be stopped: {done.message}")
        for unit, old in data.get("allowed", {}).items():
            now = self._allowed(unit)
            if now == old:
                continue
            if parse_list(now.replace(" ", ",")) != parse_list(str(data.get("new", ""))):
                drift.append(f"{unit} was allowed CPU {now or 'all'} by somebody else meanwhile; left so")
                continue
            value = old.replace(" ", ",")
            done = self.host.privilege.run(
                "systemctl", ["set-property", "--runtime", unit, f"AllowedCPUs={value}"]
            )
            if done.returncode:
                drift.append(f"{unit} could not be given back its CPUs: {done.message}")
        return drift
