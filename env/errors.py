"""The errors a person is shown: one sentence with a remedy, and the exit code that goes with it."""

from __future__ import annotations


class EnvError(Exception):
    """Base of every error this package raises for a person; `main` prints it and returns `exit_code`."""

    exit_code = 1


class UsageError(EnvError):
    """The command line asks for something that is not possible as written."""

    exit_code = 2


class MachineError(EnvError):
    """The machine, or its present state, is not what the command needs."""

    exit_code = 3
