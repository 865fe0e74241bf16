"""Upstream's output becomes a record in milliseconds, whose verdict says what upstream does not tell."""

import json

import pytest

from fastrnns.archive import __main__ as command
from fastrnns.archive import imports, record
from fastrnns.archive.store import Archive
from fastrnns.errors import UsageError

OSS = {
    "lstm": {"cudnn": 2.5, "jit": 12.0},
    "lstm-backward": {"cudnn": 4.0, "jit": 15.0},
    "resnet": {"resnet18": 30.0},
}


def pep(metric, *values):
    lines = ({"type": "NET", "metric": metric, "unit": "ms", "value": str(value)} for value in values)
    return "".join(f"Caffe2Observer {json.dumps(line)}\n" for line in lines)


def test_oss_means_become_results_without_samples():
    found = imports.read(json.dumps(OSS), "ms")
    cudnn, jit, resnet = found["results"]
    assert (cudnn["model"], cudnn["group"], cudnn["family"]) == ("cudnn", "rnns", "lstm")
    assert (cudnn["forward"]["mean"], cudnn["backward"]["mean"]) == (2.5, 4.0)
    assert cudnn["forward"]["samples"] == []
    assert cudnn["forward"]["median"] is None
    assert jit["backward"]["mean"] == 15.0
    assert (resnet["group"], resnet["backward"]) == ("cnns", None)
    record.validate(record.seal(found))


def test_case_D4_upstream_fault_1_seconds_become_milliseconds():
    found = imports.read(json.dumps({"lstm": {"jit": 0.0271}}), "s")
    assert found["results"][0]["forward"]["mean"] == pytest.approx(27.1)


def test_pep_lines_become_samples_whatever_stands_between_them():
    text = (
        "warming up\n" + pep("lstm-cudnn", 1.0, 2.0, 3.0) + "noise\n" + pep("lstm-backward-cudnn", 2.0, 4.0)
    )
    (cudnn,) = imports.read(text, "ms")["results"]
    assert cudnn["forward"]["samples"] == [[1.0, 2.0, 3.0]]
    assert (cudnn["forward"]["median"], cudnn["forward"]["n"]) == (2.0, 3)
    assert cudnn["backward"]["mean"] == 3.0


def test_the_verdict_says_what_is_unknown_and_is_never_valid():
    said = imports.read(json.dumps(OSS), "ms")["verdict"]
    assert said["status"] == "tainted"
    text = " ".join(said["reasons"])
    for word in ("machine", "software", "sizes", "unit", "cold caches", "only means"):
        assert word in text


def test_case_D11_a_backward_of_nothing_is_invalid():
    slow = {"lstm": {"aten": 25.0}, "lstm-backward": {"aten": 0.0043}}
    said = imports.read(json.dumps(slow), "ms")["verdict"]
    assert said["status"] == "invalid"
    assert "backward not measured" in said["reasons"][0]


def test_case_E1_a_null_or_nan_is_a_failed_model_and_never_zero():
    found = imports.read('{"lstm": {"jit": NaN, "cudnn": 1.0, "py": null}}', "ms")
    assert {one["model"]: one["status"] for one in found["results"]} == {
        "jit": "failed",
        "cudnn": "ok",
        "py": "failed",
    }
    record.validate(record.seal(found))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "hello",
        "[1]",
        '{"lstm": 3}',
        '{"lstm": {"jit": "fast"}}',
        "Caffe2Observer {",
        'Caffe2Observer {"value": "1"}\n',
    ],
)
def test_anything_else_is_refused_in_one_sentence(text):
    with pytest.raises(UsageError) as caught:
        imports.read(text, "ms")
    assert "\n" not in str(caught.value)


def test_the_command_archives_and_says_the_verdict(tmp_path, capsys):
    (tmp_path / "up.json").write_text(json.dumps(OSS))
    code = command.main(
        ["import", str(tmp_path / "up.json"), "--unit", "ms", "--archive", str(tmp_path / "a b")]
    )
    assert code == 0
    out, err = capsys.readouterr()
    found = Archive(tmp_path / "a b").load(out.strip())
    assert found["kind"] == "import"
    assert "tainted" in err
    assert command.main(["show", "--archive", str(tmp_path / "a b")]) == 0
    assert command.main(["check", "--archive", str(tmp_path / "a b")]) == 0


def test_the_unit_must_be_said(tmp_path):
    with pytest.raises(SystemExit) as caught:
        command.main(["import", str(tmp_path / "x"), "--archive", str(tmp_path)])
    assert caught.value.code == 2


def test_what_was_imported_is_exported_again_only_where_that_is_possible(tmp_path):
    from fastrnns.archive import export

    found = record.seal(imports.read(pep("lstm-cudnn", 1.0, 2.0), "ms"))
    assert json.loads(export.export(found, "pyperf").data)["benchmarks"][0]["runs"][0]["values"] == [
        0.001,
        0.002,
    ]
    means = export.export(record.seal(imports.read(json.dumps(OSS), "ms")), "pyperf")
    assert any("only a mean" in remark for remark in means.remarks)
