import pytest

from env.perf import RATE
from env.privilege import Privilege
from env.sysfs import Files
from fastrnns.profiling import sampling


@pytest.fixture
def tree(tmp_path):
    def make(value):
        path = tmp_path / RATE.lstrip("/")
        path.parent.mkdir(parents=True)
        path.write_text(f"{value}\n")
        return path, Files(str(tmp_path))

    return make


def test_a_lowered_limit_is_raised_for_the_profile_and_put_back(tree):
    path, files = tree(1)
    with sampling.raised(files, Privilege(files)) as note:
        assert path.read_text().strip() == "100000"
        assert note == "the perf sampling limit was raised from 1 to 100000 a second for the profile"
    assert path.read_text().strip() == "1"


def test_it_is_put_back_when_the_profile_fails(tree):
    path, files = tree(1)
    with pytest.raises(ValueError, match="no"), sampling.raised(files, Privilege(files)):
        raise ValueError("no")
    assert path.read_text().strip() == "1"


def test_a_limit_that_is_high_enough_is_left_alone(tree):
    path, files = tree(100000)
    with sampling.raised(files, Privilege(files)) as note:
        assert note is None
    assert path.read_text() == "100000\n"


def test_a_machine_without_perf_needs_nothing(tmp_path):
    files = Files(str(tmp_path))
    with sampling.raised(files, Privilege(files)) as note:
        assert note is None
