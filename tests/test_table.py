import io

import pytest

from fastrnns.present import table


def phase(median, **facts):
    made = {
        "median": median,
        "ci95": [median * 0.99, median * 1.01],
        "mean": median,
        "std": median / 10,
        "n": 300,
    }
    return {**made, **facts}


def result(name, forward=1.0, backward=2.0, status="ok", **facts):
    return {
        "model": name,
        "status": status,
        "error": facts.pop("error", None),
        "backend": facts.pop("backend", "oneDNN 3.12.0"),
        "forward": None if forward is None else phase(forward),
        "backward": None if backward is None else phase(backward),
        "details": {"marks": facts.pop("marks", [])},
    } | facts


def printed(results, sep=" "):
    stream = io.StringIO()
    table.show(results, stream, sep)
    return stream.getvalue()


def test_the_table_fits_100_columns():
    text = printed(
        [
            result("cudnn", 109.26, 203.1),
            result("jit_layernorm_decom", 12345.6, 98765.4, marks=["cut short", "not steady"],
                   backend="TorchScript (TensorExpr fuser, profiling executor) on ATen"),
            result("jit", None, None, status="failed", error="RuntimeError: " + "long " * 60),
        ]
    )  # fmt: skip
    assert max(map(len, text.splitlines())) <= 100
    for wanted in (
        "109.3",
        "12346",
        "cut short",
        "jit_layernorm_decom",
        "TorchScript",
        "failed: RuntimeError",
    ):
        assert wanted in " ".join(text.split())


def test_a_ratio_is_shown_only_over_the_model_it_may_be_set_against():
    rows = table.rows(
        [result("cudnn", 2.0), result("jit", 3.0), result("jit_simple", 1.0), result("resnet18", 5.0)]
    )
    assert [(row.model, row.ratio) for row in rows if row.phase == "forward"] == [
        ("cudnn", ""), ("jit", "1.50"), ("jit_simple", ""), ("resnet18", ""),
    ]  # fmt: skip
    assert [row.ratio for row in table.rows([result("jit", 3.0)])] == ["", ""]
    assert "jit over cudnn" in printed([result("cudnn", 2.0), result("jit", 3.0)])


def test_upstream_fault_4_a_failed_model_stays_in_the_table():
    assert "jit: failed: no" in printed([result("jit", None, None, status="failed", error="no")])


def test_upstream_fault_7_jit_simple_is_not_set_against_another_model():
    assert table.reference(result("jit_simple"), {"cudnn": result("cudnn")}) is None


def test_case_D7_what_is_not_known_is_a_dash():
    assert (table.number(None), table.interval(None)) == ("-", "-")


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.00123, "0.001230"), (1.5, "1.500"), (109.26, "109.3"), (999.96, "1000."), (12345.6, "12346")],
)
def test_numbers_have_four_digits_that_count(value, text):
    assert table.number(value) == text


def test_another_separator_makes_a_table_for_programs():
    lines = printed(
        [result("cudnn", 2.0), result("jit", None, None, status="failed", error="no")], sep=","
    ).splitlines()
    assert lines[0].split(",")[:3] == ["model", "phase", "median_ms"]
    assert lines[1].split(",") == ["cudnn", "forward", "2", "1.98", "2.02", "2", "0.2", "300", "ok"]
    assert lines[-1].split(",") == ["jit", "", "", "", "", "", "", "0", "failed"]
    assert len({line.count(",") for line in lines}) == 1


def test_brackets_in_an_error_are_text_and_not_markup():
    assert "[bold] [/x]" in printed([result("jit", None, None, status="failed", error="[bold] [/x]")])


def test_the_registry_fits_100_columns():
    stream = io.StringIO()
    table.models(stream)
    assert max(map(len, stream.getvalue().splitlines())) <= 100
    assert "jit_layernorm_decom" in stream.getvalue()


def test_device_time_has_rows_of_its_own_and_the_cold_start_a_line():
    facts = {"forward_graph": phase(0.5), "backward_graph": phase(0.9)}
    cold = {"built": [3.0, 1.0], "first_forward": [900.4, 9.0], "first_backward": None}
    text = printed([result("cudnn", cold_start=cold, **facts), result("aten", **facts)])
    lines = text.splitlines()
    assert max(map(len, lines)) <= table.WIDTH
    assert next(line.split()[:3] for line in lines if "graph" in line) == ["fwd", "graph", "0.5000"]
    assert "first backward: cudnn 3 + 900" in " ".join(text.split())
    assert "forward_graph" in printed([result("cudnn", **facts)], ",")
