"""Whether a record may be believed: valid, tainted or invalid, and why. Pure; thresholds are named."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from env import suspicion

# A backward does about twice the work of its forward; one that takes a hundredth of it was not measured.
BACKWARD_SHARE = 0.01
# More than a fifth of the iterations disturbed: what is left is no longer a sample of what was asked.
EXCLUDED_SHARE = 0.2
# That many of the models so disturbed: it is the run that was, not one model's turn.
DISTURBED_MODELS_SHARE = 0.5
# Without these two nothing is known of the frequency, and without the shield not who else was running.
FREQUENCY_STEPS = ("governor", "turbo")
REQUIRED_STEPS = (*FREQUENCY_STEPS, "shield")
PHASES = ("forward", "backward")
INTERRUPTED = 130
# Kinds whose records carry no times that are to be believed: the machine's state does not matter to them.
UNTIMED_KINDS = frozenset({"verify"})
# Kinds whose results are samples, with everything that can be wrong with samples.
SAMPLED_KINDS = frozenset({"bench", "calibrate", "reproduce"})
# Kinds without results of models.
MODELLESS_KINDS = frozenset({"ceilings"})


def verdict(
    environment: Mapping[str, Any] | None,
    results: Sequence[Mapping[str, Any]],
    options: Mapping[str, Any] | None = None,
    *,
    kind: str = "bench",
    exit_code: int | None = None,
) -> dict[str, Any]:
    """`{status, reasons}` from what was found; the reasons against belief first."""
    options = options or {}
    against = [*_interrupted(options, exit_code), *_unmeasured(results, kind)]
    doubts: list[str] = []
    if kind in SAMPLED_KINDS:
        ran = [result for result in results if result.get("status") == "ok"]
        spoilt = [reason for result in ran if (reason := disturbed(result))]
        (against if len(spoilt) > DISTURBED_MODELS_SHARE * len(ran) else doubts).extend(spoilt)
        for result in ran:
            against += _impossible(result)
            doubts += _doubtful(result)
    if kind not in UNTIMED_KINDS:
        doubts += machine_doubts(environment)
        graver, lesser = _watched(environment or {}, results)
        against += graver
        doubts += lesser
    status = "invalid" if against else "tainted" if doubts else "valid"
    return {"status": status, "reasons": _unique([*against, *doubts])}


def machine_doubts(environment: Mapping[str, Any] | None) -> list[str]:
    """What about the machine makes times doubtful: its steps, drift, the shield, what the watch saw."""
    if not environment or not environment.get("before"):
        found = ["the machine was not checked, so nothing is known of its frequency or of other programs"]
    else:
        found = list(_step_doubts(environment["before"]))
    for change in (environment or {}).get("drift") or []:
        found.append(f"drift: {_drift(change)}")
    shield = (environment or {}).get("shield")
    if shield and shield.get("verified") is False:
        found.append(
            f"shield not verified: {shield.get('reason') or 'the kernel does not show the wanted CPUs'}"
        )
    for reason in (environment or {}).get("reasons") or []:
        found.append(str(reason))
    return found


def _step_doubts(steps: Iterable[Mapping[str, Any]]) -> Iterable[str]:
    seen = {step["name"] for step in steps}
    for step in steps:
        status, name = step["status"], step["name"]
        if status == "stable" or (status == "unavailable" and name not in REQUIRED_STEPS):
            continue
        meaning = (
            ": nothing is known of the frequency"
            if status == "unavailable" and name in FREQUENCY_STEPS
            else ""
        )
        yield f"{name} {status}{meaning} ({step.get('reason') or 'no reason given'})"
    for name in REQUIRED_STEPS:
        if name not in seen:
            yield f"{name} was not checked"


def _interrupted(options: Mapping[str, Any], exit_code: int | None) -> list[str]:
    if exit_code == INTERRUPTED or options.get("interrupted"):
        return ["interrupted: what follows is what had been measured by then"]
    return []


def _unmeasured(results: Sequence[Mapping[str, Any]], kind: str) -> list[str]:
    if not results:
        return [] if kind in MODELLESS_KINDS else ["nothing was measured"]
    if all(result.get("status") != "ok" for result in results):
        return ["no model ran" if kind not in UNTIMED_KINDS else "no model passed"]
    return []


def _impossible(result: Mapping[str, Any]) -> list[str]:
    """Why a result that claims to be one cannot be."""
    name = result["model"]
    forward, backward = _all(result.get("forward")), _all(result.get("backward"))
    found = []
    if not forward:
        found.append(f"{name}: no forward samples")
    elif min(forward) <= 0:
        found.append(f"{name}: a forward time is not above zero, so the clock did not measure it")
    if result.get("backward") is not None:
        if not backward:
            found.append(f"{name}: no backward samples")
        elif min(backward) < 0:
            found.append(f"{name}: a backward time is negative")
        elif forward and statistics.median(backward) < BACKWARD_SHARE * statistics.median(forward):
            share = (
                statistics.median(backward) / statistics.median(forward)
                if statistics.median(forward)
                else 0.0
            )
            found.append(f"{name}: backward not measured (its time is {share:.2%} of the forward)")
    return found


def disturbed(result: Mapping[str, Any]) -> str | None:
    """Why a result is no sample of what was asked: too much of it was disturbed. None where it is one."""
    share = _excluded_share(result)
    if share <= EXCLUDED_SHARE:
        return None
    return f"{result['model']}: the watch saw {share:.0%} of the iterations disturbed"


def _doubtful(result: Mapping[str, Any]) -> list[str]:
    name = result["model"]
    forward = result.get("forward") or {}
    processes = sum(bool(series) for series in forward.get("samples") or [])
    count = len(_all(forward))
    found = []
    if count == 1:
        found.append(f"{name}: insufficient samples (1), so there is no spread and no interval")
    elif processes == 1:
        found.append(f"{name}: one process, so the spread between processes is not known")
    if "not warmed up" in ((result.get("details") or {}).get("marks") or ()):
        found.append(f"{name}: timed before TorchScript had ended compiling")
    unsteady = [phase for phase in PHASES if _unsteady((result.get(phase) or {}).get("steady"))]
    return [*found, *(f"{name}: no steady {phase}" for phase in unsteady)]


def _watched(
    environment: Mapping[str, Any], results: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """What the watch saw while iterations were timed: reasons against belief, and doubts."""
    watch = environment.get("watch") or {}
    seen = [
        suspicion.Disturbance(item["from_ns"], item["to_ns"], item["cause"])
        for facts in (environment, watch, *(watch.get("processes") or []))
        for item in facts.get("disturbances") or []
    ]
    spans = [span for result in results for span in timed_spans(result)]
    if spans:
        status, reasons = suspicion.judge(suspicion.merge(seen), spans)
    else:
        judged = watch.get("judgement") or {}
        status, reasons = judged.get("status", "valid"), list(judged.get("reasons") or [])
    if status == "invalid":
        return reasons, []
    return [], [] if status == "valid" else reasons


def timed_spans(result: Mapping[str, Any]) -> list[tuple[int, int]]:
    """From the first to the last timed iteration of each process, in nanoseconds of CLOCK_MONOTONIC."""
    spans = []
    phases = [result.get(phase) or {} for phase in PHASES]
    for index, starts in enumerate(result.get("started_ns") or []):
        if starts and starts[0] is not None and starts[-1] is not None:
            last_ms = sum(_last(phase, index) for phase in phases)
            spans.append((starts[0], starts[-1] + int(last_ms * 1e6)))
    return spans


def _last(phase: Mapping[str, Any], index: int) -> float:
    """The last time of one process, in milliseconds; 0 where it has none."""
    series = (phase.get("samples") or [])[index : index + 1]
    return float(series[0][-1] or 0.0) if series and series[0] else 0.0


def _unsteady(steady: Any) -> bool:
    """Whether a phase's steadiness, however it is written, says no."""
    if isinstance(steady, Mapping):
        steady = steady.get("steady", steady.get("status"))
    if isinstance(steady, (list, tuple)):
        return any(_unsteady(item) for item in steady)
    if isinstance(steady, str):
        return steady in {"no steady state", "no-steady-state", "unsteady", "slowdown", "not steady"}
    return steady is False


def _excluded_share(result: Mapping[str, Any]) -> float:
    total = len(_all(result.get("forward")))
    excluded = (result.get("forward") or {}).get("excluded") or []
    count = sum(len(item) if isinstance(item, (list, tuple)) else 1 for item in excluded) if total else 0
    return count / total if total else 0.0


def _all(phase: Mapping[str, Any] | None) -> list[float]:
    return [value for series in (phase or {}).get("samples") or [] for value in series if value is not None]


def _drift(change: Mapping[str, Any]) -> str:
    name = change.get("name") or change.get("step") or change.get("path") or "a setting"
    before = change.get("before", change.get("was", change.get("wanted")))
    after = change.get("after", change.get("now", change.get("current")))
    if isinstance(before, Mapping) or isinstance(after, Mapping):
        before, after = (
            (side or {}).get("current") if isinstance(side, Mapping) else side for side in (before, after)
        )
    if before is None and after is None:
        return f"{name}: {change.get('reason') or 'changed during the run'}"
    return f"{name} went from {before} to {after} during the run"


def _unique(texts: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(texts))
