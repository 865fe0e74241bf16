"""From what was found to the record: results, ceilings, fingerprint and files, kept in the archive."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from env import fingerprint
from env.hold import Held
from fastrnns.archive import record as records
from fastrnns.archive.store import Archive
from fastrnns.errors import HarnessError
from fastrnns.machine_flags import MachineFlags
from fastrnns.profiling import ceilings, session
from fastrnns.profiling import files as beside
from fastrnns.profiling.plan import Plan
from fastrnns.profiling.session import Found

FACTS_SECONDS = 30.0  # longest wait for the fingerprint


@dataclass
class Run:
    """One profile from the held machine to the record."""

    plan: Plan
    machine: MachineFlags
    folder: Path
    archive: Archive | None
    say: Callable[[str], None]
    interrupted: Callable[[], bool]
    done: list[Found] = field(default_factory=list)
    known: dict[str, Any] | None = None  # the ceilings
    facts: dict[str, Any] = field(default_factory=dict)  # of the fingerprint
    surroundings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    @property
    def exit_code(self) -> int:
        """1 where a model was not profiled."""
        return int(not self.done or any(one.status != "ok" for one in self.done))

    def hold(self, *, roofline: bool | None) -> None:
        """Profile on the held machine; afterwards it is as it was, and what was seen of it is here."""
        gpu = int(self.plan.device.partition(":")[2] or 0) if self.plan.device_type == "cuda" else None
        with self.machine.held(gpu=gpu, command="profile", sampling=True) as held:
            if self.machine.env == "apply":
                self.notes += [
                    f"the perf sampling limit stays: {row['reason']}"
                    for row in held.before
                    if row["name"] == "perf" and row["status"] in {"unstable", "locked", "unknown"}
                ]
            collecting = threading.Thread(
                target=lambda: self.facts.update(fingerprint.collect(steps=held.before)), daemon=True
            )
            collecting.start()
            adopt = functools.partial(watched, held)
            place = session.Place(self.folder, adopt, held.cpus or None, self.interrupted)
            session.run(self.plan, place, say=self.say, finished=self.done)
            collecting.join(FACTS_SECONDS)
            if not self.interrupted():
                self._ceilings(place, roofline)
        self.surroundings = {
            "mode": self.machine.env,
            "before": held.before,
            "after": held.after,
            "shield": held.shield or None,
            "watch": {"processes": [watch.facts() for watch in held.watches]} if held.watches else None,
            "disturbances": [row for watch in held.watches for row in watch.disturbances()],
            "drift": held.drift,
            "reasons": held.reasons,
        }

    def record(self, argv: Sequence[str], exit_code: int) -> dict[str, Any]:
        """The record of what was found."""
        found = records.new("profile", argv, self.plan.problem.as_dict(), self._options())
        results = [session.result(self.plan, one, self.known) for one in self.done]
        hello = next((one.hello for one in self.done if one.hello), {})
        found["options"] |= {
            key: hello.get(key) for key in ("threads", "affinity", "precision") if hello.get(key) is not None
        }
        choice = self.plan.choice
        return found | {
            "duration_s": round(time.monotonic() - self.started, 3),
            "results": results,
            "fingerprint": self._fingerprint(hello or None),
            "environment": self.surroundings,
            "exit_code": exit_code,
            "ceilings": self.known,
            "notes": self.notes,
            "details": {"tool": {"name": choice.tool, "why": choice.why, "refused": choice.refused}},
            "verdict": records.verdict(
                self.surroundings, results, self._options(), kind="profile", exit_code=exit_code
            ),
        }

    def _options(self) -> dict[str, Any]:
        return self.plan.options() | self.machine.recorded()

    def _fingerprint(self, software: dict[str, Any] | None) -> dict[str, Any]:
        return fingerprint.complete(self.facts or fingerprint.collect(steps=[]), software)

    def _ceilings(self, place: session.Place, wanted: bool | None) -> None:
        plan = self.plan
        try:
            self.known = ceilings.of_machine(
                plan.device,
                wanted=wanted,
                archive=self.archive,
                complete=self._fingerprint,
                measure=lambda: ceilings.measure(
                    plan.device, threads=plan.threads, adopt=place.adopt, cpus=place.cpus
                ),
                threads=plan.threads or (len(place.cpus) if place.cpus else None),
                say=self.say,
            )
        except HarnessError as error:  # a profile without a roofline is a profile
            self.say(f"no ceilings: {error}")


def watched(held: Held, pid: int) -> None:
    """Put a waiting process onto the bench CPUs, and watch it in place of the one before."""
    held.adopt(pid)
    for watch in held.watches:
        watch.stop()
    if held.mode != "ignore":
        held.watch(pid).start()


def write(store: Archive, found: dict[str, Any], done: Sequence[Found], folder: Path) -> Path:
    """The record and its files, in the archive."""
    ready = folder / "ready"
    ready.mkdir()
    paths = [
        path
        for one, result in zip(done, found["results"], strict=True)
        if one.phases
        for path in beside.prepare(one, ready, {**result, "profile": {**result["profile"], **one.phases}})
    ]
    return beside.archive(store, found, paths)
