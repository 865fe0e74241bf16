"""The matrix: what may be a version, what is refused beforehand, how environments are made once, what is answered."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_bisect import record

from fastrnns import environments, installer
from fastrnns.archive import compare, history
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError
from fastrnns.installer import InstallError, Recipe
from fastrnns.matrix import __main__ as command
from fastrnns.matrix import cells, flags, interpreters, offered, table, versions
from fastrnns.matrix.interpreters import Interpreter

ROOT = Path(__file__).parent.parent
HERE = Interpreter(sys.executable, "3.11.7")
TINY = ["--rnns", "cudnn", "--seqLength", "3", "--inputSize", "8", "--hiddenSize", "8", "--miniBatch", "2"]
QUICK = [*TINY, "--device", "cpu", "--env", "ignore", "--warmup", "2", "--nloops", "8"]
OFFERED = ["2.15.0.dev20261101", "2.14.1", "2.14.0", "2.13.0+cpu", "2.13.0", "2.12.1", "2.11.0"]


def script(path: Path, body: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def environment(folder: Path, torch: str | None = None) -> Path:
    """An environment that is there: this one under another name, or a stand-in that says what it holds."""
    body = f'exec {sys.executable} "$@"'
    if torch is not None:
        said = {"torch": torch, "python": {"version": "3.11.7"}, "packages": {"torch": torch}}
        body = f"echo '{json.dumps(said)}'"
    script(folder / "bin" / "python", body)
    return folder


def wheel(folder: Path, name: str = "torch-2.13.7+mine-py3-none-any.whl", content: str = "x = 1") -> Path:
    """A wheel that pip can install, of a torch of one file."""
    folder.mkdir(parents=True, exist_ok=True)
    version, path = name.split("-")[1], folder / name
    said = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    with zipfile.ZipFile(path, "w") as packed:
        packed.writestr("torch/__init__.py", f"__version__ = '{version}'\n{content}\n")
        packed.writestr(f"torch-{version}.dist-info/METADATA", said)
        packed.writestr(f"torch-{version}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        packed.writestr(f"torch-{version}.dist-info/RECORD", "")
    return path


# What may be a version.


def test_a_release_a_wheel_and_an_environment_are_versions(tmp_path):
    packed, there = wheel(tmp_path), environment(tmp_path / "patched")
    release, of_wheel, of_folder = versions.distinct(["2.15.0.dev20261101", str(packed), str(there)])
    assert (release.kind, release.label, release.source) == (
        "release",
        "2.15.0.dev20261101",
        "2.15.0.dev20261101",
    )
    assert (of_wheel.kind, of_wheel.label) == ("wheel", "2.13.7+mine")
    assert of_wheel.digest == versions.content(packed)
    assert (of_folder.kind, of_folder.label) == ("environment", "patched")
    assert of_folder.source == str(there / "bin" / "python")


def test_a_folder_that_is_named_as_a_release_is_given_with_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    environment(tmp_path / "2.14.1")
    assert versions.parse("2.14.1").kind == "release"
    assert versions.parse("./2.14.1").kind == "environment"


@pytest.mark.parametrize(
    ("named", "said"),
    [
        (">=2.13", "is no version; give one release as 2.14.1"),
        ("latest", "is no version"),
        ("no/such/folder", "there is no such file or folder"),
        ("missing.whl", "there is no such file"),
    ],
)
def test_what_is_no_version_is_refused_with_what_is(named, said):
    with pytest.raises(UsageError, match=said):
        versions.parse(named)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("torch-2.14.1-cp311-cp311-linux_x86_64.whl", "is torn, or no wheel; fetch it again"),
        ("torch.whl", "do not rename the file"),
        ("numpy-2.0-py3-none-any.whl", "is a wheel of numpy; give one of torch"),
    ],
)
def test_a_wheel_that_is_none_is_refused(tmp_path, name, said):
    (tmp_path / name).write_bytes(b"PK torn")
    with pytest.raises(UsageError, match=said):
        versions.parse(str(tmp_path / name))


def test_two_builds_of_one_number_are_told_apart_and_one_named_twice_is_refused(tmp_path):
    one, other = wheel(tmp_path / "a"), wheel(tmp_path / "b", content="x = 2")
    labels = [version.label for version in versions.distinct([str(one), str(other)])]
    assert len(set(labels)) == 2
    assert all(label.startswith("2.13.7+mine ") for label in labels)
    shutil.copy(one, tmp_path / one.name)
    with pytest.raises(UsageError, match="twice"):
        versions.distinct([str(one), str(tmp_path / one.name)])
    first, second = environment(tmp_path / "x" / "env"), environment(tmp_path / "y" / "env")
    labels = [version.label for version in versions.distinct([str(first), str(second)])]
    assert labels == [str(first), str(second)]


def test_a_version_is_found_by_its_label_or_as_it_was_named(tmp_path):
    packed = wheel(tmp_path)
    chosen = versions.distinct(["2.13.0", str(packed)])
    assert versions.find(chosen, "2.13.7+mine", "--bisect") == 1
    assert versions.find(chosen, str(packed), "--bisect") == 1
    with pytest.raises(
        UsageError, match=r"--bisect 2.14.0 is none of the versions; there are: 2.13.0, 2.13.7\+mine"
    ):
        versions.find(chosen, "2.14.0", "--bisect")


def test_the_releases_between_are_in_order_once_each_and_final_unless_an_end_is_not():
    assert versions.between("2.12.1", "2.14.1", OFFERED) == ["2.12.1", "2.13.0", "2.14.0", "2.14.1"]
    assert versions.between("2.14.0", "2.15.0.dev20261101", OFFERED) == [
        "2.14.0",
        "2.14.1",
        "2.15.0.dev20261101",
    ]
    assert versions.between("2.11.0", "2.12.1", [*OFFERED, "2.12.0rc1"]) == ["2.11.0", "2.12.1"]


# What the index offers.


def test_the_list_of_pip_is_read_and_what_is_not_in_it_is_refused_with_what_is_near():
    assert offered.listed("torch (2.14.1)\nAvailable versions: 2.14.1, 2.13.0+cpu\n  INSTALLED: 2.14.1\n") == [
        "2.14.1", "2.13.0+cpu",
    ]  # fmt: skip
    assert offered.listed("ERROR: nothing") == []
    offered.refuse_missing(["2.13.0", "2.15.0.dev20261101"], OFFERED, HERE)
    offered.refuse_missing(["2.13.0"], ["2.13.0+cpu"], HERE)
    with pytest.raises(
        UsageError,
        match=r"torch 2.14.2 is not offered for Python 3.11; there are, among others, .*2.14.1.*: name one",
    ):
        offered.refuse_missing(["2.14.2"], OFFERED, HERE)


def test_without_an_index_it_is_said_what_can_be_done(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sys, "executable", script(tmp_path / "python", "echo 'ERROR: No matching' >&2; exit 1")
    )
    with pytest.raises(
        UsageError, match=r"no package index offers torch .*No matching\); connect to one, or give"
    ):
        offered.releases(HERE)


def test_without_a_pip_nothing_is_known_beforehand_and_a_bisection_needs_its_list(tmp_path, monkeypatch):
    with monkeypatch.context() as bare:
        told = "echo 'python: No module named pip' >&2; exit 1"
        bare.setattr(sys, "executable", script(tmp_path / "python", told))
        assert offered.releases(HERE) is None
    monkeypatch.setattr(offered, "releases", lambda python, index=(): None)
    assert len(options(tmp_path, "--torch", "2.13.0", "2.14.1").cells) == 2
    with pytest.raises(UsageError, match="install pip, or list them with --torch"):
        options(tmp_path, "--bisect", "2.13.0", "2.14.1")


# Interpreters.


def test_an_interpreter_is_asked_who_it_is(tmp_path):
    assert interpreters.resolve(None).path == sys.executable
    for body, said in (
        ("echo 'pyenv: python3.12: command not found' >&2; exit 127", "command not found"),
        ("echo 3.9.18", "runs on 3.10 and later"),
    ):
        with pytest.raises(UsageError, match=said):
            interpreters.resolve(script(tmp_path / "python", body))
    found = interpreters.resolve(script(tmp_path / "python", "echo 3.12.1"))
    assert (found.version, found.minor) == ("3.12.1", "3.12")


def test_an_interpreter_that_is_not_there_or_another_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match=r"--python 3.12: there is none on the PATH"):
        interpreters.resolve("3.12")
    script(tmp_path / "python3.12", "echo 3.13.0")
    with pytest.raises(UsageError, match=r"is Python 3.13.0; give the path of the right one"):
        interpreters.resolve("3.12")


# Environments.


def test_a_cell_is_a_version_in_a_python_and_an_environment_has_its_own(tmp_path):
    chosen = versions.distinct(["2.13.0", str(wheel(tmp_path)), str(environment(tmp_path / "mine"))])
    found = cells.cells(chosen, [HERE, Interpreter("/opt/python3.12", "3.12.1")], ("numpy",))
    assert [cell.label for cell in found] == [
        "2.13.0 on Python 3.11", "2.13.0 on Python 3.12",
        "2.13.7+mine on Python 3.11", "2.13.7+mine on Python 3.12", "mine",
    ]  # fmt: skip
    assert found[-1].recipe is None
    assert found[1].recipe.torch == "torch==2.13.0"
    assert len({cell.recipe.name for cell in found if cell.recipe}) == 4
    found = cells.cells(chosen[:1], [HERE, Interpreter("/opt/python3.11", "3.11.9")], ())
    assert [cell.label for cell in found] == ["2.13.0 on Python 3.11.7", "2.13.0 on Python 3.11.9"]


def test_a_folder_is_named_by_python_torch_content_and_what_is_beside(tmp_path):
    (one,), (other,) = (
        cells.cells(versions.distinct([str(wheel(tmp_path / text, content=text))]), [HERE], ("numpy",))
        for text in ("a = 1", "a = 2")
    )
    assert one.recipe.name != other.recipe.name
    assert one.recipe.name.startswith("python3.11.7-torch2.13.7+mine-")
    plain = Recipe("python3", "3.11.7", "torch==2.13.0", "2.13.0", ("numpy",))
    assert plain.name != Recipe("python3", "3.11.7", "torch==2.13.0", "2.13.0", ("numpy", "torchvision")).name
    assert (
        plain.name != Recipe("python3", "3.11.7", "torch==2.13.0", "2.13.0", ("numpy",), ("https://x",)).name
    )


def test_a_wheel_for_another_python_is_refused(tmp_path):
    path = wheel(tmp_path, "torch-2.15.0-cp312-cp312-manylinux_2_17_x86_64.whl")
    with pytest.raises(UsageError, match=r"is not for Python 3.11 on this machine; give --python"):
        cells.cells(versions.distinct([str(path)]), [HERE], ())
    assert cells.suits("torch-2.15.0-py3-none-any.whl", HERE)


def test_uv_makes_it_where_it_is_used_and_venv_and_pip_elsewhere(tmp_path):
    recipe = Recipe("/opt/python3", "3.11.7", "torch==2.13.0", "2.13.0", ("numpy",), ("https://nightly",))
    folder = tmp_path / "env"
    python = str(folder / "bin" / "python")
    made, installed = installer.commands(recipe, folder, None)
    assert made == ["/opt/python3", "-m", "venv", str(folder)]
    assert installed[:4] == [python, "-m", "pip", "install"]
    assert installed[-4:] == ["torch==2.13.0", "numpy", "--extra-index-url", "https://nightly"]
    made, installed = installer.commands(recipe, folder, "/opt/uv")
    assert made == ["/opt/uv", "venv", "--quiet", "--python", "/opt/python3", str(folder)]
    assert installed[:6] == ["/opt/uv", "pip", "install", "--quiet", "--python", python]


def base(folder: Path, install: str = "exit 0") -> str:
    """A stand-in for an interpreter: its venv holds one whose pip does what is asked here."""
    inner = folder / "inner"
    script(inner, install)
    return script(
        folder / "base", f'echo made >> {folder}/log; mkdir -p "$3/bin"; cp {inner} "$3/bin/python"'
    )


def test_an_environment_is_made_once_and_used_again(tmp_path):
    recipe = Recipe(base(tmp_path), "3.11.7", "torch==2.13.0", "2.13.0")
    assert installer.kept(recipe, tmp_path / "cache") is None
    first = installer.make(recipe, tmp_path / "cache")
    assert installer.make(recipe, tmp_path / "cache") == first == installer.kept(recipe, tmp_path / "cache")
    assert (tmp_path / "log").read_text() == "made\n"
    Path(first).unlink()  # the Python that it was made from is gone
    installer.make(recipe, tmp_path / "cache")
    assert (tmp_path / "log").read_text() == "made\n" * 2


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (
            "ERROR: Could not find it\nERROR: No matching distribution found for torch==9",
            "No matching distribution",
        ),
        (
            "The user requested torch\nThe user requested (constraint) torch<=2\nERROR: ResolutionImpossible: see",
            r"see; The user requested torch; The user requested \(constraint\) torch<=2",
        ),
        ("OSError: [Errno 28] No space left on device", "no space is left on the device; make room"),
        ("", "no reason given"),
    ],
)
def test_half_an_environment_is_removed_and_the_installer_s_last_words_are_kept(tmp_path, said, reason):
    recipe = Recipe(base(tmp_path, f'echo "{said}" >&2; exit 1'), "3.11.7", "torch==9", "9")
    with pytest.raises(InstallError, match=reason):
        installer.make(recipe, tmp_path / "cache")
    assert not (tmp_path / "cache" / recipe.name).exists()


def test_an_interruption_leaves_no_half_environment_and_the_next_call_makes_it(tmp_path, monkeypatch):
    recipe = Recipe(base(tmp_path), "3.11.7", "torch==2.13.0", "2.13.0")
    run = subprocess.run

    def interrupted(words, **how):
        if "pip" in words:
            raise KeyboardInterrupt
        return run(words, **how)

    with monkeypatch.context() as patched:
        patched.setattr(installer.subprocess, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            installer.make(recipe, tmp_path / "cache")
    assert not (tmp_path / "cache" / recipe.name).exists()
    assert Path(installer.make(recipe, tmp_path / "cache")).exists()


def test_a_disk_that_is_too_full_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    packed = wheel(tmp_path)
    wanted = cells.cells(versions.distinct(["2.13.0", "2.14.1", str(packed)]), [HERE], ())
    missing = cells.to_make(wanted, tmp_path / "cache")
    assert missing == wanted
    monkeypatch.setattr(cells.shutil, "disk_usage", lambda _: SimpleNamespace(free=12_000_000_000))
    with pytest.raises(
        UsageError, match=r"3 environments to make take about 13 GB, .* has 12.0 GB free; make room"
    ):
        cells.refuse_full_disk(missing, tmp_path / "cache")
    cells.refuse_full_disk(missing[1:], tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_one_that_cannot_be_made_or_imported_is_named_and_the_others_are_there(tmp_path):
    said = {"torch": "2.14.1", "python": {"version": "3.11.7"}, "packages": {}}
    good = Interpreter(base(tmp_path / "good", f"echo '{json.dumps(said)}'"), "3.11.7")
    bad = Interpreter(base(tmp_path / "bad", 'echo "ERROR: no wheel" >&2; exit 1'), "3.12.1")
    mute = Interpreter(
        base(tmp_path / "mute", '[ "$1" = -m ] || { echo "ImportError: libx" >&2; exit 1; }'), "3.13.0"
    )
    told: list[str] = []
    maker = cells.Maker(tmp_path / "cache", None, say=told.append)
    found = cells.obtain(cells.cells(versions.distinct(["2.14.1"]), [good, bad, mute], ()), maker)
    assert str(found["2.14.1 on Python 3.11"]) == "torch 2.14.1 on Python 3.11.7"
    assert found["2.14.1 on Python 3.12"] == "it could not be installed: no wheel"
    assert found["2.14.1 on Python 3.13"] == "it cannot import torch (ImportError: libx); install torch there"
    assert len(told) == 3


@pytest.mark.slow
def test_a_local_wheel_is_really_installed_into_an_environment_of_its_own(tmp_path):
    chosen = versions.distinct([str(wheel(tmp_path))])
    (cell,) = cells.cells(chosen, [interpreters.resolve(None)], ())
    found = cells.obtain([cell], cells.Maker(tmp_path / "cache", None))["2.13.7+mine"]
    assert isinstance(found, environments.Environment), found
    assert found.torch == "2.13.7+mine"
    assert found.facts["packages"]["torch"] == "2.13.7+mine"


# The command line.


def options(tmp_path, *own: str, bench: list[str] = QUICK):
    words = ["--cache", str(tmp_path / "cache"), *own]
    return flags.matrix_options(words, flags.parser().parse_args(words), bench)


@pytest.fixture
def index(monkeypatch):
    monkeypatch.setattr(offered, "releases", lambda python, index=(): list(OFFERED))


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([], "nothing is to be measured"),
        (["--torch", "2.13.0"], "one version is nothing to compare"),
        (["--torch", "2.13.0", "2.9.9"], "torch 2.9.9 is not offered"),
        (["--torch", "2.13.0", "2.14.1", "--margin", "100"], "--margin is 100"),
        (["--torch", "2.13.0", "2.14.1", "--repeats", "9"], "--repeats is 9"),
        (["--torch", "2.13.0", "2.14.1", "--bisect", "2.14.1", "2.13.0"], "the good version must stand before"),
        (["--torch", "2.13.0", "2.14.1", "--bisect", "2.13.0", "2.12.0"], "2.12.0 is none of the versions"),
        (["--bisect", "2.14.1", "2.13.0"], "the good version must be the older one"),
        (["--bisect", "2.13.0", "2.14.1", "--python", "3.11", "3.12"], "--bisect searches one Python's versions"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_made(tmp_path, index, own, said):
    with pytest.raises(UsageError, match=said):
        options(tmp_path, *own)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize(
    "words", [["--ab", sys.executable, sys.executable], ["--against", "latest"], ["--list"]]
)
def test_what_is_for_bench_alone_is_refused(tmp_path, index, words):
    with pytest.raises(UsageError, match="is for bench alone"):
        options(tmp_path, "--torch", "2.13.0", "2.14.1", bench=[*TINY, *words])


def test_a_bisection_without_a_list_takes_the_releases_between(tmp_path, index):
    found = options(tmp_path, "--bisect", "2.11.0", "2.14.1")
    assert [cell.label for cell in found.cells] == ["2.11.0", "2.12.1", "2.13.0", "2.14.0", "2.14.1"]
    assert found.ends == (0, 4)
    assert found.bench.plan.processes == 5


def test_room_is_wanted_for_the_environments_that_a_bisection_makes_not_for_all(tmp_path, index, monkeypatch):
    asked = []
    monkeypatch.setattr(cells, "refuse_full_disk", lambda missing, cache: asked.append(len(missing)))
    options(tmp_path, "--bisect", "2.11.0", "2.14.1")
    assert asked == [4]  # both ends and two halvings, of five versions


def test_an_environment_without_torch_is_refused_beforehand(tmp_path):
    script(
        tmp_path / "bare" / "bin" / "python",
        "echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1",
    )
    mine = environment(tmp_path / "mine", "2.14.1")
    with pytest.raises(
        UsageError, match=r"--torch .*bare/bin/python: it cannot import torch \(ModuleNotFound"
    ):
        options(tmp_path, "--torch", str(mine), str(tmp_path / "bare"))


# The answer.


def comparison(*levels: float):
    made = {f"v{index}": record(level, seed=index) for index, level in enumerate(levels)}
    first = next(iter(made.values()))
    pairs = list(made.values())
    return made, [compare.compare(first, each) for each in pairs[1:]], [
        compare.compare(before, after) for before, after in itertools.pairwise(pairs)
    ]  # fmt: skip


def test_the_table_sets_every_version_against_the_first_and_the_steps_each_against_the_one_before():
    made, against, neighbours = comparison(10.0, 10.0, 12.0, 12.0)
    text = table.side_by_side(made, against)
    verdicts = [line.split()[-1] for line in text.splitlines()[2:5]]
    assert verdicts == ["same", "slower", "slower"]
    (series,) = table.steps(made, neighbours)
    assert [point.record_id for point in series.points] == [f"{name} ({made[name]['id']})" for name in made]
    assert [(step.before.record_id[:2], step.after.record_id[:2]) for step in series.steps] == [("v1", "v2")]
    assert series.steps[0].ratio == pytest.approx(1.2, abs=0.01)
    assert "20.0% slower: v1" in history.text([series]).replace("19.9%", "20.0%").replace("20.1%", "20.0%")


def test_times_that_may_not_be_compared_are_shown_all_the_same():
    made = {"a": record(10.0), "b": record(12.0)}
    made["b"]["options"]["fuser"] = "none"
    against = [compare.compare(made["a"], made["b"])]
    lines = table.side_by_side(made, against).splitlines()
    assert lines[1].split()[-1] == "10.00"
    assert "not-comparable (fuser)" in lines[2]
    assert lines[2].split()[1].startswith(("11.9", "12.0"))
    assert lines[-1] == "cudnn forward, b: fuser (not recorded / none)"
    assert table.steps(made, against)[0].steps == ()


def test_torch_is_named_before_the_packages_that_came_with_it():
    base, new = record(), record(seed=1)
    base["fingerprint"]["software"] = {
        "packages": {"a": "1", "torch": "2.13.0"},
        "torch": {"version": "2.13.0"},
    }
    new["fingerprint"]["software"] = {
        "packages": {"a": "2", "torch": "2.14.1"},
        "torch": {"version": "2.14.1"},
    }
    assert [each.field for each in table.changed(base, new)] == [
        "packages.torch",
        "torch.version",
        "packages.a",
    ]


def matrix(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fastrnns.matrix", *argv],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


@pytest.mark.slow
def test_three_environments_are_really_measured_in_turn_compared_and_kept(tmp_path):
    named = [str(environment(tmp_path / name)) for name in "abc"]
    words = ["--torch", *named, "--", *QUICK, "--processes", "2", "--archive", str(tmp_path / "archive")]
    done = matrix(*words)
    assert done.returncode in {0, 1}, done.stderr
    assert "to the first" in done.stdout
    assert "steps from each version to the next:" in done.stdout
    kept = [entry.record for entry in Archive(tmp_path / "archive").list()]
    assert [each["options"]["side"] for each in kept] == ["a", "b", "c"]
    assert {each["options"]["pair"] for each in kept} == {kept[0]["id"]}
    assert all(each["options"]["processes_run"] == 2 for each in kept)
    assert all(each["options"]["interop_threads"] == len(each["options"]["affinity"]) for each in kept)
    starts = sorted(
        (series[0], each["options"]["side"]) for each in kept for series in each["results"][0]["started_ns"]
    )
    assert "".join(side for _, side in starts) == "abc" + "cba"
    assert not compare.compare(kept[0], kept[2]).refusals


@pytest.mark.slow
def test_without_an_archive_the_versions_are_comparable_too(tmp_path):
    named = [str(environment(tmp_path / name)) for name in "ab"]
    done = matrix("--torch", *named, "--json", "--", *QUICK, "--processes", "1")
    told = json.loads(done.stdout)
    assert told["comparisons"][0]["refusals"] == []
    assert told["comparisons"][0]["overall"] == "inconclusive"  # one process tells nothing
    assert done.returncode == 0, done.stderr


def test_a_bad_command_line_is_one_sentence_and_nothing_is_touched(tmp_path):
    for words in (
        ["--torch", "nonsense", "2.13.0"],
        ["--torch", str(tmp_path / "none"), "2.13.0"],
        ["--torch", "2.13.0", "2.14.1", "--", "--rnns", "no_such_model"],
    ):
        done = matrix("--cache", str(tmp_path / "cache"), *words)
        assert done.returncode == 2
        assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "cache").exists()


def test_a_version_that_cannot_be_made_leaves_the_others_measured_and_exit_1(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(offered, "releases", lambda python, index=(): list(OFFERED))

    def make(recipe, cache, uv=None):
        raise InstallError("no wheel")

    monkeypatch.setattr(installer, "make", make)

    def run_sides(bench, found):
        from fastrnns.session import Run

        return [Run({**record(seed=index)}) for index, _ in enumerate(found)]

    monkeypatch.setattr("fastrnns.session.run_sides", run_sides)
    named = [str(environment(tmp_path / name, "2.14.1")) for name in ("one", "two")]
    words = ["--torch", named[0], "2.13.0", named[1], "--json", "--cache", str(tmp_path / "cache")]
    assert command.main([*words, "--", *QUICK]) == 1
    out = capsys.readouterr()
    assert "2.13.0: it could not be installed: no wheel" in out.err
    assert "not measured: 2.13.0" in out.err
    told = json.loads(out.out)
    assert [(each["version"], each["error"]) for each in told["versions"]] == [
        ("one", None), ("2.13.0", "it could not be installed: no wheel"), ("two", None),
    ]  # fmt: skip
    assert [each["overall"] for each in told["comparisons"]] == ["same"]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Four environments of which the last two are slower, on a machine that measures nothing."""
    levels = {"a": 10.0, "b": 10.0, "c": 12.0, "d": 12.0}
    asked: list[tuple[str, ...]] = []

    def run_sides(bench, found):
        from fastrnns.session import Run

        asked.append(tuple(found))
        made = [
            record(levels[label], processes=bench.plan.processes, seed=index)
            for index, label in enumerate(found)
        ]
        for each, label in zip(made, found, strict=True):
            each["fingerprint"]["software"] = {"packages": {"torch": f"2.{ord(label)}"}}
        return [Run(each, levels.get("exit_code", 0)) for each in made]

    monkeypatch.setattr("fastrnns.session.run_sides", run_sides)
    named = [str(environment(tmp_path / name, "2.14.1")) for name in "abcd"]
    return levels, asked, ["--torch", *named, "--bisect", "a", "d"]


