"""Questions to libraries that raise, hang or answer nonsense: each has a time limit and may fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PROBE_LIMIT_S = 5.0
CPUINFO_LIMIT_S = 8.0  # py-cpuinfo starts a handful of programs; more than 1 s is common
PLAUSIBLE_MHZ = (100.0, 10_000.0)  # a CPU outside of it is a unit mistake


@dataclass(frozen=True)
class Answer:
    """A value, or None and the reason why there is none."""

    value: Any
    reason: str = ""

    @property
    def known(self) -> bool:
        """Whether the probe answered."""
        return self.value is not None


def bounded(ask: Callable[[], Any], *, limit_s: float = PROBE_LIMIT_S) -> Answer:
    """Ask in a thread of its own; whatever it raises, and no answer within the limit, becomes a reason."""
    said: list[Answer] = []

    def work() -> None:
        try:
            value = ask()
        except BaseException as error:  # a library may raise SystemExit, too
            said.append(Answer(None, _sentence(error)))
        else:
            said.append(Answer(value, "" if value is not None else "answered nothing"))

    thread = threading.Thread(target=work, name="probe", daemon=True)
    thread.start()
    thread.join(limit_s)
    return said[0] if said else Answer(None, f"no answer within {limit_s:g} s")


def command(argv: list[str], *, limit_s: float = PROBE_LIMIT_S, **options: Any) -> Answer:
    """Stdout of a program, as text; its whole process group is killed at the limit."""
    try:
        child = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            **options,
        )
    except OSError as error:
        return Answer(None, f"{os.path.basename(argv[0])}: {error.strerror or error}")  # noqa: PTH119
    except subprocess.SubprocessError as error:
        return Answer(None, f"{os.path.basename(argv[0])}: {error}")  # noqa: PTH119
    try:
        out, err = child.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            child.kill()
        child.communicate()
        return Answer(None, f"no answer within {limit_s:g} s")
    if child.returncode:
        lines = err.decode("utf-8", "replace").strip().splitlines()
        fatal = [
            line for line in lines if line.startswith("fatal:")
        ]  # git: advice follows; Python: the last line
        return Answer(None, (fatal or lines[-1:] or [f"exit status {child.returncode}"])[0].strip())
    return Answer(out.decode("utf-8", "replace"))


def cpuinfo(*, limit_s: float = CPUINFO_LIMIT_S, argv: list[str] | None = None) -> Answer:
    """What py-cpuinfo says, asked in a fresh process: it may raise, hang, or run its caller again."""
    # From the root folder: `-m` would otherwise find a cpuinfo.py of the user's before the package.
    said = command(argv or [sys.executable, "-m", "cpuinfo", "--json"], limit_s=limit_s, cwd="/")
    if not said.known:
        return said
    text: str = said.value
    try:
        facts = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return Answer(None, "py-cpuinfo printed no JSON")
    if not isinstance(facts, dict) or not facts:
        return Answer(None, "py-cpuinfo knows nothing about this CPU")
    return Answer(facts)


def cpu_frequency(psutil: Any = None) -> Answer:
    """`{current_mhz, min_mhz, max_mhz, normalized}` from psutil, GHz put right where that is plausible."""

    def ask() -> dict[str, Any] | None:
        said = (psutil or _psutil()).cpu_freq()
        if not said:
            return None
        current, low, high = (_number(getattr(said, name, None)) for name in ("current", "min", "max"))
        mhz, normalized = as_mhz(current)
        return {
            "current_mhz": mhz,
            "min_mhz": as_mhz(low)[0],
            "max_mhz": as_mhz(high)[0],
            "normalized": normalized,
        }

    said = bounded(ask)
    if said.known and said.value["current_mhz"] is None:
        return Answer(None, "psutil answered no plausible frequency")
    return said


def as_mhz(value: float | None) -> tuple[float | None, bool]:
    """A frequency in MHz and whether it had been in GHz; None when it is neither, or zero."""
    if value is None or value <= 0:
        return None, False
    if PLAUSIBLE_MHZ[0] <= value <= PLAUSIBLE_MHZ[1]:
        return value, False
    scaled = value * 1000
    if PLAUSIBLE_MHZ[0] <= scaled <= PLAUSIBLE_MHZ[1]:
        return round(scaled, 3), True
    return None, False


def temperatures(psutil: Any = None) -> Answer:
    """The warmest sensor of each chip in degrees Celsius."""

    def ask() -> dict[str, float] | None:
        chips = (psutil or _psutil()).sensors_temperatures()
        warmest = {
            str(chip): max(celsius)
            for chip, sensors in chips.items()
            if (celsius := [value for sensor in sensors if (value := _number(sensor.current)) is not None])
        }
        return warmest or None

    said = bounded(ask)
    return said if said.known or said.reason != "answered nothing" else Answer(None, "no temperature sensors")


def _psutil() -> Any:
    import psutil

    return psutil


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:  # noqa: PLR0124
        return None
    return float(value)


def _sentence(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
