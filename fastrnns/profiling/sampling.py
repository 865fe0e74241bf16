"""The kernel's perf sampling limit, which the stable machine lowers: raised for a profile and put back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from env.perf import RATE
from env.privilege import Privilege
from env.sysfs import Files

DEFAULT = 100_000  # the kernel's own: DEFAULT_MAX_SAMPLE_RATE, kernel/events/core.c


@contextmanager
def raised(files: Files, privilege: Privilege) -> Iterator[str | None]:
    """Raise the limit while the body runs, if it is below the kernel's default; yields what was done.

    It is put back only where the kernel still holds our value: the kernel lowers it itself under load.
    """
    before = files.read(RATE)
    if before.number is None or before.number >= DEFAULT:
        yield None
        return
    failure = privilege.write(RATE, str(DEFAULT))
    if failure is not None:
        yield f"the perf sampling limit stays at {before.value} a second ({failure.reason})"
        return
    try:
        yield f"the perf sampling limit was raised from {before.value} to {DEFAULT} a second for the profile"
    finally:
        now = files.read(RATE).number
        if now is not None and now > before.number:
            privilege.write(RATE, str(before.number))
