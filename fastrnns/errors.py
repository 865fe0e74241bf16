"""The errors a person is shown: one sentence with a remedy, and the exit code that goes with it."""

from __future__ import annotations

from env.errors import EnvError


class HarnessError(Exception):
    """Base of every error this package raises for a person; `main` prints it and returns `exit_code`."""

    exit_code = 1


class UnsupportedError(HarnessError):
    """A model that this device, number format or software cannot run; the sentence says which and why."""


class UsageError(HarnessError):
    """The command line asks for something that is not possible as written."""

    exit_code = 2


class MachineError(HarnessError):
    """The machine, or the machine that a record names, is not what the command needs."""

    exit_code = 3


SAID = (HarnessError, EnvError)  # what a command says in one sentence
