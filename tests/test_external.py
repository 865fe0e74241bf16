import os
import sqlite3
import sys

import pytest

from fastrnns.profiling import external, flags, ncu, nsys, nvprof, session
from fastrnns.profiling.events import ReportError
from fastrnns.profiling.plan import Plan
from fastrnns.profiling.tools import Choice
from fastrnns.sizes import Problem

NCU = (
    "==PROF== Connected to process 42\n"
    '"ID","Process Name","Host Name","Kernel Name","Id:Domain:Start/Stop_Range","gpu__time_duration.sum",'
    '"sm__throughput.avg.pct_of_peak_sustained_elapsed"\n'
    '"","","","","","nsecond","%"\n'
    '"0","python","h","void gemm<float>(int)","0:<default domain>:forward:none","1,000","50.5"\n'
    '"1","python","h","elemWiseRNNcell","0:<default domain>:forward:none","3000","10"\n'
    '"2","python","h","void gemm<float>(int)","0:<default domain>:backward:none","2000","60"\n'
)
NVPROF = (
    '==42== Profiling application: python\n"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n'
    ',%,ms,,ms,ms,ms,\n"GPU activities",75.0,3.0,10,0.3,0.1,0.5,"sgemm"\n'
    '"GPU activities",25.0,1.0,10,0.1,0.1,0.1,"lstm cell"\n"API calls",99.0,9.0,1,9.0,9.0,9.0,"cudaMalloc"\n'
)


@pytest.fixture
def stub(tmp_path):
    """A tool in a folder with a blank in its name, that runs a Python body."""

    def make(name, body):
        path = tmp_path / "the tools" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!{sys.executable}\nimport os, sqlite3, sys\nfrom pathlib import Path\n{body}\n")
        path.chmod(0o755)
        return str(path)

    return make


def plan(tool, path, **options):
    return Plan(
        ("cudnn",), Problem(), Choice(tool, path, "asked for", {}), device="cuda:0", timeout_s=30.0, **options
    )


def profiled(tool, path, tmp_path):
    return session.profile_model(plan(tool, path), "cudnn", session.Place(tmp_path))


OUTPUT = "out = next(a.split('=', 1)[1] for a in sys.argv if a.startswith(('--output=', '--export=')))\n"
TIMELINE = (
    OUTPUT
    + """
if sys.argv[1] == 'export':
    base = sqlite3.connect(out)
    base.execute('create table StringIds (id, value)')
    base.executemany('insert into StringIds values (?, ?)', [(1, 'gemm'), (2, 'cudaLaunchKernel')])
    base.execute('create table CUPTI_ACTIVITY_KIND_KERNEL (start, end, streamId, correlationId, demangledName)')
    base.execute('insert into CUPTI_ACTIVITY_KIND_KERNEL values (2000, 12000, 7, 5, 1)')
    base.execute('create table CUPTI_ACTIVITY_KIND_RUNTIME (start, end, globalTid, correlationId, nameId)')
    base.execute('insert into CUPTI_ACTIVITY_KIND_RUNTIME values (1000, 1500, 1, 5, 2)')
    base.execute('create table NVTX_EVENTS (start, end, text, textId)')
    base.execute("insert into NVTX_EVENTS values (0, 4000, 'forward', null)")
    base.commit()
else:
    Path(out + '.nsys-rep').write_bytes(b'report')
"""
)


def test_a_tool_that_leaves_a_report_is_read_back(stub, tmp_path):
    found = profiled("nsys", stub("nsys", TIMELINE), tmp_path)
    assert (found.status, found.error) == ("ok", None)
    assert found.phases["forward"]["kernels"]["rows"][0]["name"] == "gemm"
    assert found.phases["forward"]["wall_ms"] == pytest.approx(0.012)


@pytest.mark.parametrize("tool", ["nsys", "ncu", "nvprof"])
def test_case_D3_a_tool_that_exits_0_and_writes_nothing_is_a_failure(stub, tmp_path, tool):
    found = profiled(tool, stub(tool, "print('Generating the report')"), tmp_path)
    assert found.status == "failed"
    assert f"{tool} left no report (status 0): Generating the report" in found.error


def test_case_D3_an_empty_report_is_a_failure(stub, tmp_path):
    found = profiled("nsys", stub("nsys", OUTPUT + "Path(out + '.nsys-rep').touch()"), tmp_path)
    assert found.status == "failed"
    assert "left no report" in found.error


def test_upstream_fault_12_the_profiled_child_is_started_by_a_list_with_flags_that_it_knows():
    chosen = plan("nsys", "/x/nsys", nloops=3, executor="legacy", dtype="bf16")
    words = chosen.internal_run("cudnn")
    assert words[:3] == ["-m", "fastrnns.profile", "--internal-run"]
    args = flags.parser().parse_args(words[2:])
    assert args.internal_run
    assert (args.rnns, args.nloops, args.executor, args.dtype) == (["cudnn"], 3, "legacy", "bf16")
    assert (args.device, args.seq_length) == ("cuda:0", 100)


def test_case_D12_no_reports_were_generated_is_a_failure_with_that_reason(stub, tmp_path):
    found = profiled("nsys", stub("nsys", "print('No reports were generated.')"), tmp_path)
    assert found.status == "failed"
    assert "No reports were generated." in found.error


