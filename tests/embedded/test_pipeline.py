"""The threads of a job: errors come through, and nobody waits for ever."""

import threading
from collections.abc import Iterator

import pytest

from stream_lsh.embedded.pipeline import chain


def ends(names: tuple[str, ...] = ("read", "sign")) -> None:
    """The threads of stages come to their end."""
    for thread in threading.enumerate():
        if thread.name in names:
            thread.join(60)
            assert not thread.is_alive(), f"the thread {thread.name} waits for ever"


def test_items_in_order_and_then_the_error() -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise ValueError("bad")

    stage, stop = chain(items(), lambda item: item * 2)
    assert [stage.get() for _ in range(20)] == list(range(0, 40, 2))
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            stage.get()
    stop()
    ends()


def test_a_stop_while_the_first_thread_is_reading() -> None:
    """The second thread waits for an item that will not come."""
    asked, go = threading.Event(), threading.Event()

    def items() -> Iterator[int]:
        yield 1
        asked.set()
        assert go.wait(60)
        yield 2

    stage, stop = chain(items(), lambda item: item)
    assert stage.get() == 1
    assert asked.wait(60)
    stop()
    ends(("sign",))  # at once, as the first may be reading a pipe on which nothing comes
    go.set()
    ends()


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_stop_while_all_queues_are_full(taken: int) -> None:
    stage, stop = chain(iter(range(10**9)), lambda item: item)
    for number in range(taken):
        assert stage.get() == number
    stop()
    ends()
    with pytest.raises(StopIteration):
        stage.get()
