"""Comparing: verdicts are earned, refusals name the field, and noise alone is never slower."""

from __future__ import annotations

import copy
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from records import bench, fingerprint, phase, result

from fastrnns import compare as command
from fastrnns.archive import calibration, compare, pool, store
from fastrnns.errors import MachineError

OPTIONS = {"device": "cpu", "dtype": "float32", "tf32": False, "threads": 2, "fuser": "te"}


def series(level, processes=10, spread=0.005, seed=0, iterations=9):
    rng = random.Random(f"{level} {seed}")
    levels = [level * math.exp(rng.gauss(0, spread)) for _ in range(processes)]
    return [[here * math.exp(rng.gauss(0, 0.002)) for _ in range(iterations)] for here in levels]


def record_of(forward, backward=None, *, model="cudnn", options=None, **changes):
    measured = result(
        model,
        forward=phase(*forward),
        backward=None if backward is None else phase(*backward),
    )
    return bench(model, results=[measured], options=OPTIONS | (options or {}), **changes)


def verdicts(comparison):
    return {(row.model, row.phase): row.verdict for row in comparison.rows}


def only(comparison):
    (row,) = comparison.rows
    return row


def test_a_slower_record_is_slower_and_exits_1():
    found = compare.compare(record_of(series(10.0)), record_of(series(11.0)))
    row = only(found)
    assert row.verdict == compare.SLOWER
    assert found.exit_code == 1
    low, high = row.ci95
    assert low < 1.1 < high
    assert low < row.ratio < high


def test_a_faster_record_is_faster_and_exits_0():
    found = compare.compare(record_of(series(11.0)), record_of(series(10.0)))
    assert only(found).verdict == compare.FASTER
    assert found.exit_code == 0


def test_same_is_earned_by_an_interval_inside_the_margin():
    quiet = compare.compare(
        record_of(series(10.0, 20, 0.001, 1)), record_of(series(10.0, 20, 0.001, 2)), margin=0.02
    )
    assert only(quiet).verdict == compare.SAME
    loud = compare.compare(
        record_of(series(10.0, 5, 0.05, 1)), record_of(series(10.0, 5, 0.05, 2)), margin=0.02
    )
    assert only(loud).verdict == compare.INCONCLUSIVE
    assert "more processes would tell" in only(loud).reason


def test_a_certain_difference_within_the_margin_is_not_slower():
    found = compare.compare(
        record_of(series(10.0, spread=0.001)), record_of(series(10.2, spread=0.001)), margin=0.05
    )
    assert only(found).verdict == compare.SAME


def test_inconclusive_exits_0_and_says_why():
    found = compare.compare(record_of(series(10.0, 5, 0.1)), record_of(series(10.5, 5, 0.1)))
    assert only(found).verdict == compare.INCONCLUSIVE
    assert found.exit_code == 0
    assert only(found).reason


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(0.01, 1e4), min_size=1, max_size=5), min_size=1, max_size=6))
def test_a_record_compared_with_itself_is_never_slower_nor_faster(samples):
    record = record_of(samples)
    found = compare.compare(record, copy.deepcopy(record))
    assert only(found).verdict in {compare.SAME, compare.INCONCLUSIVE}
    assert found.exit_code == 0


@settings(max_examples=40, deadline=None)
@given(st.floats(0.5, 2.0), st.floats(0.001, 0.05), st.integers(1, 1000))
def test_swapping_the_sides_inverts_the_ratio_and_the_verdict(factor, spread, seed):
    a, b = record_of(series(10.0, 6, spread, seed)), record_of(series(10.0 * factor, 6, spread, seed + 1))
    there, back = only(compare.compare(a, b)), only(compare.compare(b, a))
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.ci95 == pytest.approx((1 / back.ci95[1], 1 / back.ci95[0]))
    mirrored = {compare.SLOWER: compare.FASTER, compare.FASTER: compare.SLOWER}
    assert mirrored.get(there.verdict, there.verdict) == back.verdict


def test_case_D7_one_sample_is_insufficient_and_no_regression():
    found = compare.compare(record_of([[10.0]]), record_of([[30.0]]))
    assert only(found).verdict == compare.INCONCLUSIVE
    assert "insufficient samples: n = 1" in only(found).reason
    assert found.exit_code == 0


