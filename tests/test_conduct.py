import itertools

import pytest

from fastrnns.measure.conduct import Conductor, Measured, Outcome, interleave
from fastrnns.measure.plan import Plan
from fastrnns.measure.process import ChildDied


class FakeChild:
    """Plays events; an exception among them is raised, as a dead process is."""

    pid = 1

    def __init__(self, script):
        self.names = []  # told with `go`, after the hello
        self.events = iter(script(self.names))
        self.sent = []
        self.stopped = False

    def send(self, message):
        self.sent.append(message)
        if "go" in message:
            self.names += [name for name, _ in message["models"]]

    def receive(self, timeout=None):
        event = next(self.events)
        if isinstance(event, Exception):
            raise event
        return event

    def stop(self):
        self.stopped = True


def timed(name, values, backward=None):
    yield {"event": "model_start", "model": name}
    yield {"event": "ready", "model": name, "backend": "fake", "built_s": 0.5, "notes": []}
    yield samples(name, "warmup", [9.0])
    yield samples(name, "timed", values, backward)
    yield {
        "event": "model_done",
        "model": name,
        "warmup_ended": "steady",
        "timed_ended": "precise",
        "spent_s": 1.0,
    }


def samples(name, phase, values, backward=None):
    backward = [2 * value for value in values] if backward is None else backward
    return {
        "event": "iterations", "model": name, "phase": phase,
        "forward_ms": values, "backward_ms": backward, "started_ns": list(range(len(values))),
    }  # fmt: skip


def healthy(names):
    yield {"event": "hello", "threads": 1}
    for name in names:
        yield from timed(name, [1.0, 1.1, 1.2])
    yield {"event": "done"}


def conduct(names, scripts, plan=None, **hooks):
    children = []
    remaining = iter(scripts)

    def spawn():
        children.append(FakeChild(next(remaining)))
        return children[-1]

    plan = plan or Plan(processes=len(scripts), most_processes=len(scripts))
    outcome = Conductor(plan=plan, names=names, torchscript=(), job={"seed": 0}, spawn=spawn, **hooks).run()
    assert all(child.stopped for child in children)
    return outcome, children


def test_models_take_turns_and_their_place_is_kept():
    outcome, children = conduct(["a", "b"], [healthy, healthy])
    assert [[name for name, _ in child.sent[1]["models"]] for child in children] == [["a", "b"], ["b", "a"]]
    assert outcome.models["a"].order == [{"process": 0, "position": 0}, {"process": 1, "position": 1}]
    assert outcome.models["b"].forward.samples == [[1.0, 1.1, 1.2]] * 2
    assert outcome.models["b"].backward.warmup == [[18.0]] * 2
    assert len(outcome.hellos) == 2


def test_nothing_is_measured_before_the_parent_is_ready():
    seen = []
    _, children = conduct(["a"], [healthy], on_hello=lambda child, hello: seen.append(list(child.sent)))
    assert len(seen[0]) == 1  # the job
    assert children[0].sent[1]["go"]


def test_the_time_to_the_first_iteration_is_kept():
    outcome, _ = conduct(["a"], [healthy])
    found = outcome.models["a"].cold_start
    assert (found.built, found.first_forward, found.first_backward) == ([500], [9], [18])
    assert found.total == [500 + 9 + 18]


def test_upstream_fault_4_a_model_that_raises_is_a_result_and_the_others_run():
    def script(names):
        yield {"event": "hello"}
        yield {"event": "model_start", "model": "a"}
        yield {"event": "model_failed", "model": "a", "status": "failed", "error": "ValueError: no"}
        yield from timed("b", [1.0])
        yield {"event": "done"}

    outcome, children = conduct(["a", "b"], [script, healthy])
    assert (outcome.models["a"].status, outcome.models["a"].error) == ("failed", "ValueError: no")
    assert len(outcome.models["b"].forward.samples) == 2
    assert [name for name, _ in children[1].sent[1]["models"]] == ["b"]  # what failed is not tried again


