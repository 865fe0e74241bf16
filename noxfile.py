#!/usr/bin/env -S python3 -m nox -f
# /// script
# dependencies = ["nox>=2024.10.9"]
# ///
"""Sessions: setup_env restore_env verify bench profile compare calibrate reproduce matrix fleet report lint tests.

`nox --list` says what each does.

All sessions share one environment (`.nox/shared-<python>`): PyTorch takes gigabytes, so it is installed
once, and a session whose requirements are already met starts at once. `nox --no-venv` uses the Python that
runs nox instead, as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import nox
import nox.project

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).parent.resolve()
KEPT = ["--archive", str(ROOT / "results")]  # what sessions add to a command
ARCHIVED = ["--env", "apply", *KEPT]
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")

# A command that holds the machine puts it back when it is interrupted; that takes longer than nox's 0.3 s.
RESTORE_SECONDS = 60


@nox.session(venv_backend="none", default=False)
def setup_env(session: nox.Session) -> None:
    """Bring the machine into the stable state and keep it there until restore_env or a reboot."""
    python(session, "env", "apply", *session.posargs, needs=["env"])


@nox.session(venv_backend="none", default=False)
def restore_env(session: nox.Session) -> None:
    """Put the machine back as it was before setup_env, or after a run that was killed."""
    python(session, "env", "restore", *session.posargs, needs=["env"])


@nox.session(venv_backend="none", default=False)
def verify(session: nox.Session) -> None:
    """Check the models' outputs and gradients (all models, unless `-- --rnns NAME ...`)."""
    named = {"--rnns", "--cnns", "--variable-lstms", "--variable_lstms"} & set(session.posargs)
    everything = [] if named else ["--all"]
    python(session, "fastrnns.test", *ARCHIVED, *everything, *session.posargs)


@nox.session(venv_backend="none", default=False)
def bench(session: nox.Session) -> None:
    """Measure the models and archive the record, e.g. `nox -s bench -- --rnns cudnn jit`."""
    python(session, "fastrnns.bench", *ARCHIVED, *session.posargs)


@nox.session(venv_backend="none", default=False)
def profile(session: nox.Session) -> None:
    """Say where the time goes, and archive it with its trace (`nox -s profile -- --rnns NAME ...`)."""
    python(session, "fastrnns.profile", *ARCHIVED, *session.posargs)


@nox.session(venv_backend="none", default=False)
def compare(session: nox.Session) -> None:
    """Say model by model whether a record is faster or slower than another (`-- BASE NEW`)."""
    python(session, "fastrnns.compare", *KEPT, *session.posargs)


@nox.session(venv_backend="none", default=False)
def calibrate(session: nox.Session) -> None:
    """Compare the machine with itself, and keep the noise floor for `compare`."""
    python(session, "fastrnns.calibrate", *ARCHIVED, *session.posargs)


@nox.session(venv_backend="none", default=False)
def reproduce(session: nox.Session) -> None:
    """Run what a record ran, with its software, and say whether it holds (`-- RECORD`)."""
    python(session, "fastrnns.reproduce", *KEPT, *session.posargs)


@nox.session(venv_backend="none", default=False)
def matrix(session: nox.Session) -> None:
    """Measure builds of PyTorch in turn, and compare (`-- --torch 2.13.0 2.14.1 -- --rnns NAME ...`)."""
    own, bench_words = before_and_after(session.posargs)
    python(session, "fastrnns.matrix", *own, "--", *ARCHIVED, *bench_words)


@nox.session(venv_backend="none", default=False)
def fleet(session: nox.Session) -> None:
    """Run the same bench on many nodes through Slurm (`-- --partition NAME -- --rnns NAME ...`)."""
    own, bench_words = before_and_after(session.posargs)
    python(
        session,
        "fastrnns.fleet",
        *KEPT,
        *own,
        "--",
        "--env",
        "apply",
        *bench_words,
        needs=["project", "fleet"],
    )


@nox.session(venv_backend="none", default=False)
def report(session: nox.Session) -> None:
    """Lay a record out as one HTML file (`-- RECORD`), two side by side, or a history (`-- --history`)."""
    python(session, "fastrnns.archive", "report", *KEPT, *session.posargs)