def test_case_D12_a_permission_error_of_ncu_is_the_reason(stub, tmp_path):
    body = OUTPUT + "print('==ERROR== ERR_NVGPUCTRPERM - no permission to access counters')\nprint('bye')"
    found = profiled("ncu", stub("ncu", body), tmp_path)
    assert "==ERROR== ERR_NVGPUCTRPERM" in found.error


def test_case_E7_bytes_that_are_no_utf8_do_not_hide_the_tools_own_error(stub, tmp_path, monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    body = "os.write(2, b'error: 90 \\xc2\\xb0, \\xff no\\n'); sys.exit(1)"
    found = profiled("nsys", stub("nsys", body), tmp_path)
    assert found.status == "failed"
    assert "(status 1)" in found.error
    assert "error: 90 \N{DEGREE SIGN}, \N{REPLACEMENT CHARACTER} no" in found.error


def test_case_E7_a_report_in_a_folder_of_any_name_is_read_back(stub, tmp_path):
    folder = tmp_path / os.fsdecode(b"caf\xe9 \xff")
    folder.mkdir()
    found = profiled("nsys", stub("nsys", TIMELINE), folder)
    assert found.error is None


def test_a_tool_that_never_ends_is_ended(stub):
    with pytest.raises(external.ToolFailed, match=r"did not end within 0.2 s"):
        external.run([stub("ncu", "import time; time.sleep(60)")], timeout_s=0.2)


def test_a_tool_is_ended_when_somebody_interrupts(stub):
    with pytest.raises(external.ToolFailed, match="interrupted before ncu was done"):
        external.run([stub("ncu", "import time; time.sleep(60)")], interrupted=lambda: True)


def test_a_tool_waits_until_it_has_been_put_on_its_cpus(stub, tmp_path):
    seen = []

    def adopt(pid):
        seen.append((tmp_path / "started").exists())
        os.sched_setaffinity(pid, {min(os.sched_getaffinity(0))})

    path = stub("nsys", f"Path({str(tmp_path / 'started')!r}).touch(); print(os.sched_getaffinity(0))")
    done = external.run([path], adopt=adopt)
    assert seen == [False]
    assert done.output.strip() == str({min(os.sched_getaffinity(0))})


def test_a_tools_last_words_prefer_its_error():
    done = external.Completed(1, "==ERROR== not supported\nbye\n")
    assert done.last_words == "==ERROR== not supported"
    assert external.Completed(3, "").last_words == "it ended with status 3 and said nothing"


def test_nsys_without_a_kernel_is_a_failure(tmp_path):
    database = tmp_path / "x.sqlite"
    base = sqlite3.connect(database)
    base.execute("create table NVTX_EVENTS (start, end, text, textId)")
    base.execute("create table StringIds (id, value)")
    base.commit()
    base.close()
    with pytest.raises(ReportError, match="holds no kernel"):
        nsys.read(database)
    (tmp_path / "torn.sqlite").write_bytes(b"not a database at all, but long enough to be taken for one")
    with pytest.raises(ReportError, match="cannot be read back"):
        nsys.read(tmp_path / "torn.sqlite")


def test_ncus_kernels_are_sorted_into_phases_with_their_counters():
    found = ncu.summarise(ncu.parse(NCU))
    assert found["forward"]["kernels"]["total_ms"] == pytest.approx(0.004)
    assert [row["name"] for row in found["forward"]["kernels"]["rows"]] == [
        "elemWiseRNNcell",
        "void gemm<float>(int)",
    ]
    assert found["forward"]["kernels"]["rows"][1]["sm_percent"] == pytest.approx(50.5)
    assert found["forward"]["cudnn_algorithm"]["algorithm"] == "STANDARD"
    assert found["backward"]["kernels"]["count"] == 1


def test_ncu_profiles_a_whole_model_from_a_stub(stub, tmp_path):
    body = f"if '--import' in sys.argv:\n    sys.stdout.write({NCU!r})\nelse:\n    {OUTPUT}    Path(out + '.ncu-rep').write_bytes(b'r')"
    found = profiled("ncu", stub("ncu", body), tmp_path)
    assert found.error is None
    table = (tmp_path / "cudnn.kernels.csv").read_text()
    assert table.splitlines()[0].startswith("phase,name,time_ns,sm_percent")
    assert "Host" not in table


def test_ncu_without_a_kernel_is_a_failure_with_its_reason():
    with pytest.raises(ReportError, match="==ERROR== ERR_NVGPUCTRPERM"):
        ncu.parse("==ERROR== ERR_NVGPUCTRPERM\n==WARNING== No kernels were profiled.\n")


def test_nvprofs_log_is_read_per_iteration():
    (row, other) = nvprof.parse(NVPROF, 5)["whole"]["kernels"]["rows"]
    assert row == {"name": "sgemm", "calls": 2, "own_ms": pytest.approx(0.6), "share": 0.75}
    assert other["name"] == "lstm cell"


def test_case_D3_an_nvprof_that_skips_the_gpu_is_a_failure():
    with pytest.raises(ReportError, match="GPU profiling skipped"):
        nvprof.parse("==42== Warning: GPU profiling skipped\n", 5)
