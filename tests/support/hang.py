"""A plugin: a test that hangs fails after a limit of its kind, with the stacks of all threads and tasks.

quick 90 s, long 300 s; `@pytest.mark.limit(seconds)` is another one. The long forms
(STREAM_LSH_LONG=1) have ten times as long. Processes of ours that the test has started and that still run print their
stacks, too, where their standard error goes: they get SIGABRT.
"""

import asyncio
import faulthandler
import gc
import inspect
import io
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from support.long_form import LONG

QUICK, LONG_TEST = 90.0, 300.0
AGAIN = 5.0
"""Seconds between two attempts: a failure that is raised in a callback of a loop goes no further than the loop."""
STDERR = os.dup(2)  # before pytest captures it
LAST = 60.0
"""Seconds after the limit. A process whose code no signal interrupts ends then."""


def limit_of(item: pytest.Item) -> float:
    """Seconds that a test may take."""
    mark = item.get_closest_marker("limit")
    if mark is not None:
        seconds = float(mark.args[0])
    else:
        seconds = QUICK if item.get_closest_marker("long") is None else LONG_TEST
    return seconds * 10 if LONG else seconds


def stacks() -> str:
    """The stacks of all threads and of all tasks of their loops."""
    out = io.StringIO()
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        print(f"\nThread {names.get(number, number)}:", file=out)
        traceback.print_stack(frame, file=out)
    for thing in gc.get_objects():
        if issubclass(type(thing), asyncio.Task) and not thing.done():  # isinstance would ask what a proxy stands for
            print(f"\n{thing!r}:", file=out)
            for frame in _frames(thing.get_coro()):
                traceback.print_stack(frame, limit=1, file=out)
    return out.getvalue()


def _frames(awaited: object) -> Iterator[FrameType]:
    """Of a coroutine and of what it waits for, outermost first; a task alone knows the first."""
    while inspect.iscoroutine(awaited) or inspect.isasyncgen(awaited):
        frame = awaited.cr_frame if inspect.iscoroutine(awaited) else awaited.ag_frame
        if frame is not None:
            yield frame
        awaited = awaited.cr_await if inspect.iscoroutine(awaited) else awaited.ag_await


def _abort_children() -> None:
    """Python processes that this one has started print their stacks and end."""
    program = os.path.realpath(sys.executable)
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and os.path.realpath(process / "exe") == program:
                os.kill(int(process.name), signal.SIGABRT)
                os.waitid(os.P_PID, int(process.name), os.WEXITED | os.WNOWAIT)  # no later test asks one that ends
        except (OSError, ValueError, IndexError):
            continue


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    seconds = limit_of(item)
    said = False

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal said
        found = "" if said else stacks()
        if not said:
            _abort_children()
        said = True
        pytest.fail(f"{item.nodeid} hangs: {seconds:g} s are over\n{found}", pytrace=False)

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    faulthandler.dump_traceback_later(seconds + LAST, exit=True, file=STDERR)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
