"""The sessions: what they are called, what they pass on, and how the shared environment is kept."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import nox.registry
import pytest

PROJECT_ROOT = Path(__file__).parent.parent


def run_nox(*args: str, cwd: Path = PROJECT_ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "nox", *args],
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **environment},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
    )


@pytest.fixture
def noxfile() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noxfile_under_test", PROJECT_ROOT / "noxfile.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    nox.registry.reset()
    spec.loader.exec_module(module)
    return module


class FakeSession:
    """Records what a session would run."""

    def __init__(self, posargs: list[str] | None = None, python: str | bool | None = None) -> None:
        self.posargs = posargs or []
        self.python = python
        self.installed: list[tuple[str, ...]] = []

    def run_install(self, *args: str, **_: Any) -> None:
        self.installed.append(args)
        if "virtualenv" in args:
            interpreter = Path(args[-1]) / "bin" / "python"
            interpreter.parent.mkdir(parents=True, exist_ok=True)
            interpreter.symlink_to(sys.executable)

    def error(self, message: str) -> None:
        raise RuntimeError(message)


def test_a_bare_nox_runs_lint_and_tests_and_never_touches_the_machine() -> None:
    listing = run_nox("--list").stdout
    chosen = set(re.findall(r"^\* (\w+)", listing, re.MULTILINE))
    assert chosen == {"lint", "tests"}
    others = set(re.findall(r"^- (\w+)", listing, re.MULTILINE))
    assert {"setup_env", "restore_env", "verify", "bench"} <= others


def test_every_session_says_in_one_line_what_it_does() -> None:
    lines = re.findall(r"^[*-] (\w+)(.*)$", run_nox("--list").stdout, re.MULTILINE)
    assert lines
    assert [name for name, help_text in lines if "->" not in help_text] == []


@pytest.mark.parametrize(
    "args", [("-s", "bench", "--rnns", "jit"), ("-s", "bench", "jit"), ("bench",)], ids=" ".join
)
def test_case_F1_arguments_without_the_dashes_are_refused(args: tuple[str, ...]) -> None:
    assert run_nox(*args).returncode != 0


def test_case_F1_a_bad_argument_after_the_dashes_is_refused_before_anything_is_touched() -> None:
    done = run_nox("--no-venv", "-s", "bench", "--", "--rnns", "no_such_model")
    assert done.returncode == 1  # nox flattens every failure of a command to 1
    assert "no_such_model" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_case_F3_a_missing_interpreter_is_an_error_not_a_skip() -> None:
    done = run_nox("-s", "tests", "--force-python", "3.99")
    assert done.returncode != 0
    assert "3.99" in done.stderr + done.stdout


def test_case_F4_no_venv_says_what_the_present_python_lacks(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else object())
    with pytest.raises(RuntimeError, match="lacks torch"):
        noxfile.present_environment(FakeSession())


def test_case_F4_the_project_is_installed_editable_so_that_edited_code_is_measured(
    noxfile: ModuleType,
) -> None:
    assert noxfile.install_arguments("project")[0] == "--editable"


@pytest.fixture
def elsewhere(noxfile: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The noxfile with its environments below a folder of the test, and a Python that always works."""
    monkeypatch.setattr(noxfile, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["nox"])
    return noxfile


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        (["--torch", "a", "b", "--", "--rnns", "jit"], ["--torch", "a", "b", "--"]),
        (["--torch", "a", "b"], ["--torch", "a", "b", "--"]),
    ],
)
def test_the_matrix_adds_what_sessions_add_to_the_words_of_bench(
    noxfile: ModuleType, monkeypatch: pytest.MonkeyPatch, given: list[str], passed: list[str]
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(noxfile, "python", lambda session, module, *words: seen.extend([module, *words]))
    noxfile.matrix.func(FakeSession(given))
    bench = given[given.index("--") + 1 :] if "--" in given else []
    assert seen == ["fastrnns.matrix", *passed, *noxfile.ARCHIVED, *bench]


def test_what_is_installed_already_is_not_installed_again(elsewhere: ModuleType) -> None:
    first = FakeSession()
    interpreter = elsewhere.shared_environment(first, ["project", "test"])
    assert [args[1:4] for args in first.installed] == [
        ("-m", "virtualenv", "--clear"),
        ("-m", "pip", "install"),
        ("-m", "pip", "install"),
    ]
    second = FakeSession()
    assert elsewhere.shared_environment(second, ["project", "test"]) == interpreter
    assert second.installed == []


def test_all_sessions_share_one_environment(elsewhere: ModuleType) -> None:
    session = FakeSession()
    folders = {elsewhere.shared_environment(session, [need]).parent for need in ("env", "project", "test")}
    assert len(folders) == 1
    assert sum("virtualenv" in args for args in session.installed) == 1


def test_setup_env_does_not_install_torch(noxfile: ModuleType) -> None:
    assert not [package for package in noxfile.install_arguments("env") if package.startswith("torch")]


def test_a_changed_requirement_is_installed(elsewhere: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere.shared_environment(FakeSession(), ["test"])
    groups = {**elsewhere.PROJECT["dependency-groups"], "test": ["pytest>=8.1"]}
    monkeypatch.setattr(elsewhere, "PROJECT", {**elsewhere.PROJECT, "dependency-groups": groups})
    session = FakeSession()
    elsewhere.shared_environment(session, ["test"])
    assert session.installed[-1][-1] == "pytest>=8.1"


def test_an_interrupted_installation_is_finished_by_the_next_session(elsewhere: ModuleType) -> None:
    class Interrupted(FakeSession):
        def run_install(self, *args: str, **_: Any) -> None:
            super().run_install(*args)
            if "pip" in args:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        elsewhere.shared_environment(Interrupted(), ["test"])
    session = FakeSession()
    elsewhere.shared_environment(session, ["test"])
    assert any("pip" in args for args in session.installed)


def test_case_F6_a_project_in_a_folder_with_spaces_works(tmp_path: Path) -> None:
    project = tmp_path / ("a b " + "x" * 120)
    project.mkdir()
    for name in ("noxfile.py", "pyproject.toml"):
        shutil.copy(PROJECT_ROOT / name, project / name)
    for name in ("fastrnns", "env"):
        shutil.copytree(PROJECT_ROOT / name, project / name, ignore=shutil.ignore_patterns("__pycache__"))
    done = run_nox("--no-venv", "-s", "bench", "--", "--list", cwd=project)
    assert done.returncode == 0, done.stderr
    assert "jit_premul_bias" in done.stdout
