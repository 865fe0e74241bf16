"""Claims about the problem and its flags."""

import argparse

import pytest

from fastrnns import sizes
from fastrnns.errors import UsageError
from fastrnns.sizes import Problem


def parsed(*words):
    parser = argparse.ArgumentParser()
    sizes.add_problem_flags(parser)
    return sizes.problem_from(parser.parse_args(words))


def test_the_defaults_are_upstreams():
    assert parsed() == Problem(100, 1, 512, 512, 64)


@pytest.mark.parametrize("flag", ["--seqLength", "--seq-length", "--seq_length"])
def test_a_size_is_accepted_in_every_spelling(flag):
    assert parsed(flag, "7").seq_length == 7


@pytest.mark.parametrize("size", ["0", "-1", "1000001"])
def test_an_impossible_size_is_refused_by_its_flag(size):
    with pytest.raises(UsageError, match="--hiddenSize"):
        parsed("--hiddenSize", size)


def test_sizes_that_no_machine_holds_are_refused_together():
    with pytest.raises(UsageError, match="GiB"):
        parsed("--seqLength", "1000000", "--miniBatch", "1000000")


def test_the_sizes_go_into_a_record_by_name():
    assert Problem().as_dict()["mini_batch"] == 64