def test_the_first_bad_version_is_answered_with_what_changed_there(machine, capsys):
    _, asked, words = machine
    assert command.main([*words, "--", *QUICK]) == 0
    out = capsys.readouterr()
    assert out.out == "c is the first bad version; b is good\n"
    assert "changed from b to c: packages.torch (2.98 / 2.99)" in out.err
    assert asked == [("a", "d"), ("a", "b"), ("a", "c")]


def test_the_answer_of_a_bisection_as_json_names_everything_that_was_asked(machine, capsys):
    _, _, words = machine
    assert command.main([*words, "--json", "--", *QUICK]) == 0
    told = json.loads(capsys.readouterr().out)["bisect"]
    assert (told["first_bad"], told["last_good"]) == ("c", "b")
    assert [(each["version"], each["answer"]) for each in told["asked"]] == [
        ("d", "bad"), ("b", "good"), ("c", "bad"),
    ]  # fmt: skip


def test_a_bad_version_that_is_not_slower_is_said_with_exit_1(machine, capsys):
    levels, _, words = machine
    levels |= {"c": 10.0, "d": 10.0}
    assert command.main([*words, "--json", "--", *QUICK]) == 1
    out = capsys.readouterr()
    assert "d is not shown to be slower than a (same)" in out.err
    assert json.loads(out.out)["bisect"]["first_bad"] is None


def test_an_interrupted_bisection_says_what_is_known_and_exits_130(machine, capsys):
    levels, _, words = machine
    levels["exit_code"] = 130
    assert command.main([*words, "--", *QUICK]) == 130
    assert "interrupted; known so far: nothing" in capsys.readouterr().err


def test_the_command_itself_imports_neither_torch_nor_numpy():
    code = (
        "import sys\n"
        "from fastrnns.matrix import __main__, bisection, cells, flags, interpreters, offered, versions\n"
        "flags.parser().format_help()\n"
        "print(sorted({'torch', 'numpy', 'scipy', 'jsonschema', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
