"""Every command ends in a sentence and an exit code, whatever its output is connected to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from env.command import framed
from env.errors import EnvError, MachineError
from fastrnns.errors import SAID, UsageError

ROOT = Path(__file__).parent.parent
# Commands that answer on stdout without measuring anything.
ANSWERS = [
    "fastrnns.bench --list",
    "fastrnns.bench --help",
    "fastrnns.test --help",
    "fastrnns.profile --help",
    "fastrnns.compare --help",
    "fastrnns.archive list --archive results",
    "fastrnns.archive show f63dd7effee4 --archive results --json",
    "fastrnns.archive export f63dd7effee4 --format csv --archive results",
    "env check",
    "env fingerprint",
]


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, shell=True, cwd=ROOT, capture_output=True, text=True, timeout=120, executable="/bin/sh"
    )


@pytest.mark.parametrize("answer", ANSWERS)
@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", "| head -1"])
def test_an_output_that_takes_nothing_is_no_traceback(answer: str, redirection: str) -> None:
    done = shell(f"{sys.executable} -m {answer} {redirection}")
    assert "Traceback" not in done.stderr
    if "--help" not in answer:  # argparse writes its own help
        assert "Exception" not in done.stderr
        assert done.returncode == (1 if "full" in redirection else 0)


@pytest.mark.parametrize(
    ("error", "code"),
    [(UsageError("no such thing"), 2), (MachineError("no such thing"), 3), (EnvError("no such thing"), 1)],
)
def test_an_error_for_a_person_is_one_sentence_and_its_exit_code(error, code, capsys) -> None:
    def body() -> int:
        raise error

    assert framed("tool", body, SAID) == code
    assert capsys.readouterr().err == "tool: no such thing\n"


def test_an_interruption_is_130(capsys) -> None:
    def body() -> int:
        raise KeyboardInterrupt

    assert framed("tool", body, SAID) == 130
    assert capsys.readouterr().err == "tool: interrupted\n"


def test_a_fault_of_ours_shows_itself() -> None:
    def body() -> int:
        return len(Path("/no/such/file").read_text())

    with pytest.raises(FileNotFoundError):
        framed("tool", body, SAID)
