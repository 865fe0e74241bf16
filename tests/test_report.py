"""The report of one record: the right figures in the right cells, all samples, and nothing from outside."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from fastrnns.archive import __main__ as archive
from fastrnns.archive import record, store
from fastrnns.report import command, markdown, page, samples, single, timeline, vector
from tests import records

ROOT = Path(__file__).parent.parent
H200 = ROOT / "results/nvidia-h200-6f08cc88/20261201T065805Z-bench-f63dd7effee4.json"
PROFILE = ROOT / "results/nvidia-h200-6f08cc88/20261201T071157Z-profile-f55b9d78c787.json"
HOSTILE = "</script><img src=x onerror=alert(1)>&$\\frac$\x1b[31m"


@pytest.fixture(autouse=True)
def _no_cache_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))


def table(made: page.Page, name: str) -> page.Table:
    return next(each for section in made.sections for each in section.tables if each.name == name)


def texts(found: page.Table) -> list[dict[str, str]]:
    return [dict(zip(found.columns, (cell.text for cell in line.cells), strict=True)) for line in found.lines]


def timed(model: str = "cudnn", **changes: Any) -> dict[str, Any]:
    """A result with a time of day: iterations of 1 ms and 2 ms from second 10 on."""
    return (
        records.result(model, started_ns=[[10_000_000_000, 10_010_000_000], [12_000_000_000, None]]) | changes
    )


def test_the_verdict_and_its_reasons_come_before_everything_else():
    made = page.html(
        single.page(records.bench(verdict={"status": "tainted", "reasons": ["because of that"]}))
    )
    assert made.index("because of that") < made.index('<section id="results"')
    assert "<title>bench" in made
    assert ": tainted</title>" in made


def test_each_figure_stands_in_the_cell_of_its_model_phase_and_column():
    found = store.read(H200).record
    rows = texts(table(single.page(found), "results"))
    cudnn = next(row for row in rows if (row["model"], row["phase"]) == ("cudnn", "backward"))
    assert cudnn["median ms"] == "3.302"
    assert cudnn["95 % interval"] == "2.844-3.645"
    assert cudnn["n"] == "72"
    aten = next(row for row in rows if (row["model"], row["phase"]) == ("aten", "forward"))
    assert aten["ratio"] == "3.03"
    assert aten["what ran"] == "ATen, not steady"


def test_a_failed_model_has_its_error_in_place_of_times():
    failed = records.result("jit", status="failed", error="out of memory", forward=None, backward=None)
    rows = texts(table(single.page(records.bench(results=[records.result(), failed])), "results"))
    assert rows[-1]["what ran"] == "failed: out of memory"
    assert rows[-1]["median ms"] == ""


def test_a_step_that_moved_is_marked_as_drifted_and_one_that_stayed_is_not():
    moved = [{**step, "current": "moved"} if step["name"] == "turbo" else step for step in records.STEADY]
    rows = texts(
        table(single.page(records.bench(environment=records.environment(after=moved))), "environment")
    )
    assert {row["step"]: row["drift"] for row in rows} == {"governor": "-", "turbo": "drifted", "shield": "-"}
    assert next(row for row in rows if row["step"] == "turbo")["after"] == "stable: moved"


def test_every_sample_and_every_warm_up_iteration_is_drawn_inside_its_axis():
    facts = records.phase([1.0, 5.0, 2.0], [3.0], warmup=[900.0, 1.5, 0.001])
    panel = samples.panels(records.bench(results=[records.result(forward=facts, backward=None)]))[0]
    axes = samples.draw(panel).axes[0]
    drawn = [float(value) for line in axes.lines for value in line.get_ydata() if line.get_marker() == "."]
    assert sorted(drawn) == [1.0, 2.0, 3.0, 5.0]
    warmup = [line for line in axes.lines if line.get_gid() == "warmup"]
    assert sum(len(line.get_ydata()) for line in warmup) == 6
    low, high = axes.get_ylim()
    assert all(low <= value <= high for line in axes.lines for value in line.get_ydata() if line.get_gid())
    assert "4 of them beyond the axis" in samples.describe(panel)
    assert "900.0 ms" in samples.describe(panel)


def test_many_samples_become_a_bitmap_of_all_of_them():
    many = [1.0 + index % 97 / 1000 for index in range(vector.MOST_VECTOR_MARKS + 1)]
    panel = samples.panels(
        records.bench(results=[records.result(forward=records.phase(many), backward=None)])
    )[0]
    drawn = samples.draw(panel)
    assert sum(len(line.get_ydata()) for line in drawn.axes[0].lines if line.get_marker() == ".") == len(many)
    assert "<image" in vector.inline(drawn, "many")


def test_few_samples_become_one_path_with_a_dot_each():
    facts = records.phase([1.0, 5.0, 2.0])
    panel = samples.panels(records.bench(results=[records.result(forward=facts, backward=None)]))[0]
    path = re.search(r'<path [^>]*d="((?:M[-\d.]+ [-\d.]+h0)+)"', vector.inline(samples.draw(panel), "few"))
    assert path is not None
    assert path[1].count("M") == 3


def test_disturbed_iterations_are_crosses_and_counted():
    facts = {**records.phase([1.0, 5.0, 2.0]), "excluded": [[1]]}
    panel = samples.panels(records.bench(results=[records.result(forward=facts, backward=None)]))[0]
    crosses = [line for line in samples.draw(panel).axes[0].lines if line.get_marker() == "x"]
    assert [float(value) for line in crosses for value in line.get_ydata()] == [5.0]
    assert "1 disturbed iterations" in samples.describe(panel)


def test_a_spike_and_the_disturbance_stand_at_the_same_place():
    watch = {
        "processes": [
            {"started_ns": 9_000_000_000, "timeline": {"t_ms": [500.0, 1005.0], "steal_ms": [0.0, 7.0]}}
        ]
    }
    seen = [{"from_ns": 10_009_000_000, "to_ns": 10_020_000_000, "cause": "steal"}]
    slow = timed(forward=records.phase([1.0, 9.0], [1.0, 1.0]))
    found = timeline.timelines(
        records.bench(results=[slow], environment=records.environment(watch=watch, disturbances=seen))
    )
    assert len(found) == 2
    assert [at for at, ms in found[0].points["forward"] if ms == 9.0] == [0.01]
    assert found[0].points["backward"][0] == (0.001, 2.0)  # it begins where its forward ends
    begin, end, cause = found[0].disturbances[0]
    assert begin <= 0.01 <= end
    assert cause == "steal"
    assert found[0].looks_s == (-1.0, -0.5, pytest.approx(0.005))
    assert found[0].columns["steal_ms"][1:] == (0.0, 7.0)
    assert found[1].points["forward"] == ((0.0, 1.0),)
    assert not found[1].disturbances
    assert not found[1].looks_s  # that watch had ended


def test_what_happened_while_no_model_was_timed_sets_no_scale():
    table = {"t_ms": [100.0, 3000.0, 3100.0], "steal_ms": [900.0, 0.0, 7.0]}
    watch = {"processes": [{"started_ns": 7_000_000_000, "timeline": table}]}
    found = timeline.timelines(records.bench(results=[timed()], environment=records.environment(watch=watch)))
    assert timeline.draw(found[0]).axes[1].get_ylim()[1] == pytest.approx(7.7)


def test_a_profile_has_a_watch_for_each_model_and_each_finds_its_samples():
    (found,) = timeline.timelines(store.read(PROFILE).record)
    seen = dict(zip(found.looks_s, found.columns["involuntary"], strict=True))
    for window in found.windows:
        assert any(window.begin_s <= at <= window.end_s and value >= 0 for at, value in seen.items())


def test_the_axis_of_time_keeps_the_order_and_gives_each_model_the_same_width():
    windows = [
        timeline.Window("a", 0.0, 0.001),
        timeline.Window("b", 0.0015, 60.0),
        timeline.Window("c", 90.0, 90.1),
    ]
    times, places = timeline.knots(windows)
    assert times == sorted(set(times))
    assert places == sorted(set(places))
    assert [round(b - a, 9) for a, b in zip(places[::2], places[1::2], strict=True)] == [1, 1, 1]


def test_the_roofline_is_there_where_the_record_knows_it_and_only_there():
    rows = texts(table(single.page(store.read(PROFILE).record), "roofline"))
    assert rows[0]["model"] == "cudnn"
    assert rows[0]["share"] == "21.3%"
    assert rows[0]["bound by"] == "compute"
    assert "roofline" not in [section.name for section in single.page(records.bench()).sections]


def test_a_profile_says_where_the_time_goes_and_which_files_say_more():
    made = single.page(store.read(PROFILE).record)
    rows = texts(table(made, "profile"))
    aten = next(row for row in rows if (row["model"], row["phase"]) == ("aten", "forward"))
    assert (aten["wall ms"], aten["work ms"], aten["busy"]) == ("18.31", "2.338", "13%")
    assert aten["reading"].startswith("launch-bound: 13% busy")
    assert "aten.kernels.csv" in [row["file"] for row in texts(table(made, "files"))]
    assert texts(table(made, "ceilings"))[0] == {"fact": "device", "value": "cuda"}


def test_the_commands_repeat_what_ran():
    found = single.page(store.read(H200).record)
    commands = dict(next(section for section in found.sections if section.name == "repeat").commands)
    assert commands["what ran"].startswith("python -m fastrnns.bench --env apply")
    assert "python -m fastrnns.reproduce f63dd7effee4" in commands.values()


def test_hostile_strings_stay_text():
    bad = records.result(HOSTILE, backend=HOSTILE, notes=[HOSTILE])
    steps = [{**records.STEADY[0], "name": HOSTILE, "reason": HOSTILE, "current": HOSTILE}]
    made = page.html(
        single.page(
            records.bench(
                results=[
                    timed() | {"model": HOSTILE},
                    bad,
                    records.result("x", status="failed", error=HOSTILE),
                ],
                verdict={"status": "invalid", "reasons": [HOSTILE]},
                environment=records.environment(before=steps, after=steps),
                command={"argv": [HOSTILE]},
                options={HOSTILE: HOSTILE},
            )
        )
    )
    assert "<img" not in made
    assert made.count("</script>") == 1
    assert "\x1b" not in made
    assert "&lt;img src=x onerror=alert(1)&gt;" in made
    assert "$\\frac$" in made


def test_the_page_names_no_address_that_a_browser_would_fetch():
    made = page.html(single.page(store.read(H200).record))
    fetched = re.findall(r'(?:src|href|url|srcset|action)\s*[=(]\s*["\']?([^"\')\s>]+)', made)
    assert [each for each in fetched if not each.startswith(("#", "data:"))] == []
    assert "default-src 'none'" in made


def test_no_two_elements_have_the_same_id_and_every_reference_is_there():
    made = page.html(single.page(store.read(H200).record))
    ids = re.findall(r'\sid="([^"]+)"', made)
    assert len(ids) == len(set(ids))
    referred = re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', made)
    assert {one or other for one, other in referred} <= set(ids)


@pytest.mark.parametrize("path", sorted(ROOT.glob("results/*/*.json")), ids=lambda path: path.stem)
def test_every_committed_record_has_a_page(path):
    found = single.page(store.read(path).record)
    assert found.status in {"valid", "tainted", "invalid"}
    assert found.sections


NULLS = {
    **records.phase([2.0], [3.0]),
    "samples": [[None, 2.0], [None]],
    "ci95": [None, None],
    "median": None,
}
ODD_WATCH = {
    "processes": [{"started_ns": 0, "timeline": {"t_ms": [5.0, 4.0], "a$b": [1.0, None], "n": [-1, -2]}}]
}
ODD = {
    "no result": [],
    "one sample": [records.result(forward=records.phase([1.0]), backward=None)],
    "nulls for numbers": [records.result(forward={**NULLS, "n": None, "std": None}, backward=None)],
    "times of zero": [records.result(forward=records.phase([0.0, 0.0]), started_ns=[[1, 2]])],
    "times below zero": [records.result(forward=records.phase([-1.0, 1.0]), started_ns=[[1, 2]])],
    "both ends of a double": [records.result(forward=records.phase([1e12, 1e-12], warmup=[1e300]))],
    "a process without samples": [records.result(forward=records.phase([], [1.0]), started_ns=[[], [1]])],
    "models at one time": [records.result(model, started_ns=[[5, 5]]) for model in "abc"],
    "forty processes": [records.result(forward=records.phase(*[[1.0, 1.1]] * 40))],
    "a check that tells nothing": [records.result(forward=None, backward=None, checks=[{}, {"ok": False}])],
}


@pytest.mark.parametrize("name", ODD)
def test_a_record_may_be_odd(name):
    odd = records.bench(results=ODD[name], environment=records.environment(watch=ODD_WATCH))
    made = single.page(record.seal(odd))
    assert "</html>" in page.html(made)
    assert markdown.markdown(made)


def test_a_bench_record_that_knows_its_limit_shows_it_beside_each_time():
    found = store.read(PROFILE).record
    limits = [
        {phase: result["profile"][phase]["roofline"] for phase in ("forward", "backward")}
        for result in found["results"]
    ]
    told = [
        {**result, "profile": None, "roofline": limit}
        for result, limit in zip(found["results"], limits, strict=True)
    ]
    made = single.page({**found, "kind": "bench", "results": told})
    assert texts(table(made, "results"))[0]["% of limit"] == "21.3%"
    assert texts(table(made, "roofline"))[0]["share"] == "21.3%"


def test_the_same_record_makes_the_same_page():
    found = records.bench()
    assert page.html(single.page(found)) == page.html(single.page(found))


def test_the_command_writes_one_file_and_prints_its_path(tmp_path, capsys):
    target = tmp_path / "deep" / "r.html"
    assert archive.main(["report", str(H200), "--output", str(target)]) == 0
    assert capsys.readouterr().out == f"{target}\n"
    assert target.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_an_output_that_cannot_be_written_is_a_sentence(tmp_path, capsys):
    assert archive.main(["report", str(H200), "--output", str(tmp_path)]) == 2
    assert "give another path" in capsys.readouterr().err


def test_a_missing_library_is_a_sentence_with_a_remedy(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(command, "NEEDS", ("no_such_library",))
    assert archive.main(["report", str(H200), "--output", str(tmp_path / "r.html")]) == 2
    assert "pip install no_such_library" in capsys.readouterr().err


def test_the_command_line_and_bench_load_no_plotting_library():
    code = "import sys, fastrnns.archive.__main__, fastrnns.bench; print({'matplotlib', 'jinja2'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "set()"


def test_markdown_begins_with_the_verdict_and_holds_the_figures():
    text = markdown.markdown(single.page(store.read(H200).record))
    assert text.startswith("### bench f63dd7effee4: tainted\n")
    assert "| cudnn | backward | 3.302 | 2.844-3.645 |" in text
    assert "| jit\\_premul | forward | 4.623 |" in text
    assert "run it again, and say whether it holds: ` python -m fastrnns.reproduce f63dd7effee4 `" in text


def test_hostile_strings_stay_text_in_markdown():
    hostile = "a|b](http://x) ![p](http://y) <img src=x> `code` @someone\n\n# heading"
    bad = records.bench(
        results=[records.result(hostile, backend=hostile)],
        verdict={"status": "tainted", "reasons": [hostile]},
        command={"argv": ["``` " + hostile]},
    )
    text = markdown.markdown(single.page(bad))
    outside = re.sub(r"(`+) .*? \1(?!`)", "", text)
    assert not re.search(r"(?<!\\)(?:\]\(|<img|@|`)", outside)
    assert "\n# heading" not in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1


def test_pictures_are_written_one_a_file_with_their_title(tmp_path, capsys):
    kept = store.Archive(tmp_path / "archive")
    path = kept.write(records.bench("cudnn", "../../evil"))
    line = ["report", str(path), "--svg", str(tmp_path / "svg"), "--png", str(tmp_path / "png")]
    assert archive.main(line) == 0
    written = sorted((tmp_path / "svg").iterdir())
    assert [each.name.partition("-")[2] for each in written] == [
        "01-medians-and-their-intervals.svg", "02-cudnn-forward.svg", "03-cudnn-backward.svg",
        "04-evil-forward.svg", "05-evil-backward.svg",
    ]  # fmt: skip
    assert ET.parse(written[1]).getroot().tag.endswith("svg")
    assert ">cudnn forward</text>" in written[1].read_text(encoding="utf-8")
    assert all(each.read_bytes().startswith(b"\x89PNG") for each in (tmp_path / "png").iterdir())
    assert len(capsys.readouterr().out.splitlines()) == 10


def test_only_what_was_asked_for_is_written_and_markdown_has_stdout_to_itself(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert archive.main(["report", str(H200), "--markdown"]) == 0
    assert list(tmp_path.glob("*.html")) == []
    assert capsys.readouterr().out.startswith("### ")
    assert archive.main(["report", str(H200), "--markdown", "--output", "r.html"]) == 0
    assert "r.html" not in capsys.readouterr().out
    assert (tmp_path / "r.html").exists()
