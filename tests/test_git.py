"""Which commit ran: a fact where git tells, null and a reason where it does not."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from env import git
from env.errors import EnvError

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A repository `a b` with one commit, and no settings but its own."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "a b"
    (folder / "env").mkdir(parents=True)
    (folder / "env" / "git.py").write_text("pass\n")
    run(folder, "init", "-q")
    run(folder, "add", ".")
    run(folder, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-qm", "one")
    return folder


def run(folder, *arguments):
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout


def test_a_clean_repository_has_a_commit_and_is_not_dirty(repository):
    facts = git.commit_facts(repository)
    assert facts == {"commit": run(repository, "rev-parse", "HEAD").strip(), "dirty": False, "reason": ""}


def test_a_changed_file_makes_it_dirty_and_a_new_one_does_not(repository):
    (repository / "new.json").write_text("{}")
    assert git.commit_facts(repository)["dirty"] is False
    (repository / "env" / "git.py").write_text("changed\n")
    assert git.commit_facts(repository)["dirty"] is True


def test_case_E6_no_repository_is_null_and_a_reason(tmp_path):
    facts = git.commit_facts(tmp_path)
    assert (facts["commit"], facts["dirty"]) == (None, None)
    assert facts["reason"] == "not a git repository"


def test_case_E6_a_repository_without_a_commit_is_null_and_a_reason(tmp_path):
    run(tmp_path, "init", "-q")
    facts = git.commit_facts(tmp_path)
    assert (facts["commit"], facts["dirty"]) == (None, None)
    assert "no commit" in facts["reason"]


def test_case_E6_without_git_it_is_null_and_a_reason(repository):
    assert git.commit_facts(repository, git="no-such-git")["reason"] == "git is not installed"


def test_case_E6_dubious_ownership_is_null_and_a_reason_without_the_path(repository, monkeypatch):
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    facts = git.commit_facts(repository)
    assert (facts["commit"], facts["dirty"]) == (None, None)
    assert "another user" in facts["reason"]
    assert str(repository) not in facts["reason"]


def test_case_E6_a_detached_and_shallow_clone_has_a_commit(repository, tmp_path):
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repository}", str(clone)], check=True)
    run(clone, "checkout", "-q", "--detach")
    assert git.commit_facts(clone)["commit"] == run(repository, "rev-parse", "HEAD").strip()


def test_the_commit_of_another_project_around_ours_is_not_ours(repository):
    inside = repository / ".venv" / "site-packages"
    inside.mkdir(parents=True)
    facts = git.commit_facts(inside)
    assert facts["commit"] is None
    assert "not this project's" in facts["reason"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_case_E6_under_sudo_the_answer_is_that_of_the_owner(repository):
    for folder, _, files in os.walk(repository.parent):
        os.chown(folder, 1234, 1234)
        for name in files:
            os.chown(Path(folder, name), 1234, 1234)
    for folder in repository.parents:
        if folder.stat().st_uid == 0 and folder.is_relative_to(repository.parents[2]):
            folder.chmod(0o755)
    facts = git.commit_facts(repository)
    assert facts["commit"] or "another user" not in facts["reason"]


def test_what_is_not_committed_is_named_from_the_folder_that_is_asked(repository):
    folder = repository / "env"
    assert git.uncommitted(folder) == []
    (folder / "new.py").write_text("new\n")
    assert git.uncommitted(folder) == []  # git does not have it
    run(repository, "add", ".")
    (folder / "git.py").write_text("changed\n")
    (repository / "above.py").write_text("x\n")
    run(repository, "add", "above.py")
    assert git.uncommitted(folder) == ["git.py", "new.py"]


def test_of_a_repository_without_a_commit_nothing_is_committed(tmp_path):
    run(tmp_path, "init", "-q")
    (tmp_path / "x").write_text("x")
    run(tmp_path, "add", "x")
    assert git.uncommitted(tmp_path) == ["x"]


def test_outside_a_repository_there_is_no_answer_and_without_git_inside_one_an_error(repository, tmp_path):
    assert git.uncommitted(tmp_path) is None
    with pytest.raises(EnvError, match="not installed"):
        git.uncommitted(repository, git="/no/such/git")


def test_case_F4_the_source_hash_follows_the_code_and_not_its_place(tmp_path):
    for name in ("one", "two"):
        for package in git.MEASURED:
            (tmp_path / name / package).mkdir(parents=True)
        (tmp_path / name / "fastrnns" / "x.py").write_text("1\n")
    first = git.source_sha256(tmp_path / "one")
    assert first == git.source_sha256(tmp_path / "two")
    (tmp_path / "two" / "fastrnns" / "x.py").write_text("2\n")
    assert first != git.source_sha256(tmp_path / "two")
    assert git.source_sha256(tmp_path) is None
