"""The documentation: the tutorial's commands run, the reference is what the code says, the site builds without a warning."""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted(path for path in DOCS.glob("*.md"))


def test_every_command_of_the_tutorial_runs_in_its_order(tmp_path):
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    commands = re.findall(r"^\$ (.+)$", text, flags=re.MULTILINE)
    assert len(commands) == 8
    for command in commands:
        words = shlex.split(command)
        assert words[0] == "python"
        done = subprocess.run(
            [sys.executable, *words[1:]],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )
        expected = {0}
        if "--against" in words or "fastrnns.compare" in words:
            expected |= {1}  # a busy machine may look slower,
            if done.returncode == 3 and "disturbed" in done.stdout + done.stderr:
                pytest.skip(f"this machine is too busy to compare on: {done.stderr.strip()}")
        assert done.returncode in expected, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr
    assert (tmp_path / "first.html").stat().st_size > 10_000


def test_the_reference_is_what_the_code_says():
    done = subprocess.run(
        [sys.executable, "docs/reference.py", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_reference_is_noticed(tmp_path, monkeypatch, capsys):
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    reference = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reference)
    monkeypatch.setattr(reference, "DOCS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 1
    assert "stale: reference-commands.md" in capsys.readouterr().err
    monkeypatch.setattr(sys, "argv", ["reference.py"])
    assert reference.main() == 0
    (tmp_path / "reference-record.md").write_text("old")
    monkeypatch.setattr(sys, "argv", ["reference.py", "--check"])
    assert reference.main() == 1


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_flag_and_module_that_a_page_names_exists(page):
    text = page.read_text(encoding="utf-8")
    known = (DOCS / "reference-commands.md").read_text(encoding="utf-8")
    for module in set(re.findall(r"python -m ((?:fastrnns|env|tests)[\w.]*)", text)):
        assert importlib.util.find_spec(module) is not None, module
    for line in re.findall(r"python -m (?:fastrnns|env)\b[^`\n]*", text):
        for flag in re.findall(r"(?<=\s)--[a-zA-Z][\w-]*", line.partition(" -- ")[0]):
            assert f"`{flag}" in known or f", {flag}" in known, f"{page.name}: {flag}"


def test_the_site_builds_and_no_page_is_left_out(tmp_path):
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for page in PAGES:
        assert (tmp_path / f"{page.stem}.html").exists()
