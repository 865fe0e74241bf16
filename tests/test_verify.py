"""Claims about `python -m fastrnns.test`: its flags, its answers, and what it does when a worker dies."""

import io
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fastrnns import runner, test
from fastrnns.errors import UsageError
from fastrnns.interrupts import Interrupts
from fastrnns.measure.process import ChildDied
from fastrnns.verify import flags, report, session

ROOT = Path(__file__).parent.parent
SMALL = ["--seqLength", "5", "--inputSize", "7", "--hiddenSize", "6", "--miniBatch", "3"]


def options(*words):
    argv = ["--device", "cpu", "--env", "ignore", *words]
    return flags.verify_options(argv, flags.parser().parse_args(argv))


def command(*words, **kwargs):
    return subprocess.run(
        [sys.executable, "-m", "fastrnns.test", "--device", "cpu", "--env", "ignore", *words],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        **kwargs,
    )


def check(tensor="output", against="cudnn", **facts):
    given = {"ok": True, "max_abs": 1e-7, "allowed": 1e-3, "index": [0], "got": 0.5, "want": 0.5}
    return {"tensor": tensor, "against": against, "control_max_abs": None, "problem": "", **given, **facts}


class FakeChild:
    """A worker that says what a test wrote down, and then ends as it says."""

    def __init__(self, events, ending=EOFError):
        self.pid = 1
        self.sent = []
        self.stopped = False
        self._events = [*events, ending]

    def send(self, message):
        self.sent.append(message)

    def receive(self, timeout=None):
        event = self._events.pop(0)
        if event is None or isinstance(event, dict):
            return event
        raise event

    def stop(self):
        self.stopped = True


def started(name):
    return {"event": "model_start", "model": name}


def checked(name, ok=True, checks=()):
    return {
        "event": "checked",
        "model": name,
        "ok": ok,
        "backend": "ATen",
        "notes": [],
        "checks": list(checks),
    }


DONE = {"event": "done"}


def listen(children, *words, interrupts=None):
    found = session.Found()
    waiting = iter(children)
    story = report.Story(3, io.StringIO())
    session.check_all(options(*words), found, story, interrupts or Interrupts(), lambda: next(waiting))
    return found.results


# -- the command line


def test_the_defaults_are_upstreams():
    found = options()
    assert found.models == ("jit_premul", "jit")
    assert (found.seed, found.check_grad, found.verbose, found.tf32) == (17, True, False, False)
    assert flags.parser().parse_args([]).device == "auto"


@pytest.mark.parametrize(
    ("words", "value"),
    [([], True), (["--check-grad"], True), (["--check-grad", "False"], False), (["--check_grad", "true"], True),
     (["--check-grad=no"], False)],
)  # fmt: skip
def test_case_D2_upstream_fault_10_check_grad_false_is_false(words, value):
    assert options(*words).check_grad is value


def test_upstream_fault_10_seed_zero_is_a_seed():
    assert options("--seed", "0").job()["seed"] == 0


def test_all_means_every_model():
    on_cpu = [name for name, model in runner.REGISTRY.items() if "cpu" in model.devices]
    assert options("--all").models == tuple(on_cpu)
    assert {name for name, _ in options("--all").unsupported} == set(runner.REGISTRY) - set(on_cpu)


def test_all_with_two_layers_leaves_the_others_unsupported_with_a_reason():
    found = options("--all", "--numLayers", "2")
    assert "jit" not in found.models
    assert any(name == "jit" and "one layer" in reason for name, reason in found.unsupported)


def test_upstream_fault_8_a_named_model_that_cannot_is_refused():
    with pytest.raises(UsageError, match="models with several layers"):
        options("--rnns", "jit", "--numLayers", "2")


def test_variable_lstms_are_added():
    assert options("--variable-lstms", "--rnns", "jit").models == ("jit", *runner.VARIABLE)


