"""Running any command inside the held machine: started by us as us, moved in while it waits, then let go."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from env.errors import MachineError, UsageError

NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as a shell says it
SIGNALLED = 128
NO_COMMAND = "env run needs a command after --, as in `python -m env run -- make bench`"
PASSED_ON = (signal.SIGTERM, signal.SIGHUP)


def run(
    argv: Sequence[str], adopt: Callable[[int], None], *, environment: Mapping[str, str] | None = None
) -> int:
    """Run a command and return its exit code, 128 + N for signal N; `adopt` gets its pid before it begins.

    The child is a fork of ours: same user, same interpreter, same variables, and its argument list
    is never joined to a string. It executes the command only after we have let it go, so what it
    runs has been inside from its first instruction.
    """
    if not argv:
        raise UsageError(NO_COMMAND)
    waiting, letting = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        _become(argv, waiting, letting, environment)
    os.close(waiting)
    before = {number: signal.signal(number, _pass_on(child)) for number in PASSED_ON}
    # Ctrl-C reaches the child from the terminal; we wait for its answer, and then put the machine back.
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        try:
            adopt(child)
            os.write(letting, b"go")
        finally:
            os.close(letting)  # without "go" the child ends
            status = _wait(child)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else SIGNALLED + os.WTERMSIG(status)


def _become(argv: Sequence[str], waiting: int, letting: int, environment: Mapping[str, str] | None) -> None:
    """Wait for the word, then be the command; never returns."""
    code = 1
    try:
        os.close(letting)
        if os.read(waiting, 2) == b"go":
            os.close(waiting)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and exec would keep that
                signal.signal(number, signal.SIG_DFL)
            os.execvpe(argv[0], list(argv), {**os.environ, **(environment or {})})  # noqa: S606 - no shell, on purpose
    except FileNotFoundError:
        code = _say(f"env run: {argv[0]} was not found; check its name and PATH", NOT_FOUND)
    except OSError as error:
        code = _say(f"env run: {argv[0]} cannot be executed: {error.strerror}", NOT_EXECUTABLE)
    finally:
        os._exit(code)


def _say(sentence: str, code: int) -> int:
    with contextlib.suppress(OSError):
        os.write(2, sentence.encode(errors="replace") + b"\n")
    return code


def _pass_on(child: int) -> Callable[[int, object], None]:
    def handler(number: int, _frame: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    return handler


def _wait(child: int) -> int:
    while True:
        try:
            return os.waitpid(child, 0)[1]
        except InterruptedError:
            continue


def run_held(argv: Sequence[str], *, strict: bool = False, root: str = "/", **options: Any) -> int:
    """`env run`: any command inside the stabilised, shielded machine; its exit code is ours.

    With `strict`, a machine that drifted meanwhile raises MachineError after a command that succeeded.
    """
    from env.hold import hold

    if not argv:
        raise UsageError(NO_COMMAND)
    with hold("apply", root=root, strict=strict, command="env run", **options) as held:
        for warning in [held.shield["reason"], *held.shield["warnings"]]:
            if warning:
                print(f"env run: {warning}", file=sys.stderr)

        def adopt(pid: int) -> None:
            held.adopt(pid)
            held.watch(pid).start()

        code = run(argv, adopt, environment=held.environment())
    for reason in held.reasons:
        print(f"env run: {reason}", file=sys.stderr)
    if strict and code == 0 and held.drift:
        raise MachineError("--strict: the machine drifted while the command ran; see `python -m env check`")
    return code