@nox.session(venv_backend="none", default=False)
def docs(session: nox.Session) -> None:
    """Write the reference from the code and build the site into docs/_build."""
    python(session, "docs.reference", needs=["project", "docs"])
    words = ("-W", "--keep-going", "-b", "html", str(ROOT / "docs"), str(ROOT / "docs/_build"))
    python(session, "sphinx", *words, *session.posargs, needs=["project", "docs"])


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Run ruff (rules and format) and mypy."""
    python(session, "ruff", "check", ".", needs=["lint", "project"])
    python(session, "ruff", "format", "--check", ".", needs=["lint", "project"])
    python(session, "mypy", needs=["lint", "project"])


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the tests; arguments go to pytest."""
    python(session, "pytest", *session.posargs, needs=["project", "archive", "fleet", "test"])


def before_and_after(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """A command's own words, and those of bench after the first `--`."""
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


# The shared environment.


def python(session: nox.Session, module: str, *args: str, needs: Sequence[str] = ("project",)) -> None:
    """Run `python -m module args` in the shared environment, from the project's folder."""
    interpreter = shared_environment(session, needs)
    session.run(
        str(interpreter), "-m", module, *args,
        external=True,
        env={"FASTRNNS_FOLLOW_PARENT": "1"},
        interrupt_timeout=RESTORE_SECONDS,
        terminate_timeout=RESTORE_SECONDS,
    )  # fmt: skip


def shared_environment(session: nox.Session, needs: Sequence[str]) -> Path:
    """The interpreter of the shared environment, with what `needs` names installed in it.

    `project` is the project itself, editable, so that the measured code is the edited code; any other name is
    an optional dependency or a dependency group of pyproject.toml. What is already there is not installed
    again: the stamp of a need is the text of its requirements.
    """
    if {"--no-venv", "none"} & set(sys.argv):
        return present_environment(session)
    base = interpreter_for(session)
    name = subprocess.run(
        [base, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    folder = ROOT / ".nox" / f"shared-{name}"
    interpreter = folder / "bin" / "python"
    folder.parent.mkdir(exist_ok=True)
    with exclusively(folder.parent / f"{folder.name}.lock"):
        stamps = folder / "installed"
        missing = [need for need in needs if stamp(stamps, need) != requirements_digest(need)]
        if missing and not works(interpreter):
            session.run_install(
                sys.executable, "-m", "virtualenv", "--clear", "--python", base, str(folder), external=True
            )
        for need in missing:
            session.run_install(
                str(interpreter), "-m", "pip", "install", *install_arguments(need), external=True
            )
            stamps.mkdir(exist_ok=True)
            (stamps / need).write_text(requirements_digest(need))
    return interpreter


def present_environment(session: nox.Session) -> Path:
    """The interpreter that runs nox, when it was asked for by --no-venv; it must have the packages itself."""
    wanted = ("torch", "torchvision", "numpy", "scipy", "rich", "jsonschema", "psutil", "cpuinfo")
    lacking = [package for package in wanted if importlib.util.find_spec(package) is None]
    if lacking:
        session.error(
            f"--no-venv uses the Python that runs nox, which lacks {', '.join(lacking)}: "
            f"run `{Path(sys.executable).name} -m pip install -e .` there, or leave --no-venv out."
        )
    return Path(sys.executable)


def interpreter_for(session: nox.Session) -> str:
    """The base interpreter: the one `--force-python` names, else the one that runs nox."""
    if not isinstance(session.python, str):
        return sys.executable
    named = shutil.which(session.python) or shutil.which(f"python{session.python}")
    if named is None:
        session.error(f"Python {session.python} is not on PATH: install it, or leave --force-python out.")
    return str(named)


def install_arguments(need: str) -> list[str]:
    """The pip arguments that satisfy one need."""
    if need == "project":
        return ["--editable", str(ROOT)]
    if need in PROJECT["project"]["optional-dependencies"]:
        return list(PROJECT["project"]["optional-dependencies"][need])
    return list(nox.project.dependency_groups(PROJECT, need))


def requirements_digest(need: str) -> str:
    """A digest of the text that decides what a need installs."""
    wanted: list[object] = [*install_arguments(need)]
    if need == "project":
        wanted += [PROJECT["project"]["dependencies"], PROJECT["build-system"], PROJECT["tool"]["setuptools"]]
    return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()


def stamp(stamps: Path, need: str) -> str | None:
    """What was installed for a need, or None."""
    path = stamps / need
    return path.read_text() if path.exists() else None


def works(interpreter: Path) -> bool:
    """Whether an interpreter with pip stands there (an installation may have been interrupted)."""
    probe = [str(interpreter), "-m", "pip", "--version"]
    with contextlib.suppress(OSError):
        return subprocess.run(probe, capture_output=True, check=False).returncode == 0
    return False


@contextlib.contextmanager
def exclusively(lock: Path) -> Iterator[None]:
    """Hold a file lock, so that two nox at once do not build the environment together."""
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    nox.main()
