"""Signals that wait, signals that ask to stop: none is lost, none comes twice, none changes an outcome that stands."""

import asyncio
import os
import signal
import threading
from types import FrameType

import pytest

from stream_lsh.embedded.signals import Signals, Terminated, ignore, postponed


@pytest.fixture(autouse=True)
def raising() -> None:
    """SIGTERM raises, as under the command line."""

    def terminate(_: int, __: FrameType | None) -> None:
        raise Terminated

    signal.signal(signal.SIGTERM, terminate)


def send(number: int = signal.SIGTERM) -> None:
    """A signal to this process, whose handler has run when this returns or raises."""
    signal.raise_signal(number)


def test_what_is_remembered_takes_effect_at_the_end() -> None:
    reached = False
    with pytest.raises(Terminated), postponed():
        send()
        reached = True
    assert reached
    with pytest.raises(KeyboardInterrupt), postponed():
        send(signal.SIGINT)


def test_what_has_taken_effect_does_not_come_again() -> None:
    with postponed() as check:
        send()
        with pytest.raises(Terminated):
            check()
        check()


def test_an_error_is_not_replaced() -> None:
    with pytest.raises(ZeroDivisionError), postponed():
        send()
        raise ZeroDivisionError


def test_a_second_one_takes_effect_at_once() -> None:
    with postponed() as check:
        send()
        with pytest.raises(Terminated):
            send()
        check()


def test_a_handler_that_does_not_raise_is_called_once() -> None:
    came: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: came.append(number))
    with postponed() as check:
        send()
        assert not came
        check()
        check()
    assert came == [signal.SIGTERM]


def test_the_default_handler_ends_the_program() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with pytest.raises(SystemExit) as caught, postponed():
        send()
    assert caught.value.code == 143


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_one_asks_to_stop_and_the_second_one_too(number: int) -> None:
    """Sent from another thread, while the loop sleeps."""
    second: list[int] = []

    async def work(stop: asyncio.Event, kill: asyncio.Event) -> None:
        for event in (stop, kill):
            threading.Timer(0.1, os.kill, (os.getpid(), number)).start()
            await event.wait()

    with Signals(second.append) as signals:
        signals.run(work)
    assert signals.came == [number, number] and second == [number] and signals.done


def test_an_earlier_signal_is_not_forgotten() -> None:
    async def work(stop: asyncio.Event, kill: asyncio.Event) -> None:
        assert stop.is_set() and not kill.is_set()

    with Signals() as signals:
        send()
        signals.run(work)
        signals.run(work)


def test_a_postponed_signal_is_given_once() -> None:
    with Signals() as signals:
        with postponed() as check:
            send()
            assert not signals.came
            check()
            check()
        assert signals.came == [signal.SIGTERM]


def test_a_late_one_changes_nothing() -> None:
    """Not while the loop is being closed, when asyncio's own handlers are gone, and not after a clean end."""
    tasks: list[asyncio.Task[None]] = []

    async def work(stop: asyncio.Event, kill: asyncio.Event) -> None:
        async def late() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                send()

        tasks.append(asyncio.create_task(late()))
        await asyncio.sleep(0)

    with Signals() as signals:
        signals.run(work)
        assert signals.came == [signal.SIGTERM]
        send()
    send()
    send(signal.SIGINT)
    assert len(signals.came) == 2


def test_after_an_error_the_handlers_are_back() -> None:
    with pytest.raises(ZeroDivisionError), Signals():
        raise ZeroDivisionError
    with pytest.raises(Terminated):
        send()


def test_what_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with Signals() as signals:
        send(signal.SIGINT)
        assert not signals.came
    ignore()
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