def test_case_D7_one_process_of_many_iterations_is_still_one_replicate():
    found = compare.compare(
        record_of(series(10.0, 1, iterations=100)), record_of(series(12.0, 1, iterations=100))
    )
    assert only(found).verdict == compare.INCONCLUSIVE
    assert "insufficient processes: 1" in only(found).reason
    few = compare.compare(record_of(series(10.0, 4)), record_of(series(12.0, 4)))
    assert only(few).verdict == compare.INCONCLUSIVE
    assert "at least 5 a side" in only(few).reason


def test_case_D7_no_samples_are_no_regression():
    found = compare.compare(record_of(series(10.0)), record_of([[]]))
    assert only(found).verdict == compare.INCONCLUSIVE
    assert only(found).ratio is None


def test_case_D11_a_backward_that_was_not_measured_is_no_speed_up():
    for tiny in (0.0043, 0.0):
        base = record_of(series(12.0), series(25.0))
        new = record_of(series(12.0, seed=4), [[tiny] * 9] * 10)
        found = {row.phase: row for row in compare.compare(base, new).rows}
        assert found["backward"].verdict == compare.NOT_COMPARABLE
        assert "not measured" in found["backward"].reason
        assert compare.compare(new, base).exit_code == 3  # and no regression the other way round


def test_case_D11_a_missing_backward_is_only_in_base():
    found = compare.compare(record_of(series(12.0), series(25.0)), record_of(series(12.0, seed=4)))
    row = next(row for row in found.rows if row.phase == "backward")
    assert row.verdict == compare.ONLY_BASE
    assert row.ratio is None
    assert found.exit_code == 0


def test_case_E4_another_cpu_is_refused_by_name():
    a = record_of(series(10.0), fingerprint=fingerprint("a" * 16, "EPYC 9V74"))
    b = record_of(series(12.6), fingerprint=fingerprint("b" * 16, "EPYC 7763"))
    found = compare.compare(a, b)
    assert only(found).verdict == compare.NOT_COMPARABLE
    assert only(found).field == "hardware.cpu.brand"
    assert found.exit_code == 3
    forced = compare.compare(a, b, force=True)
    assert forced.forced
    assert any("not comparable" in note for note in forced.notes)
    assert only(forced).ratio == pytest.approx(1.26, rel=0.02)


def test_case_E4_a_model_of_one_side_is_only_there_and_no_pass():
    a, b = record_of(series(10.0)), record_of(series(10.0, seed=2))
    a["results"].append(result("jit", backward=None))
    assert verdicts(compare.compare(a, b))["jit", "forward"] == compare.ONLY_BASE
    assert verdicts(compare.compare(b, a))["jit", "forward"] == compare.ONLY_NEW


def test_case_C3_what_wanders_does_not_forbid_a_comparison():
    a, b = record_of(series(10.0)), record_of(series(10.0, seed=2))
    a["fingerprint"]["hardware"]["cpu"]["mhz_now"] = 1401
    b["fingerprint"]["hardware"]["cpu"]["mhz_now"] = 4000
    b["fingerprint"]["state"] = {"load": 7.5}
    assert not compare.compare(a, b).refusals


def test_unknown_hardware_is_not_the_same_hardware():
    a, b = record_of(series(10.0)), record_of(series(10.0, seed=2))
    for record in (a, b):
        record["fingerprint"]["ids"]["hardware"] = None
        record["fingerprint"]["hardware"] = {}
    assert compare.compare(a, b).refusals[0].field == "hardware id"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"dtype": "bfloat16"}, "dtype"),
        ({"tf32": True}, "tf32"),
        ({"device": "cuda:0"}, "device kind"),
        ({"cache": "cold"}, "cache"),
        ({"threads": 8}, "threads"),
        ({"fuser": "old"}, "fuser"),
        ({"deterministic": True}, "deterministic"),
        ({"cublas_workspace_config": ":4096:8"}, "cublas_workspace_config"),
    ],
)
def test_options_that_change_the_work_are_refused_by_name(change, field):
    found = compare.compare(record_of(series(10.0)), record_of(series(10.0), options=change))
    assert found.refusals[0].field == field
    assert found.exit_code == 3


