"""The frame of every command: errors are a sentence and an exit code, an output that takes nothing is no crash."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable

DONE, BAD, INTERRUPTED = 0, 1, 130


def framed(program: str, body: Callable[[], int], errors: tuple[type[Exception], ...]) -> int:
    """Run the body of a command and return its exit code.

    Args:
        program: what sentences begin with, as a person would type it.
        body: does the work and returns the exit code.
        errors: what is a sentence for a person; their `exit_code` is ours (1 where they have none).
    """
    _open_streams()
    try:
        code = body()
        sys.stdout.flush()
    except errors as error:
        _say(f"{program}: {error}")
        return int(getattr(error, "exit_code", BAD))
    except KeyboardInterrupt:
        _say(f"{program}: interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # `| head`: the reader has what it wanted
        _discard_output()
        return DONE
    except OSError as error:
        if error.filename is not None:  # not the output: a fault of ours, which must show itself
            raise
        _discard_output()
        _say(f"{program}: the answer could not be written ({error.strerror}); make room, and ask again")
        return BAD
    return code


def _open_streams() -> None:
    """Streams that were closed before we began lead nowhere; a name may hold bytes that are no text."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for the process's life
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _discard_output() -> None:
    """Send what is still buffered nowhere, so that the interpreter does not stumble over it at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(sentence: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)
