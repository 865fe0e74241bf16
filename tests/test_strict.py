"""What may not be in JSON becomes null and a reason on the way out, and is refused on the way in."""

import enum
import json
import math

import numpy as np
import pytest

from fastrnns.archive import strict as js


class Level(enum.IntEnum):
    HIGH = 3


def test_case_E1_nan_and_infinity_become_null_and_a_reason():
    reasons = []
    assert js.strict({"std": math.nan, "avg": [1.0, math.inf]}, reasons) == {"std": None, "avg": [1.0, None]}
    assert reasons == ["std is nan, which JSON cannot hold", "avg[1] is inf, which JSON cannot hold"]


def test_case_E1_scalars_of_numpy_become_numbers():
    found = js.strict([np.float32(0.5), np.int64(3), np.bool_(True), np.float64("nan"), np.array([1.5, 2.5])])
    assert found == [0.5, 3, True, None, [1.5, 2.5]]
    assert [type(value) for value in found[:3]] == [float, int, bool]


def test_case_E1_scalars_that_look_like_torchs_become_numbers():
    class Scalar:
        shape = ()

        def item(self):
            return 2.5

    assert js.strict({"x": Scalar()}) == {"x": 2.5}


def test_tuples_sets_enums_and_odd_keys_have_a_json_form():
    assert js.strict({2: (1, 2), None: {3}, True: Level.HIGH}) == {"2": [1, 2], "null": [3], "true": 3}
    reasons = []
    assert isinstance(js.strict({"x": object()}, reasons)["x"], str)
    assert reasons == ["x was a object, kept as text"]


@pytest.mark.parametrize(
    "text", [b'{"a": NaN}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": [1, Infinity]}']
)
def test_case_E1_a_file_that_holds_nan_is_refused(text):
    with pytest.raises(js.NotStrictError, match="holds"):
        js.loads(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b'{"a":1', "cut short"),
        (b'{"a":1}Results saved to: x', "other text follows"),
        (b'{"a":1,"a":2}', "twice"),
        (b'{"a":"\xff"}', "not UTF-8"),
        (b"[" * 100_000, "too deep"),
    ],
)
def test_case_E2_torn_and_mixed_files_are_refused_by_what_is_wrong(text, said):
    with pytest.raises(js.NotStrictError, match=said):
        js.loads(text)


def test_case_E7_a_lone_surrogate_survives_and_the_file_is_ascii():
    text = js.dumps({"path": "x\udcff"})
    assert text.isascii()
    assert js.loads(text.encode())["path"] == "x\udcff"


def test_the_hash_is_that_of_the_recipe_in_the_readme():
    import hashlib

    record = {"b": [1.0, 1e-7, 3], "a": "\u00e9", "sha256": "old"}
    text = json.dumps({"a": "\u00e9", "b": [1.0, 1e-7, 3]}, sort_keys=True, separators=(",", ":"))
    assert js.content_hash(record) == hashlib.sha256(text.encode()).hexdigest()


def test_the_text_of_a_record_keeps_lists_of_numbers_on_one_line():
    text = js.dumps({"samples": [[1.0, 2.0], [3.0]], "empty": {}, "none": []})
    assert "  [1.0, 2.0],\n" in text
    assert json.loads(text) == {"samples": [[1.0, 2.0], [3.0]], "empty": {}, "none": []}