def test_another_problem_kind_or_verdict_is_refused_by_name():
    a = record_of(series(10.0))
    larger = record_of(series(10.0), problem={**a["problem"], "hidden_size": 1024})
    assert compare.compare(a, larger).refusals[0].field == "problem.hidden_size"
    assert compare.compare(a, {**a, "kind": "verify"}).refusals[0].field == "kind"
    invalid = {**a, "verdict": {"status": "invalid", "reasons": ["interrupted"]}}
    assert compare.compare(a, invalid).refusals[0].field == "verdict"


def test_another_setting_of_the_machine_is_refused_by_name():
    a, b = record_of(series(10.0)), record_of(series(10.0, seed=2))
    b["environment"] = copy.deepcopy(b["environment"])
    b["environment"]["before"][1]["current"] = "on"
    assert compare.compare(a, b).refusals[0].field == "environment turbo"


def test_a_model_that_failed_in_the_new_record_exits_1():
    a, b = record_of(series(10.0)), record_of(series(10.0, seed=2))
    b["results"][0] |= {"status": "failed", "error": "out of memory", "forward": None}
    found = compare.compare(a, b)
    assert only(found).verdict == compare.ONLY_BASE
    assert "out of memory" in only(found).reason
    assert found.exit_code == 1


def test_many_models_do_not_make_a_false_alarm_by_their_number():
    assert compare.holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert compare.holm([]) == []


def test_within_machine_compares_ratios_across_machines():
    a = record_of(series(20.0), model="jit", fingerprint=fingerprint("a" * 16, "one"))
    b = record_of(series(40.0), model="jit", fingerprint=fingerprint("b" * 16, "two"))
    a["results"].append(result("cudnn", forward=phase(*series(10.0)), backward=None))
    b["results"].append(result("cudnn", forward=phase(*series(22.0)), backward=None))
    found = compare.compare(a, b, reference="cudnn")
    row = only(found)
    assert (row.model, row.verdict) == ("jit", compare.FASTER)
    assert row.ratio == pytest.approx(40 / 22 / 2, rel=0.02)
    with pytest.raises(MachineError, match="no result of aten"):
        compare.compare(a, b, reference="aten")


def test_interleaved_records_are_judged_pair_by_pair():
    drift = [math.exp(0.05 * k) for k in range(10)]
    base = [[10.0 * d + 0.001 * k] * 5 for k, d in enumerate(drift)]
    new = [[10.3 * d - 0.001 * k] * 5 for k, d in enumerate(drift)]
    paired = {"pair": "0123456789ab"}
    assert only(compare.compare(record_of(base), record_of(new))).verdict == compare.INCONCLUSIVE
    found = compare.compare(record_of(base, options=paired), record_of(new, options=paired))
    assert only(found).verdict == compare.SLOWER


def a_calibration(spread=0.02, processes=40, seed=3, **changes):
    found = record_of(series(10.0, processes, spread, seed), **changes)
    found["kind"] = "calibrate"
    return found


def test_the_margin_is_never_below_what_the_machine_shows_against_itself():
    known = calibration.find([a_calibration()], record_of(series(10.0)))
    assert known is not None
    found = compare.compare(record_of(series(10.0)), record_of(series(10.15)), calibration=known)
    assert only(found).margin > 0.015
    assert only(found).verdict != compare.SLOWER


def test_a_calibration_lets_one_process_be_judged():
    known = calibration.find([a_calibration(0.005)], record_of(series(10.0)))
    one, other = record_of(series(10.0, 1)), record_of(series(12.0, 1))
    assert only(compare.compare(one, other, calibration=known)).verdict == compare.SLOWER
    near = record_of(series(10.05, 1))
    assert only(compare.compare(one, near, calibration=known)).verdict != compare.SLOWER


def test_a_noisy_machine_makes_nothing_the_same():
    known = calibration.find([a_calibration(0.15, processes=10)], record_of(series(10.0)))
    found = compare.compare(record_of(series(10.0)), record_of(series(10.9)), calibration=known)
    assert only(found).verdict == compare.INCONCLUSIVE
    assert "differs from itself" in only(found).reason


def test_a_calibration_of_another_machine_or_problem_is_not_used():
    record = record_of(series(10.0))
    assert calibration.find([a_calibration(fingerprint=fingerprint("c" * 16, "other"))], record) is None
    assert calibration.find([a_calibration(options={"threads": 1})], record) is None
    assert calibration.find([record_of(series(10.0))], record) is None


