"""CPU lists and masks: the kernel's grammar, what a person may type, and what is refused."""

from __future__ import annotations

import pytest

from env.cpulist import format_list, format_mask, parse_list, parse_mask, parse_request
from env.errors import UsageError

KERNEL = {
    "1-3,7": {1, 2, 3, 7},
    "0-3,8": {0, 1, 2, 3, 8},
    "": set(),
    "\n": set(),
    " (null)\n": set(),
    "0-31:2/4": {0, 1, 4, 5, 8, 9, 12, 13, 16, 17, 20, 21, 24, 25, 28, 29},
    "1,1,2": {1, 2},
    "0-1\0": {0, 1},
}
REFUSED = (
    "",
    " ",
    "3-1",
    "1,,3",
    "-1",
    "1-",
    "all",
    "0x3",
    "1,2-",
    "9999999",
    "200999000000-100999000000",
    "1;2",
    "²",
)


@pytest.mark.parametrize(("text", "cpus"), KERNEL.items())
def test_case_B5_a_list_of_the_kernel_is_read(text, cpus):
    assert parse_list(text) == cpus


@pytest.mark.parametrize("text", ["3-1", "1,,3", "-1", "1-", "all", "0-3:3/2", "200999000000-100999000000"])
def test_case_B5_what_is_no_list_is_no_set_of_cpus(text):
    with pytest.raises(ValueError):
        parse_list(text)


@pytest.mark.parametrize("text", REFUSED)
def test_case_B5_what_a_person_mistypes_is_a_usage_error_and_no_giant_range(text):
    with pytest.raises(UsageError, match="write CPUs as 1-3,7"):
        parse_request(text, range(8))


@pytest.mark.parametrize(("text", "cpus"), [("1-3, 7", (1, 2, 3, 7)), ("2,2", (2,)), ("7,1", (1, 7))])
def test_case_B5_blanks_repeats_and_any_order_are_accepted(text, cpus):
    assert parse_request(text, range(8)) == cpus


@pytest.mark.parametrize("text", ["9,1", "1,9", "0-8", "65535"])
def test_case_B5_every_group_is_compared_with_what_is_allowed(text):
    with pytest.raises(UsageError, match="cannot be used by this process; it may use 0-7"):
        parse_request(text, range(8))


@pytest.mark.parametrize(
    ("mask", "cpus"),
    [
        ("00000001,00000001", {0, 32}),
        ("0x00000001,0x00000001", {0, 32}),
        ("f", {0, 1, 2, 3}),
        ("0\n", set()),
        ("80000000,00000000,00000000", {95}),
    ],
)
def test_case_B5_a_mask_of_more_than_one_word_is_read(mask, cpus):
    assert parse_mask(mask) == cpus


@pytest.mark.parametrize("text", ["", "g", "1,,1", "f" * 100_000])
def test_case_B5_what_is_no_mask_is_refused(text):
    with pytest.raises(ValueError, match="is no CPU mask"):
        parse_mask(text)


@pytest.mark.parametrize("like", ["3", "ffffffff", "00000000,00000003", "3,ffffffff,ffffffff"])
def test_a_mask_is_as_wide_as_the_kernel_wrote_it_and_reads_back(like):
    text = format_mask({0, 1}, like)
    assert parse_mask(text) == {0, 1}
    assert [len(word) for word in text.split(",")] == [len(word) for word in like.split(",")]


@pytest.mark.parametrize("cpus", [set(), {0}, {0, 1, 2, 8}, {1, 3, 5}, set(range(200))])
def test_what_is_written_is_read_back(cpus):
    assert parse_list(format_list(cpus)) == cpus