def test_a_worker_that_dies_costs_its_model_only_and_the_rest_run_in_a_fresh_process():
    def dies(names):
        yield {"event": "hello"}
        yield from timed("a", [1.0])
        yield {"event": "model_start", "model": "b"}
        yield {"event": "ready", "model": "b", "backend": "fake", "built_s": 0.1}
        yield samples("b", "timed", [7.0])
        yield ChildDied(-11, "")

    events = []
    outcome, children = conduct(
        ["a", "b", "c"], [dies, healthy], Plan(processes=1, most_processes=1), on_event=events.append
    )
    assert "SIGSEGV" in outcome.models["b"].error
    assert outcome.models["b"].forward.samples == [[7.0]]  # what it measured is kept
    assert outcome.models["c"].order == [{"process": 0, "position": 2}]
    assert [name for name, _ in children[1].sent[1]["models"]] == ["c"]
    assert any(event["event"] == "model_failed" and event["model"] == "b" for event in events)


def test_a_worker_that_cannot_start_fails_every_model_once():
    def dead(names):
        yield ChildDied(1, "ImportError: libtorch.so: cannot open shared object file\n")

    outcome, children = conduct(["a", "b"], [dead], Plan(processes=3, most_processes=3))
    assert len(children) == 1
    assert all("libtorch" in model.error for model in outcome.models.values())


def test_an_interruption_loses_no_finished_model():
    asked = []

    def script(names):
        yield {"event": "hello"}
        yield from timed("a", [1.0])
        asked.append(True)
        yield {"event": "model_start", "model": "b"}
        raise AssertionError("it was asked for more")

    outcome, _ = conduct(["a", "b"], [script], interrupted=lambda: bool(asked))
    assert outcome.interrupted
    assert outcome.models["a"].forward.samples == [[1.0]]
    assert outcome.models["b"].forward.samples == []


def test_silence_is_time_for_the_display():
    ticks = []

    def slow(names):
        yield {"event": "hello"}
        yield None
        yield from timed("a", [1.0])
        yield {"event": "done"}

    conduct(["a"], [slow], on_tick=lambda: ticks.append(1))
    assert ticks == [1]


def test_processes_are_added_while_the_interval_is_wide():
    wide = itertools.cycle([1.0, 2.0, 3.0, 1.5, 2.5])

    def script(names):
        yield {"event": "hello"}
        yield from timed("a", [next(wide)] * 6)
        yield {"event": "done"}

    outcome, children = conduct(["a"], [script] * 20, Plan())
    assert len(children) == 20
    assert outcome.models["a"].left_out == "cap"
    assert "20 is the cap" in outcome.models["a"].chosen.reason
    outcome, few = conduct(["a"], [healthy] * 20, Plan())
    assert len(few) == 7  # precise at the look of five, and the processes up to the next look are run
    assert outcome.models["a"].left_out == "precise"


def test_the_start_of_a_process_is_charged_to_the_models_that_share_it():
    def script(names):
        yield {"event": "hello", "ready_s": 6.0}
        yield from timed("a", [1.0] * 6)
        yield from timed("b", [1.0] * 6)
        yield {"event": "done"}

    outcome, children = conduct(["a", "b"], [script] * 20, Plan(budget_s=20.0))
    assert outcome.models["a"].overhead_s == outcome.models["b"].overhead_s == 3.0 * len(children)
    assert len(children) == 5  # a sixth would not fit in the budget
    assert outcome.models["a"].left_out == "budget"


def test_the_first_cause_of_a_failure_stays():
    model = Measured("a")
    model.fail("failed", "first")
    model.fail("unsupported", "second")
    assert (model.status, model.error) == ("failed", "first")
    assert model.spent(Plan(), torchscript=False) is None


@pytest.mark.parametrize("ending", [EOFError(), ChildDied(0, "")])
def test_a_worker_that_ends_too_early_is_a_failure_even_with_status_0(ending):
    def script(names):
        yield {"event": "hello"}
        yield {"event": "model_start", "model": "a"}
        yield ending

    outcome, _ = conduct(["a"], [script])
    assert outcome.models["a"].status == "failed"
    assert outcome.models["a"].error


