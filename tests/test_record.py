"""A record is as its schema says, strict, private, and hashed; anything else is refused in one sentence."""

import copy
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from records import bench, phase, result

from env import privacy
from fastrnns.archive import record
from fastrnns.archive.record import RecordError


def test_a_new_record_is_valid_json_and_not_a_valid_result():
    found = record.seal(record.new("bench", ["x"], None, {}))
    assert found["verdict"]["status"] == "invalid"
    record.validate(found)


def test_a_sealed_record_is_read_back_as_it_was():
    sealed = record.seal(bench("cudnn", "jit"))
    assert record.parse(json.dumps(sealed).encode()) == sealed


def test_the_schema_is_itself_a_schema():
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(record.schema())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["surprise"], 1),
        (["verdict", "status"], "fine"),
        (["problem", "seq_length"], 0),
        (["problem", "extra"], 1),
        (["duration_s"], -1.0),
        (["started_at"], "yesterday"),
        (["id"], "../../etc"),
        (["kind"], "Bench"),
        (["results", 0, "status"], "skipped"),
        (["results", 0, "surprise"], 1),
        (["results", 0, "forward", "unit"], "s"),
        (["results", 0, "forward", "samples"], [1.0]),
        (["results", 0, "forward", "samples"], [["1.0"] * 40]),
        (["results", 0, "forward", "samples"], [[True] * 40]),
        (["environment", "before"], [{"name": "x"}]),
        (["fingerprint", "ids", "extra"], "0" * 16),
    ],
)
def test_what_the_schema_does_not_know_is_refused_by_place(path, value):
    found = copy.deepcopy(bench("cudnn"))
    place = found
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(RecordError, match="at ") as caught:
        record.validate(found)
    assert "\n" not in str(caught.value)


def test_a_failed_result_needs_an_error():
    with pytest.raises(RecordError):
        record.validate(bench() | {"results": [result(status="failed", forward=None, backward=None)]})


@pytest.mark.parametrize(
    ("version", "said"), [(2, "newer"), (0, "older"), ("1", "no schema version"), (True, "no schema")]
)
def test_other_versions_are_refused_readably(version, said):
    with pytest.raises(RecordError, match=said):
        record.validate(bench() | {"schema": version})


@pytest.mark.parametrize("value", [[], "text", None, 1])
def test_what_is_no_object_is_no_record(value):
    with pytest.raises(RecordError, match="not a record"):
        record.validate(value)


def test_case_E1_nan_in_a_summary_is_null_and_a_note_of_that_model():
    spoiled = bench("cudnn", "jit")
    spoiled["results"][1]["forward"] |= {"std": math.nan, "mean": np.float32(2.5)}
    sealed = record.seal(spoiled)
    assert sealed["results"][1]["forward"]["std"] is None
    assert sealed["results"][1]["forward"]["mean"] == 2.5
    assert sealed["results"][1]["notes"] == ["forward.std is nan, which JSON cannot hold"]
    assert sealed["results"][0]["notes"] == []
    assert math.isnan(spoiled["results"][1]["forward"]["std"])  # the caller's record is left alone


def test_case_E1_nan_in_a_long_series_is_found_on_validation():
    spoiled = bench()
    spoiled["results"][0]["forward"]["samples"] = [[1.0] * 50 + [math.nan]]
    with pytest.raises(RecordError, match="NaN or infinite"):
        record.validate(spoiled)


def test_an_edited_record_is_refused():
    text = json.dumps(record.seal(bench())).replace('"exit_code": 0', '"exit_code": 1')
    with pytest.raises(RecordError, match="was edited"):
        record.parse(text.encode(), "x.json")


def test_case_E7_names_paths_and_tokens_are_in_no_record_and_no_byte_is_lost(monkeypatch):
    monkeypatch.setenv("USER", "mallory")
    privacy.forget()
    spoiled = bench()
    spoiled["command"]["argv"] = ["/home/mallory/x.py", "--archive", "/home/mallory/\udcff"]
    spoiled["results"][0]["notes"] = ["seen by mallory with ghp_" + "x1" * 18]
    text = json.dumps(record.seal(spoiled))
    privacy.forget()
    assert "mallory" not in text
    assert "ghp_" not in text
    assert "\\udcff" in text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=20,
    )
)
def test_whatever_the_details_hold_the_record_can_be_written_and_read(details):
    found = bench()
    found["details"] = {"x": details}
    sealed = record.seal(found)
    assert record.parse(json.dumps(sealed, allow_nan=False).encode()) == sealed


def test_a_hundred_thousand_samples_are_checked_fast():
    import time

    found = bench()
    found["results"][0]["forward"] = phase([1.5] * 100_000)
    sealed = record.seal(found)
    began = time.process_time()
    record.validate(sealed)
    assert time.process_time() - began < 5