def test_networks_are_smaller_on_the_cpu_and_recorded():
    assert options().recorded()["images"] == 4
    assert options().recorded()["image_size"] == 64


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--rnns", "jitt"], 2, "no model is named 'jitt'"),
        (["--rnns", "jit", "--numLayers", "2"], 2, "one layer"),
        (["--hiddenSize", "0"], 2, "--hiddenSize is 0"),
        (["--seed", "-1"], 2, "--seed"),
    ],
)
def test_a_refusal_is_one_sentence_and_imports_no_torch(words, code, said, capsys):
    before = "torch" in sys.modules
    assert test.main(["--device", "cpu", *words]) == code
    told = capsys.readouterr()
    assert said in told.err
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert ("torch" in sys.modules) == before


def test_the_parent_never_imports_torch():
    code = (
        "import sys; from fastrnns import test; from fastrnns.verify import session, report, flags;"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# -- workers that die, hang or stop


def test_a_worker_killed_by_a_signal_costs_its_model_and_a_fresh_one_goes_on():
    first = FakeChild([started("cudnn"), checked("cudnn"), started("jit")], ChildDied(-signal.SIGSEGV, ""))
    second = FakeChild([started("py"), checked("py"), DONE])
    found = listen([first, second], "--rnns", "cudnn", "jit", "py")
    assert [found[name]["status"] for name in ("cudnn", "jit", "py")] == ["ok", "failed", "ok"]
    assert "SIGSEGV" in found["jit"]["error"]
    assert second.sent[0]["models"] == ["py"]
    assert first.stopped
    assert second.stopped


def test_a_worker_that_cannot_start_fails_every_model_and_is_not_tried_for_ever():
    dead = FakeChild([], ChildDied(1, "ModuleNotFoundError: No module named 'torch'"))
    found = listen([dead], "--rnns", "cudnn", "jit")
    assert {result["status"] for result in found.values()} == {"failed"}
    assert "No module named 'torch'" in found["jit"]["error"]


def test_a_worker_that_ends_without_an_answer_fails_its_model():
    found = listen(
        [FakeChild([started("jit")]), FakeChild([started("py"), checked("py"), DONE])], "--rnns", "jit", "py"
    )
    assert "without an answer" in found["jit"]["error"]
    assert found["py"]["status"] == "ok"


def test_a_model_that_hangs_fails_and_the_next_one_is_checked(monkeypatch):
    monkeypatch.setattr(session, "SILENCE_SECONDS", -1.0)
    silent = FakeChild([started("jit"), None])
    found = listen([silent, FakeChild([started("py"), checked("py"), DONE])], "--rnns", "jit", "py")
    assert "no answer within" in found["jit"]["error"]
    assert silent.stopped
    assert found["py"]["status"] == "ok"


def test_an_interrupt_stops_the_worker_and_keeps_what_was_checked():
    interrupts = Interrupts()

    class Interrupted(FakeChild):
        def receive(self, timeout=None):
            event = super().receive(timeout)
            interrupts.count += event.get("event") == "checked"
            return event

    child = Interrupted([started("cudnn"), checked("cudnn"), started("jit")])
    found = listen([child], "--rnns", "cudnn", "jit", interrupts=interrupts)
    assert list(found) == ["cudnn"]
    assert child.stopped


def test_a_failed_check_is_a_failed_result_that_names_the_tensor():
    wrong = check(ok=False, problem="differs from cudnn by 0.5 at [1, 2], allowed 0.001")
    found = listen([FakeChild([started("jit"), checked("jit", False, [wrong]), DONE])], "--rnns", "jit")
    assert found["jit"]["status"] == "failed"
    assert found["jit"]["error"].startswith("output: differs from cudnn by 0.5")


# -- what is said


def result(name="jit", status="ok", checks=(), **facts):
    details = {"control": "cudnn", "tolerance": "0.001"}
    return {"model": name, "status": status, "error": None, "dtype": "fp32", "checks": list(checks),
            "details": details, "notes": [], **facts}  # fmt: skip


def test_a_mismatch_is_told_with_model_tensor_element_and_both_values():
    wrong = check(ok=False, got=0.25, want=0.75, problem="differs from cudnn by 0.5 at [1, 2], allowed 0.001")
    (line,) = report.problems([result(status="failed", checks=[wrong])])
    assert line == "jit: output: differs from cudnn by 0.5 at [1, 2], allowed 0.001 (got 0.25, want 0.75)"


def test_many_mismatches_are_counted():
    lines = report.problems([result(status="failed", checks=[check(ok=False)] * 20)])
    assert len(lines) == report.MOST_PROBLEMS + 1
    assert "12 more" in lines[-1]


def test_the_error_against_float64_is_printed_for_both_sides():
    checks = [check(), check(against="float64", max_abs=2e-7, control_max_abs=3e-7)]
    text = "\n".join(report.table([result(checks=checks)]))
    for part in ("1.0e-07", "2.0e-07", "3.0e-07", "of the control"):
        assert part in text
    assert max(map(len, text.splitlines())) <= report.WIDTH


def test_the_tolerance_is_printed_with_its_number_format():
    assert report.tolerances([result(checks=[check()])]) == ["largest difference allowed: 0.001 (fp32): jit"]


# -- the real thing


def test_the_command_checks_models_and_leaves_a_record(tmp_path):
    done = command("--rnns", "jit", "aten", *SMALL, "--archive", str(tmp_path / "a b"), "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["exit_code"]) == ("verify", 0)
    assert [one["status"] for one in found["results"]] == ["ok", "ok"]
    assert found["results"][1]["backend"] == "ATen"
    assert found["options"]["products"] == {"matmul_tf32": False, "cudnn_tf32": False}
    assert len(list((tmp_path / "a b").glob("*/*verify*.json"))) == 1
    assert "float64" in done.stderr


def test_case_D2_upstream_fault_5_a_mismatch_ends_without_a_debugger_and_the_rest_still_runs(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'fastrnns.verify.worker' in ' '.join(sys.orig_argv):\n"
        "    from fastrnns.verify import references\n"
        "    real = references.gru\n"
        "    references.REFERENCES['gru'] = lambda i, w: {k: v + 1 for k, v in real(i, w).items()}\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "fastrnns.test", "--device", "cpu", "--env", "ignore", *SMALL,
         "--rnns", "gru", "cudnn", "--json"],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    wrong, right = json.loads(done.stdout)["results"]
    assert (wrong["model"], wrong["status"], right["status"]) == ("gru", "failed", "ok")
    first = next(one for one in wrong["checks"] if not one["ok"])
    assert first["tensor"] == "output"
    assert first["index"] is not None
    assert first["want"] - first["got"] == pytest.approx(1, abs=1e-5)
    assert "gru: output: differs from float64 by 1" in done.stderr.replace("\n  ", " ")
    assert "Traceback" not in done.stderr
    assert "Pdb" not in done.stdout + done.stderr


def test_verbose_prints_the_graph_that_torchscript_ran():
    done = command("--rnns", "jit", *SMALL, "--verbose")
    assert done.returncode == 0, done.stderr
    assert "graph(" in done.stderr
    assert "graph(" not in done.stdout


def test_ctrl_c_ends_with_130_and_a_record_marked_interrupted(tmp_path):
    started = subprocess.Popen(
        [sys.executable, "-m", "fastrnns.test", "--device", "cpu", "--env", "ignore", "--rnns", "cudnn", "vl_py",
         "--seqLength", "30", "--miniBatch", "128", "--archive", str(tmp_path)],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    for line in started.stderr:
        if "cudnn ok" in line:
            break
    time.sleep(0.2)
    started.send_signal(signal.SIGINT)
    _, told = started.communicate(timeout=60)
    assert started.returncode == 130, told
    (path,) = tmp_path.glob("*/*verify*.json")
    found = json.loads(path.read_text())
    assert found["exit_code"] == 130
    assert found["options"]["interrupted"] is True
    assert found["verdict"]["status"] == "invalid"
    assert [one["model"] for one in found["results"]] == ["cudnn"]
