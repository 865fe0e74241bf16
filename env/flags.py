"""Flags that `python -m env` and the commands that hold the machine share, and their checks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from env.errors import UsageError


def add_choices(parser: argparse._ActionsContainer) -> None:
    """Declare what is left alone, and what is changed only on request."""
    parser.add_argument(
        "--skip", action="append", default=[], metavar="STEP", help="leave a step alone (repeatable)"
    )
    parser.add_argument(
        *("--lock-gpu-clocks", "--lock_gpu_clocks"),
        metavar="MHZ|base",
        help="lock the GPU's clocks meanwhile; by default they are recorded, never changed",
    )


def skip_from(names: Sequence[str]) -> frozenset[str]:
    """The steps that --skip names, one a flag or several with commas; UsageError for others."""
    if not names:
        return frozenset()
    from env import machine

    chosen = [name for text in names for name in text.split(",")]
    unknown = sorted(set(chosen) - set(machine.NAMES))
    if unknown:
        raise UsageError(f"--skip {unknown[0]}: there is no such step; there are {', '.join(machine.NAMES)}")
    return frozenset(chosen)


def clocks_from(text: str | None) -> str | None:
    """What --lock-gpu-clocks asks for; UsageError for what is no clock."""
    if text is None:
        return None
    from env import gpu_clocks

    return gpu_clocks.parse(text)