def test_two_sides_take_turns_and_a_model_that_failed_on_one_is_measured_on_none():
    told = []

    def side(name, *, fails):
        def script(names):
            told.append(name)
            yield {"event": "hello", "ready_s": 0.0}
            yield from timed("a", [1.0] * 6)
            if "b" in names:
                if fails:
                    yield {"event": "model_start", "model": "b"}
                    yield {"event": "model_failed", "model": "b", "status": "failed", "error": "no"}
                else:
                    yield from timed("b", [1.0] * 6)
            yield {"event": "done"}

        plan = Plan(processes=4, most_processes=4)
        spawn = lambda: FakeChild(script)  # noqa: E731 - two of them, told apart by their closure
        return Conductor(plan=plan, names=["a", "b"], torchscript=(), job={"device": "cpu"}, spawn=spawn)

    outcomes = [Outcome({}), Outcome({})]
    interleave([side("base", fails=False), side("new", fails=True)], outcomes)
    assert told == ["base", "new", "new", "base", "base", "new", "new", "base"]
    assert [len(outcome.models["a"].forward.samples) for outcome in outcomes] == [4, 4]
    assert len(outcomes[0].models["b"].forward.samples) == 1
    assert outcomes[1].models["b"].status == "failed"


def test_of_three_sides_the_one_that_fails_is_left_out_and_the_others_go_on_in_balanced_turns():
    told = []

    def side(name):
        def script(names):
            told.append(name)
            yield {"event": "hello", "ready_s": 0.0}
            if name == "c":
                yield {"event": "model_start", "model": "m"}
                yield {"event": "model_failed", "model": "m", "status": "failed", "error": "no"}
            else:
                yield from timed("m", [1.0] * 6)
            yield {"event": "done"}

        plan = Plan(processes=4, most_processes=4)
        spawn = lambda: FakeChild(script)  # noqa: E731
        return Conductor(plan=plan, names=["m"], torchscript=(), job={"device": "cpu"}, spawn=spawn)

    outcomes = [Outcome({}) for _ in "abc"]
    interleave([side(name) for name in "abc"], outcomes)
    assert "".join(told) == "abc" + "ba" + "ba" + "ab"
    assert [len(outcome.models["m"].forward.samples) for outcome in outcomes] == [4, 4, 0]
    assert outcomes[2].models["m"].status == "failed"


def test_workers_start_beside_one_another_and_none_measures_while_another_starts():
    trace = []

    def script(number):
        def play(names):
            trace.append(f"hello {number}")
            yield {"event": "hello", "ready_s": 4.0}
            trace.append(f"measure {number}")
            for name in names:
                yield from timed(name, [1.0])
            yield {"event": "done"}

        return play

    outcome, children = conduct(["a"], [script(number) for number in range(3)], beside=2)
    assert trace == ["hello 0", "hello 1", "measure 0", "measure 1", "hello 2", "measure 2"]
    assert [hello["beside"] for hello in outcome.hellos] == [2, 2, 1]
    assert outcome.models["a"].overhead_s == 2.0 + 2.0 + 4.0
    assert len(children) == 3


def dead(names):
    yield ChildDied(-9, "")


def test_a_worker_that_could_not_start_beside_others_is_tried_alone_in_its_turn():
    plan = Plan(processes=3, most_processes=3)
    outcome, _ = conduct(["a"], [healthy, dead, dead, healthy, healthy], plan, beside=3)
    assert outcome.models["a"].status is None
    assert outcome.models["a"].forward.samples == [[1.0, 1.1, 1.2]] * 3
    assert [hello["beside"] for hello in outcome.hellos] == [3, 1, 1]


