"""Claims about the choice of bench CPUs."""

from __future__ import annotations

import pytest
from machines import lay_out

from env import topology
from env.errors import UsageError
from env.sysfs import CPU, Files


def read(folder, *names, **more):
    return topology.read(Files(str(lay_out(folder, *names, **more))))


def test_case_A11_the_closure_of_a_cpu_holds_its_sibling(tmp_path):
    found = read(tmp_path, "A11_smt_sibling")
    assert topology.sibling_closure(found, [1]) == {1, 5}


@pytest.mark.parametrize("text", ["1,5", "1,5\n", "1,5 \n"])
def test_case_A11_a_list_of_siblings_is_read_however_it_ends(tmp_path, text):
    found = read(tmp_path, "A11_smt_sibling", **{f"{CPU[1:]}/cpu1/topology/thread_siblings_list": text})
    assert found.siblings[1] == {1, 5}


def test_case_A11_a_range_of_siblings_is_read(tmp_path):
    names = {f"{CPU[1:]}/cpu{cpu}/topology/thread_siblings_list": "1-2\n" for cpu in (1, 2)}
    assert read(tmp_path, "A11_smt_sibling", **names).siblings[1] == {1, 2}


def test_case_A11_an_offline_sibling_does_not_split_a_core(tmp_path):
    found = read(tmp_path, "A11_smt_sibling", **{f"{CPU[1:]}/online": "0-4,6-7\n"})
    choice = topology.choose(found, "1")
    assert found.siblings[1] == {1}
    assert not choice.warnings


def test_case_A11_a_split_core_is_flagged(tmp_path):
    choice = topology.choose(read(tmp_path, "A11_smt_sibling"), "1")
    assert choice.cpus == (1,)
    assert any("core 1,5 is split" in warning for warning in choice.warnings)


def test_the_best_choice_takes_whole_cores_and_leaves_one(tmp_path):
    choice = topology.choose(read(tmp_path, "A11_smt_sibling"))
    assert choice.cpus == (1, 2, 3, 5, 6, 7)
    assert choice.housekeeping == (0, 4)
    assert not choice.warnings


def test_case_A12_intel_says_which_cores_are_which(tmp_path):
    found = read(tmp_path, "A12_hybrid_intel")
    assert {cpu for cpu, kind in found.classes.items() if kind == "performance"} == set(range(16))
    assert {cpu for cpu, kind in found.classes.items() if kind == "efficiency"} == set(range(16, 32))


def test_case_A12_the_best_choice_stays_in_the_fast_class(tmp_path):
    choice = topology.choose(read(tmp_path, "A12_hybrid_intel"))
    assert choice.cpus == tuple(range(16))
    assert set(choice.classes) == {"performance"}


def test_case_A12_a_mixture_is_warned_about_and_every_class_recorded(tmp_path):
    choice = topology.choose(read(tmp_path, "A12_hybrid_intel"), "14-17")
    assert choice.classes == ("performance", "performance", "efficiency", "efficiency")
    assert any("mixes core classes" in warning for warning in choice.warnings)


def test_case_A12_without_the_kernels_word_the_class_is_unknown(tmp_path):
    found = read(tmp_path, "A12_hybrid_unknown")
    assert set(found.classes.values()) == {"unknown"}


def test_case_A12_arm_capacities_tell_the_classes(tmp_path):
    found = read(tmp_path, "A12_hybrid_arm")
    assert [found.classes[cpu] for cpu in range(8)] == ["efficiency"] * 4 + ["performance"] * 4
    assert topology.choose(found).cpus == (4, 5, 6, 7)


def test_one_node_is_chosen_and_the_boot_cpus_node_is_left(tmp_path):
    choice = topology.choose(read(tmp_path, "two_nodes"))
    assert choice.cpus == (2, 3, 6, 7)
    assert choice.mems == (1,)


def test_the_node_near_the_gpu_is_preferred(tmp_path):
    found = read(tmp_path, "two_nodes")
    assert topology.choose(found, near=0).cpus == (0, 1, 4, 5)


@pytest.mark.parametrize(
    ("address", "node"),
    [
        ("00000000:17:00.0", 0),
        ("00000000:CA:00.0", 1),
        ("0000:cb:00.0", None),
        ("0000:ff:00.0", None),
        (None, None),
    ],
)
def test_a_gpus_node_is_found_by_nvmls_spelling_of_its_address(tmp_path, address, node):
    assert topology.gpu_node(Files(str(lay_out(tmp_path, "two_nodes"))), address) == node


def test_cpus_on_two_nodes_are_warned_about(tmp_path):
    choice = topology.choose(read(tmp_path, "two_nodes"), "1-2,5-6")
    assert choice.mems == (0, 1)
    assert any("spans NUMA nodes" in warning for warning in choice.warnings)


def test_case_B6_all_cpus_are_refused(tmp_path):
    choice = topology.choose(read(tmp_path, "B6_sixteen"), "0-15")
    assert "no whole core" in choice.refusal


def test_case_B6_half_a_core_is_no_housekeeping(tmp_path):
    choice = topology.choose(read(tmp_path, "B6_sixteen"), "0-14")
    assert "no whole core" in choice.refusal


def test_case_B6_one_cpu_cannot_be_shielded(tmp_path):
    choice = topology.choose(read(tmp_path, "B6_one_cpu"))
    assert choice.cpus == (0,)
    assert "pin only" in choice.refusal


def test_case_B9_cpus_outside_the_allowed_set_are_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="4-7"):
        topology.choose(read(tmp_path, "B9_slice"), "0-3")


def test_case_B9_the_best_choice_stays_inside_the_allowed_set(tmp_path):
    assert set(topology.choose(read(tmp_path, "B9_slice")).cpus) == {5, 6, 7}


def test_isolated_cpus_are_left_unless_asked_for(tmp_path):
    found = read(tmp_path, "B6_sixteen", **{f"{CPU[1:]}/isolated": "7,15\n"})
    assert not {7, 15} & set(topology.choose(found).cpus)
    assert any("isolcpus" in warning for warning in topology.choose(found, "7,15").warnings)
