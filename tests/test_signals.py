"""Signals: they end the work while it may be ended, and wait while it is undone."""

from __future__ import annotations

import os
import signal

import pytest

from env.signals import SIGNALS, signals_wait


def strike(number: int = signal.SIGINT) -> None:
    os.kill(os.getpid(), number)


def test_an_interruption_ends_the_work_and_not_what_undoes_it():
    steps = []

    def command() -> None:
        with signals_wait() as signals:
            try:
                with signals.come():
                    strike()
                    steps.append("work went on")
            finally:
                strike()  # a second Ctrl-C while the machine is put back
                steps.append("undone")

    with pytest.raises(KeyboardInterrupt):
        command()
    assert steps == ["undone"]


def test_what_comes_before_the_work_ends_it_as_soon_as_it_begins():
    steps = []

    def command() -> None:
        with signals_wait() as signals:
            strike()
            steps.append("journal begun")
            with signals.come():
                steps.append("work")

    with pytest.raises(KeyboardInterrupt):
        command()
    assert steps == ["journal begun"]


def test_what_comes_after_the_work_is_answered_when_all_is_done():
    steps = []

    def command() -> None:
        with signals_wait() as signals:
            with signals.come():
                steps.append("work")
            strike()
            steps.append("undone")

    with pytest.raises(KeyboardInterrupt):
        command()
    assert steps == ["work", "undone"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_ends_us_in_order_with_the_code_of_a_shell(number):
    with pytest.raises(SystemExit) as ended, signals_wait() as signals, signals.come():
        strike(number)
    assert ended.value.code == 128 + number


def test_a_caller_who_takes_an_interruption_as_a_request_keeps_its_work():
    asked = []
    before = signal.signal(signal.SIGINT, lambda number, frame: asked.append(number))
    try:
        with signals_wait() as signals:
            with signals.come():
                strike()
                strike()
            strike()
            assert asked == [signal.SIGINT] * 2
        assert asked == [signal.SIGINT] * 3
    finally:
        signal.signal(signal.SIGINT, before)


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_wait() as signals, signals.come():
            strike(signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_the_handlers_are_as_before_afterwards():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyboardInterrupt), signals_wait() as signals, signals.come():
        strike()
    assert [signal.getsignal(number) for number in SIGNALS] == before
