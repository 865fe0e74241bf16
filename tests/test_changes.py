import pytest

from fastrnns.errors import UsageError
from fastrnns.profiling.changes import against


def phase(wall, names, **more):
    rows = [{"name": name, "own_ms": own, "calls": 1, "share": 0.1} for name, own in names.items()]
    return {
        "wall_ms": wall,
        "work_ms": wall,
        "busy_share": 0.5,
        "kernels": {"count": len(rows), "rows": rows},
        **more,
    }


def record(forward, **more):
    return {
        "id": "0" * 12, "kind": "profile", "problem": {"seq_length": 100}, "options": {"tool": "torch"},
        "fingerprint": {"ids": {"hardware": "a"}},
        "results": [{"model": "cudnn", "profile": {"forward": forward}}], **more,
    }  # fmt: skip


def test_what_changed_is_said_in_numbers_and_names():
    base = record(phase(10.0, {"gemm": 8.0, "old": 2.0}, cudnn_algorithm={"algorithm": "STANDARD"}))
    new = record(
        phase(5.0, {"gemm": 4.0, "fast": 1.0, "same": 0.0}, cudnn_algorithm={"algorithm": "PERSIST_STATIC"})
    )
    lines = against(base, new)
    assert lines[0] == (
        "cudnn forward: 10 to 5 ms (-50%); 50% to 50% busy; 2 to 3 kernels; "
        "cuDNN's algorithm STANDARD to PERSIST_STATIC"
    )
    assert "    gemm: 8 to 4 ms (-50%)" in lines
    assert "    old: 2 to 0 ms (went)" in lines
    assert "    fast: 0 to 1 ms (came)" in lines


def test_profiles_that_were_not_run_alike_say_so_first():
    new = record(phase(5.0, {}), options={"tool": "nsys"}, fingerprint={"ids": {"hardware": "b"}}, problem={})
    lines = against(record(phase(5.0, {})), new)
    assert lines[:3] == [
        "careful: the hardware differs, so times do not compare; kernels and counts do",
        "careful: the problems differ",
        "careful: tool was torch, is nsys",
    ]


def test_a_model_that_one_record_lacks_is_named():
    assert against({**record({}), "results": []}, record(phase(1.0, {}))) == [
        "cudnn: not profiled in both records"
    ]


def test_only_a_profile_can_be_compared_with():
    with pytest.raises(UsageError, match="is a bench, not a profile"):
        against(record({}, kind="bench"), record({}))
