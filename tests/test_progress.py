import io

from fastrnns.present.progress import Live, Plain, Story, progress_on

EVENTS = [
    {"event": "process_start", "process": 0, "models": ["cudnn", "jit"]},
    {"event": "model_start", "model": "cudnn"},
    {"event": "iterations", "model": "cudnn", "phase": "warmup", "forward_ms": [9.0], "backward_ms": [8.0]},
    {
        "event": "iterations",
        "model": "cudnn",
        "phase": "timed",
        "forward_ms": [1.0, 2.0],
        "backward_ms": [3.0, 4.0],
    },
    {"event": "model_done", "model": "cudnn"},
    {"event": "model_start", "model": "jit"},
    {"event": "model_failed", "model": "jit", "status": "failed", "error": "ValueError: no"},
]


def test_a_log_gets_a_line_for_what_ended():
    stream = io.StringIO()
    display = Plain(Story(2, 3), stream, clock=lambda: 0.0)
    for event in EVENTS:
        display.event(event)
    assert stream.getvalue().splitlines() == [
        "process 1 of 3: cudnn jit",
        "  cudnn (1/2) 2 timed after 1 warm-up, last 2 + 4 ms",
        "  jit failed: ValueError: no",
    ]


def test_a_log_gets_a_sign_of_life_now_and_then():
    stream, now = io.StringIO(), [0.0]
    display = Plain(Story(2, 1), stream, clock=lambda: now[0])
    for _ in range(100):
        now[0] += 0.25
        display.tick()
    assert len(stream.getvalue().splitlines()) == 2


def test_a_terminal_is_redrawn_a_few_times_a_second_at_most():
    drawn, now = [], [100.0]
    display = Live(Story(2, 1), io.StringIO(), clock=lambda: now[0])
    display._live.update = lambda text, refresh: drawn.append(str(text))
    for _ in range(1000):
        now[0] += 0.001
        display.tick()
    display.close()
    assert 3 <= len(drawn) <= 5


def test_the_display_suits_the_stream():
    assert isinstance(progress_on(io.StringIO(), 1, 1), Plain)


def test_a_forward_only_model_shows_one_time():
    story = Story(1, 1)
    story.take({"event": "model_start", "model": "bound"})
    story.take(
        {"event": "iterations", "model": "bound", "phase": "timed", "forward_ms": [1.5], "backward_ms": []}
    )
    assert story.now() == "bound (1/1) 1 timed after 0 warm-up, last 1.5 ms"
