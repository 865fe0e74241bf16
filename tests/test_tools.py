import pytest

from fastrnns.errors import MachineError, UsageError
from fastrnns.profiling import tools
from fastrnns.profiling.tools import Facts, choose, counters_restricted, find_facts, refusal

ALL = {"nsys": "/x/nsys", "ncu": "/x/ncu", "nvprof": "/x/nvprof"}
H200 = Facts("cuda", (9, 0), ALL)


def test_auto_takes_torch_and_says_why_and_why_not_the_others():
    found = choose("auto", Facts("cuda", (9, 0), {"ncu": "/x/ncu"}))
    assert found.tool == "torch"
    assert "the best that works here" in found.why
    assert found.refused == {
        "nsys": "nsys is not installed (not on PATH)",
        "nvprof": "nvprof is unsupported on compute capability 8.0 and newer, and this GPU has 9.0",
    }


def test_on_a_cpu_only_torch_works():
    found = choose("auto", Facts("cpu", None, ALL))
    assert set(found.refused) == {"nsys", "ncu", "nvprof"}
    assert "sees NVIDIA GPUs only" in found.refused["ncu"]


def test_case_D3_nvprof_is_unsupported_on_the_gpus_that_it_does_not_support():
    with pytest.raises(MachineError, match=r"nvprof is unsupported on compute capability 8\.0 and newer"):
        choose("nvprof", H200)
    assert refusal("nvprof", Facts("cuda", (7, 5), ALL)) is None
    assert choose("nvprof", Facts("cuda", (7, 0), ALL)).path == "/x/nvprof"


def test_case_D12_counters_that_only_root_may_read_refuse_ncu_and_not_nsys(tmp_path):
    params = tmp_path / tools.DRIVER_PARAMS
    params.parent.mkdir(parents=True)
    params.write_text("ResmanDebugLevel: 4294967295\nRmProfilingAdminOnly: 1\n")
    assert counters_restricted(tmp_path)
    restricted = Facts("cuda", (9, 0), ALL, counters_restricted=True)
    with pytest.raises(MachineError, match=r"RmProfilingAdminOnly: 1.*run as root"):
        choose("ncu", restricted)
    assert refusal("nsys", restricted) is None
    assert refusal("torch", restricted) is None
    assert refusal("ncu", Facts("cuda", (9, 0), ALL, counters_restricted=True, root=True)) is None


def test_counters_are_free_where_the_driver_says_so_or_is_not_there(tmp_path):
    assert not counters_restricted(tmp_path)
    params = tmp_path / tools.DRIVER_PARAMS
    params.parent.mkdir(parents=True)
    params.write_bytes(b"RmProfilingAdminOnly: 0\nName: \xff\n")
    assert not counters_restricted(tmp_path)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_case_D12_torchs_profiler_is_refused_inside_nsys(device):
    environ = {"NSYS_PROFILING_SESSION_ID": "17", "PATH": ""}
    with pytest.raises(MachineError, match="runs under nsys already"):
        choose("torch", find_facts(device, (9, 0), environ=environ))
    with pytest.raises(MachineError, match="no profiler works here"):
        choose("auto", find_facts(device, (9, 0), environ=environ))


def test_tools_are_looked_for_on_path(tmp_path):
    stub = tmp_path / "a folder" / "nsys"
    stub.parent.mkdir()
    stub.write_text("#!/bin/sh\n")
    stub.chmod(0o755)
    found = find_facts("cuda", (9, 0), root=tmp_path, environ={"PATH": str(stub.parent)})
    assert found.paths == {"nsys": str(stub)}
    assert choose("nsys", found).path == str(stub)


def test_an_unknown_profiler_is_refused_with_those_there_are():
    with pytest.raises(UsageError, match="choose one of auto, torch, nsys, ncu, nvprof"):
        choose("gprof", H200)


def test_a_missing_tool_that_was_asked_for_is_refused_with_one_that_works():
    with pytest.raises(MachineError, match=r"--tool nsys: nsys is not installed .*; use --tool torch"):
        choose("nsys", Facts("cuda", (9, 0), {}))
