"""A sweep: a grid of problems read from text, one series for each model at each point, and who wins where."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from fastrnns import bench, memory, reproduce, session, sizes, sweep
from fastrnns import options as command_line
from fastrnns.archive import compare, history, winners
from fastrnns.archive.store import Archive
from fastrnns.device import Device
from fastrnns.errors import UsageError
from fastrnns.present import winners as present
from fastrnns.profiling import roofline
from fastrnns.sizes import Problem
from tests import records
from tests.test_conduct import conduct, timed

ROOT = Path(__file__).parent.parent
TINY = ["--device", "cpu", "--seq-length", "3", "--env", "ignore"]


def options(*argv: str) -> command_line.BenchOptions:
    return command_line.bench_options(argv, command_line.parser().parse_args([*TINY, *argv]))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("hidden_size=64", (64,)),
        ("hidden_size=64,16", (64, 16)),
        ("hidden_size=128:2048:x2", (128, 256, 512, 1024, 2048)),
        ("hiddenSize=100:300:x2", (100, 200)),
        ("hidden-size=16:64:+16", (16, 32, 48, 64)),
        ("hidden_size=8,16:64:x4", (8, 16, 64)),
    ],
)
def test_an_axis_is_a_list_or_a_range_in_any_spelling(text: str, values: tuple[int, ...]) -> None:
    assert sweep.axes_from([text]) == (sweep.Axis("hidden_size", values),)


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["width=3"], "there are: seq_length"),
        (["hidden_size"], "names no values"),
        (["hidden_size="], "names no values"),
        (["hidden_size=a"], "no size and no range"),
        (["hidden_size=-1"], "no size and no range"),
        (["hidden_size=1.5"], "no size and no range"),
        (["hidden_size=8:4:x2"], "goes nowhere"),
        (["hidden_size=8:64:x1"], "goes nowhere"),
        (["hidden_size=0:64:x2"], "goes nowhere"),
        (["hidden_size=8:64:+0"], "goes nowhere"),
        (["hidden_size=1:1000000:+1"], "larger steps"),
        (["hidden_size=8,8"], "8 is there twice"),
        (["hidden_size=8", "hiddenSize=9"], "names hidden_size twice"),
        (["hidden_size=hidden_size"], "cannot follow itself"),
        (["input_size=hidden_size", "hidden_size=mini_batch"], "follows another itself"),
        (["hidden_size=999999999999999999"], "too large"),
    ],
)
def test_what_is_no_axis_is_refused_with_what_is_possible(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        sweep.axes_from(texts)


def test_a_grid_has_every_point_and_a_size_may_follow_another() -> None:
    axes = sweep.axes_from(["hidden_size=8,16", "mini_batch=1,2", "input_size=hidden_size"])
    points = sweep.points_of(Problem(seq_length=3), axes)
    assert [(p.problem.hidden_size, p.problem.mini_batch, p.problem.input_size) for p in points] == [
        (8, 1, 8), (8, 2, 8), (16, 1, 16), (16, 2, 16),
    ]  # fmt: skip
    assert {p.problem.seq_length for p in points} == {3}
    for point in points:
        name = sweep.series("cudnn", point.label)
        assert sweep.parts(name) == ("cudnn", point.label)
        assert sweep.problem_at(name, Problem(seq_length=3)) == point.problem


def test_a_name_without_a_point_is_the_runs_own_problem() -> None:
    assert sweep.parts("cudnn") == ("cudnn", "")
    assert sweep.problem_at("cudnn", Problem()) == Problem()


@pytest.mark.parametrize(
    "name",
    [
        "a[b",
        "[",
        "]",
        "a[]",
        "a[x=1]",
        "a[hidden_size=]",
        "a[hidden_size=1",
        "a[hidden_size=-1]",
        "a\n[mini_batch=x]",
    ],
)
def test_a_name_that_only_looks_like_a_series_is_a_name(name: str) -> None:
    assert sweep.parts(name) == (name, "")
    assert sweep.problem_at(name, Problem()) == Problem()


def test_the_whole_grid_is_checked_before_anything_runs() -> None:
    with pytest.raises(UsageError, match=r"reaches hidden_size=2000000"):
        options("--rnns", "cudnn", "--sweep", "hidden_size=8,2000000")
    with pytest.raises(UsageError, match="series fit one record"):
        options("--rnns", "cudnn", "aten", "--sweep", "hidden_size=1:600:+1")
    with pytest.raises(UsageError, match="no sizes to sweep"):
        options("--cnns", "resnet18", "--sweep", "hidden_size=8")


def test_a_grid_that_does_not_fit_is_refused_before_it_fills_the_memory() -> None:
    axes = sweep.axes_from(["hidden_size=8,8192", "seq_length=1000"])
    points = sweep.points_of(Problem(), axes)
    memory.foresee(points, "fp32", Device("cpu"), lambda _: 2**40)
    memory.foresee(points, "fp32", Device("cuda", 0), lambda _: None)  # not known
    with pytest.raises(
        UsageError, match=r"reaches hidden_size=8192,seq_length=1000, .* in fp32; cuda:0 has 4.0"
    ):
        memory.foresee(points, "fp32", Device("cuda", 0), lambda _: 2**32)
    memory.foresee(points, "bf16", Device("cuda", 0), lambda _: 9 * 2**30)
    with pytest.raises(UsageError, match=r"cuda:0 has 9\.0 GiB"):
        memory.foresee(points, "fp32", Device("cuda", 0), lambda _: 9 * 2**30)
    found = memory.available(Device("cpu"))
    assert found is not None
    assert found > 2**20


def test_the_largest_point_of_a_grid_is_told_from_a_small_one_by_what_it_holds() -> None:
    one = Problem(seq_length=1, num_layers=1, input_size=2, hidden_size=3, mini_batch=1)
    assert sizes.elements(one) == 2 * 4 * 3 * (2 + 3) + (2 + 6 * 3)
    two = Problem(seq_length=1, num_layers=2, input_size=2, hidden_size=3, mini_batch=1)
    assert sizes.elements(two) - sizes.elements(one) == 2 * 4 * 3 * (3 + 3) + 6 * 3


def test_a_grid_is_told_in_few_words() -> None:
    names = ["cudnn[hidden_size=8]", "jit[hidden_size=8]", "cudnn[hidden_size=16]"]
    assert sweep.told(names) == "cudnn jit at 2 points"
    assert sweep.told(["cudnn", "jit"]) == "cudnn jit"
    said = sweep.announcement(names, 20, counted=False)
    assert said == "sweep: 2 points, 3 series of a model at a point; 20 s each (--budget), 1 min at most"
    assert "budget" not in sweep.announcement(names, 20, counted=True)


def test_the_limit_of_a_series_is_that_of_its_model_at_its_point() -> None:
    ceilings = {"matrix_flops_per_s": {"fp32": 50e12}, "copy_bytes_per_s": 4e12}
    small = Problem(hidden_size=64)
    result = {"dtype": "fp32", "forward": {"median": 1.0}}
    at = roofline.of_result({**result, "model": "cudnn[hidden_size=64]"}, small, ceilings)
    assert at is not None
    assert at == roofline.of_result({**result, "model": "cudnn"}, small, ceilings)


def test_the_history_of_a_series_names_the_sizes_of_its_point() -> None:
    record = records.bench("cudnn[hidden_size=64,mini_batch=2]")
    series, *_ = history.history([record], "cudnn[hidden_size=64,mini_batch=2]")
    assert "100x1x512x64x2 " in series.setting


def test_a_model_that_cannot_at_some_points_is_unsupported_there_and_refused_if_it_can_at_none() -> None:
    found = options("--rnns", "cudnn", "jit", "--sweep", "num_layers=1,2")
    assert found.models == ("cudnn[num_layers=1]", "jit[num_layers=1]", "cudnn[num_layers=2]")
    assert [name for name, _ in found.unsupported] == ["jit[num_layers=2]"]
    with pytest.raises(UsageError, match="jit computes one layer"):
        options("--rnns", "cudnn", "jit", "--sweep", "num_layers=2,3")


def test_no_network_of_images_runs_in_a_sweep_unless_it_is_named() -> None:
    assert not [name for name in options("--sweep", "hidden_size=8").models if "resnet" in name]


def series(model: str, size: int, medians: list[float]) -> dict:
    """A result with one process a median."""
    phase = records.phase(*([value] * 3 for value in medians))
    return records.result(f"{model}[hidden_size={size}]", forward=phase, backward=None)


STEADY = [1.0, 1.01, 0.99, 1.0, 1.005]


def test_a_model_wins_only_where_it_is_faster_beyond_doubt() -> None:
    found = winners.cells(
        [
            series("cudnn", 8, STEADY), series("fused", 8, [value / 2 for value in STEADY]),
            series("cudnn", 16, STEADY), series("fused", 16, [value * 1.001 for value in STEADY]),
            series("cudnn", 32, STEADY),
            series("cudnn", 64, [1.0]), series("fused", 64, [2.0]),
        ]
    )  # fmt: skip
    assert [(cell.point, cell.model, cell.verdict) for cell in found] == [
        ("hidden_size=8", "fused", winners.FASTEST),
        ("hidden_size=16", "cudnn", winners.TIE),
        ("hidden_size=32", "cudnn", winners.ALONE),
        ("hidden_size=64", "cudnn", winners.UNTOLD),
    ]
    assert found[0].ratio == pytest.approx(2.0, rel=1e-6)
    assert found[0].ci95 is not None
    assert found[0].ci95[0] < 2.0 < found[0].ci95[1]


def test_a_lead_inside_the_margin_is_a_tie_however_sure_it_is() -> None:
    steady = [1.0, 1.0001, 0.9999, 1.0, 1.0001]
    close = [value * 1.005 for value in steady]
    (cell,) = winners.cells([series("cudnn", 8, steady), series("fused", 8, close)])
    assert cell.verdict == winners.TIE
    assert cell.ci95 is not None
    assert cell.ci95[0] > 1
    (cell,) = winners.cells([series("cudnn", 8, steady), series("fused", 8, close)], margin=0.001)
    assert cell.verdict == winners.FASTEST


def test_the_fastest_is_ahead_of_every_rival_not_of_the_next_alone() -> None:
    noisy = series("jit", 8, [0.6, 3.0, 1.3, 4.0, 0.8])
    near = series("aten", 8, [value * 1.1 for value in STEADY])
    (cell,) = winners.cells([series("cudnn", 8, STEADY), near])
    assert (cell.verdict, cell.next_model) == (winners.FASTEST, "aten")
    (cell,) = winners.cells([series("cudnn", 8, STEADY), near, noisy])
    assert (cell.verdict, cell.next_model) == (winners.TIE, "jit")
    late = series("jit", 8, [9.0])  # its budget allowed one process: behind by its median alone
    assert winners.cells([series("cudnn", 8, STEADY), near, late])[0].verdict == winners.FASTEST


def test_a_model_of_another_family_does_other_work_and_is_no_rival() -> None:
    other = series("gru", 8, [value / 2 for value in STEADY]) | {"family": "gru"}
    found = winners.cells([series("cudnn", 8, STEADY), other])
    assert [(cell.family, cell.model, cell.verdict) for cell in found] == [
        ("lstm", "cudnn", winners.ALONE),
        ("gru", "gru", winners.ALONE),
    ]
    assert [name for name, _ in present.named(found)] == ["hidden_size=8 lstm", "hidden_size=8 gru"]


def test_each_model_has_a_sentence_that_says_where_it_wins_loses_and_failed() -> None:
    half = [value / 2 for value in STEADY]
    results = [
        series("cudnn", 8, STEADY), series("fused", 8, half), series("py", 8, [9.0] * 5),
        series("cudnn", 16, half), series("fused", 16, STEADY), series("py", 16, [9.0] * 5),
        series("cudnn", 32, STEADY), failed("fused", 32), series("py", 32, [9.0] * 5),
    ]  # fmt: skip
    assert winners.summary(winners.cells(results), results) == (
        "cudnn: fastest at 2 of 3 forward; loses at hidden_size=8 (forward)",
        "fused: fastest at 1 of 2 forward; loses at hidden_size=16 (forward); failed at hidden_size=32",
        "py: fastest at 0 of 3 forward; loses everywhere",
    )
    assert "out of memory" not in present.text(results)  # the table of results says it


def failed(model: str, size: int) -> dict:
    """A result of a model that ran out of memory."""
    return records.result(
        f"{model}[hidden_size={size}]", status="failed", error="out of memory", forward=None, backward=None
    )


def test_failed_results_win_nothing() -> None:
    assert winners.cells([failed("cudnn", 8)]) == ()
    assert present.text([failed("cudnn", 8)]) == "cudnn: not timed anywhere; failed at hidden_size=8"


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    """A real sweep on the CPU."""
    archive = tmp_path_factory.mktemp("swept")
    done = subprocess.run(
        [sys.executable, "-m", "fastrnns.bench", *TINY, "--rnns", "cudnn", "aten", "--sweep",
         "hidden_size=4,8", "mini_batch=1,2", "input_size=hidden_size", "--processes", "2", "--warmup", "1",
         "--nloops", "3", "--archive", str(archive)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done, archive


def test_one_record_holds_the_grid_and_each_result_its_sizes(swept) -> None:
    done, archive = swept
    record = Archive(archive).load("latest")
    assert record["options"]["sweep"] == ["hidden_size=4,8", "mini_batch=1,2", "input_size=hidden_size"]
    assert len(record["results"]) == 8
    assert len({result["model"] for result in record["results"]}) == 8
    for result in record["results"]:
        label = sweep.parts(result["model"])[1]
        assert {key: result["problem"][key] for key in sweep.sizes_of(label)} == sweep.sizes_of(label)
        assert result["problem"]["seq_length"] == 3
        assert result["problem"]["input_size"] == result["problem"]["hidden_size"]
        assert [len(one) for one in result["forward"]["samples"]] == [3, 3]
    assert len(record["details"]["winners"]) == 8  # four points, two phases
    assert "fastest at" in done.stdout
    assert "sweep: 4 points, 8 series" in done.stderr
    assert "process 1 of 2: cudnn aten at 4 points" in done.stderr


def test_what_runs_out_of_memory_at_a_point_is_a_failed_result_and_the_others_go_on() -> None:
    def play(names: list[str]):
        yield {"event": "hello", "import_s": 1.0, "ready_s": 1.0}
        for name in names:
            if name == "cudnn[hidden_size=16]":
                yield {"event": "model_start", "model": name}
                yield {"event": "model_failed", "model": name, "status": "failed", "error": "out of memory"}
            else:
                yield from timed(name, [1.0, 1.1, 1.2])
        yield {"event": "done"}

    found = options("--rnns", "cudnn", "aten", "--sweep", "hidden_size=8,16")
    outcome, _ = conduct(found.models, [play, play])
    record = records.bench() | {"results": []}
    held = SimpleNamespace(reasons=[], before=[], after=[], shield={}, drift=[])
    session.fill(record, found, outcome, held, session.Watched())
    assert {result["model"]: result["status"] for result in record["results"]} == {
        "cudnn[hidden_size=8]": "ok", "aten[hidden_size=8]": "ok",
        "cudnn[hidden_size=16]": "failed", "aten[hidden_size=16]": "ok",
    }  # fmt: skip
    assert [len(result["forward"]["samples"]) for result in record["results"] if result["forward"]] == [2] * 3
    alone = [cell for cell in record["details"]["winners"] if cell["point"] == "hidden_size=16"]
    assert {(cell["model"], cell["verdict"]) for cell in alone} == {("aten", winners.ALONE)}


def test_a_sweep_is_judged_against_one_of_the_archive_in_the_same_command(swept, tmp_path: Path) -> None:
    archive = shutil.copytree(swept[1], tmp_path / "archive")
    done = subprocess.run(
        [sys.executable, "-m", "fastrnns.bench", *TINY, "--rnns", "cudnn", "--sweep", "hidden_size=4",
         "mini_batch=1,2", "input_size=hidden_size", "--processes", "2", "--warmup", "1", "--nloops", "3",
         "--archive", str(archive), "--against", "latest"],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    judged = [line for line in done.stdout.splitlines() if line.endswith("inconclusive")]  # two processes
    assert len(judged) == 4
    assert all("hidden_size=4" in line for line in judged)


def test_two_sweeps_are_compared_point_by_point(swept) -> None:
    record = Archive(swept[1]).load("latest")
    other = json.loads(json.dumps(record))
    other["results"] = other["results"][:-1]
    found = compare.compare(record, other)
    assert len({(row.model, row.phase) for row in found.rows}) == len(found.rows) == 16
    assert [row.verdict for row in found.rows].count(compare.ONLY_BASE) == 2


def test_a_sweep_is_reproduced_as_the_sweep_it_was(swept) -> None:
    record = Archive(swept[1]).load("latest")
    again = bench.command_line.bench_options(
        [], command_line.parser().parse_args(reproduce.bench_flags(record))
    )
    assert list(again.models) == [result["model"] for result in record["results"]]


def test_the_report_shows_who_wins_where(swept, tmp_path: Path) -> None:
    from fastrnns.report import single
    from fastrnns.report import winners as section

    record = Archive(swept[1]).load("latest")
    found = section.section(record)
    assert found is not None
    assert len(found.tables[0].lines) == 8
    assert {picture.phase for picture in found.pictures} == {"forward", "backward"}
    for picture in found.pictures:
        figure = picture.draw()
        assert figure.axes[0].get_xlabel() == "hidden_size"
        assert figure.axes[0].get_ylabel() == "mini_batch"
    assert "winners" in [part.name for part in single.page(record).sections]
    assert section.section(records.bench()) is None