def test_a_worker_that_cannot_start_alone_either_is_a_failure():
    plan = Plan(processes=2, most_processes=2)
    outcome, children = conduct(["a"], [healthy, dead, dead], plan, beside=2)
    assert outcome.models["a"].forward.samples == [[1.0, 1.1, 1.2]]
    assert "SIGKILL" in outcome.models["a"].error
    assert len(children) == 3


def test_workers_whose_turn_does_not_come_are_ended():
    def fails(names):
        yield {"event": "hello"}
        yield {"event": "model_start", "model": "a"}
        yield {"event": "model_failed", "model": "a", "status": "failed", "error": "no"}
        yield {"event": "done"}

    _, children = conduct(["a"], [fails, healthy, healthy], beside=3)
    assert [len(child.sent) for child in children] == [2, 1, 1]
    assert all(child.stopped for child in children)


def test_an_interruption_while_workers_start_ends_them_all():
    def slow(names):
        yield from [None] * 100

    outcome, children = conduct(["a"], [slow, slow], beside=2, interrupted=lambda: True)
    assert outcome.interrupted
    assert outcome.hellos == []
    assert len(children) == 2


def test_a_model_that_does_not_run_once_within_the_limit_is_given_up_and_the_rest_run():
    def stuck(names):
        yield {"event": "hello"}
        yield from timed("a", [1.0])
        yield {"event": "model_start", "model": "b"}
        yield {"event": "ready", "model": "b", "backend": "fake", "built_s": 0.1}
        yield from itertools.repeat(None)

    seconds = itertools.count()
    outcome, children = conduct(
        ["a", "b", "c"], [stuck, healthy, healthy], Plan(processes=2, most_processes=2),
        compile_limit_s=30.0, now=lambda: float(next(seconds)),
    )  # fmt: skip
    assert outcome.models["b"].status == "failed"
    assert "within 30 s; allow more with --compile-limit" in outcome.models["b"].error
    assert [len(outcome.models[name].forward.samples) for name in "ac"] == [2, 2]
    assert children[0].stopped


def test_a_model_that_ran_once_may_take_as_long_as_its_budget_allows():
    def slow(names):
        yield {"event": "hello"}
        yield {"event": "model_start", "model": "a"}
        yield {"event": "ready", "model": "a", "backend": "fake", "built_s": 0.1}
        yield samples("a", "warmup", [9.0])
        yield from [None] * 100
        yield samples("a", "timed", [9.0])
        yield {"event": "model_done", "model": "a", "warmup_ended": "x", "timed_ended": "x", "spent_s": 1.0}
        yield {"event": "done"}

    seconds = itertools.count()
    outcome, _ = conduct(["a"], [slow], compile_limit_s=30.0, now=lambda: float(next(seconds)))
    assert outcome.models["a"].status is None
    assert outcome.models["a"].forward.samples == [[9.0]]


def test_compiling_is_charged_to_no_budget_up_to_its_limit():
    rules = {}
    for compiled in (("a",), ()):
        _, children = conduct(["a"], [healthy], compiled=compiled, compile_limit_s=300.0)
        rules[compiled] = children[0].sent[1]["models"][0][1]["cold_seconds"]
    assert rules[("a",)] == 300.0 > rules[()]


def test_the_times_of_replays_are_phases_of_their_own_and_what_cannot_be_captured_is_a_note():
    def script(replay):
        def play(names):
            yield {"event": "hello"}
            *before, done = timed("a", [5.0])
            yield from (*before, replay, done, {"event": "done"})

        return play

    can = {"event": "replayed", "model": "a", "forward_ms": [1.0, 1.1], "backward_ms": [2.0]}
    cannot = {"event": "not_replayed", "model": "a", "reason": "RuntimeError: it waits for the GPU"}
    outcome, _ = conduct(["a"], [script(can), script(cannot)])
    found = outcome.models["a"]
    assert found.forward.samples == [[5.0], [5.0]]
    assert found.forward_graph.samples == [[1.0, 1.1], []]
    assert found.backward_graph.samples == [[2.0], []]
    assert found.notes == ["no graph replay: RuntimeError: it waits for the GPU"]
    assert found.status is None