def test_disturbed_iterations_do_not_count():
    base, new = record_of(series(10.0)), record_of(series(10.0, seed=2))
    for samples in new["results"][0]["forward"]["samples"]:
        samples[0] = 500.0
    new["results"][0]["forward"]["excluded"] = [[0]] * 10
    assert only(compare.compare(base, new)).verdict != compare.SLOWER


def test_records_of_one_thing_are_pooled_and_of_two_are_not():
    records = [record_of(series(10.0, 3, seed=seed)) for seed in range(3)]
    found = pool.pooled(records)
    assert len(found["results"][0]["forward"]["samples"]) == 9
    with pytest.raises(MachineError, match="threads"):
        pool.pooled([records[0], record_of(series(10.0), options={"threads": 1})])


@pytest.fixture
def archived(tmp_path):
    archive = store.Archive(tmp_path / "results")
    paths = [archive.write(record_of(series(level, seed=level))) for level in (10.0, 10.0, 12.0)]
    return tmp_path / "results", paths


def test_the_command_reads_paths_ids_and_latest(archived, capsys):
    folder, paths = archived
    assert command.main(["latest~2", "latest", "--archive", str(folder)]) == 1
    assert "slower" in capsys.readouterr().out
    assert command.main([str(paths[0]), paths[1].stem.rsplit("-", 1)[1], "--archive", str(folder)]) == 0
    assert command.main([str(paths[0].parent / "*.json"), "latest", "--archive", str(folder)]) in {0, 1}


def test_the_command_prints_json_alone_on_stdout(archived, capsys):
    folder, _ = archived
    assert command.main(["latest~1", "latest", "--json", "--archive", str(folder)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["overall"] == "slower"
    assert found["exit_code"] == 1
    assert found["rows"][0]["ratio"] == pytest.approx(1.2, rel=0.02)


def test_the_command_prints_markdown_for_a_pull_request(archived, capsys):
    folder, _ = archived
    command.main(["latest~1", "latest", "--markdown", "--archive", str(folder)])
    assert "| model | phase |" in capsys.readouterr().out


def test_case_E4_the_command_refuses_with_exit_code_3_and_labels_what_is_forced(tmp_path, capsys):
    archive = store.Archive(tmp_path)
    a = archive.write(record_of(series(10.0), fingerprint=fingerprint("a" * 16, "EPYC 9V74")))
    b = archive.write(record_of(series(12.6), fingerprint=fingerprint("b" * 16, "EPYC 7763")))
    assert command.main([str(a), str(b), "--archive", str(tmp_path)]) == 3
    assert "hardware.cpu.brand (EPYC 9V74 / EPYC 7763)" in capsys.readouterr().err
    assert command.main([str(a), str(b), "--force", "--archive", str(tmp_path)]) == 1
    assert "FORCED" in capsys.readouterr().out


def test_bad_words_on_the_command_line_exit_2(archived, capsys):
    folder, _ = archived
    assert command.main(["latest~9", "latest", "--archive", str(folder)]) == 2
    assert command.main(["latest", "latest", "--margin", "-1", "--archive", str(folder)]) == 2
    assert command.main(["latest", "nowhere-*.json", "--archive", str(folder)]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_device_time_is_compared_with_device_time_and_never_with_stream_time():
    def with_graph(level, graph):
        record = record_of(series(level), series(2 * level))
        if graph is not None:
            record["results"][0]["forward_graph"] = phase(*series(graph))
        return record

    found = verdicts(compare.compare(with_graph(10.0, 5.0), with_graph(10.0, 6.0), margin=0.02))
    assert found["cudnn", "forward_graph"] == compare.SLOWER
    assert found["cudnn", "forward"] != compare.SLOWER
    found = verdicts(compare.compare(with_graph(10.0, 5.0), with_graph(10.0, None)))
    assert found["cudnn", "forward_graph"] == compare.ONLY_BASE
    assert ("cudnn", "backward_graph") not in found


def test_records_in_another_number_format_are_refused_and_so_is_each_row():
    half = record_of(series(5.0), options={"dtype": "bf16"})
    half["results"][0]["dtype"] = "bf16"
    found = compare.compare(record_of(series(10.0)), half)
    assert found.refusals[0].field == "dtype"
    row = only(compare.compare(record_of(series(10.0)), half, force=True))
    assert (row.verdict, row.field) == (compare.NOT_COMPARABLE, "dtype")
