"""What is said at which level of what Kafka's clients leave behind when a broker fails."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import errors
from aiokafka.producer.message_accumulator import MessageAccumulator, MessageBatch
from aiokafka.structs import TopicPartition

from stream_lsh.kafka.run import logs
from stream_lsh.kafka.run.restarts import may_pass

NEVER = "exception was never retrieved"


def said(leave: Callable[[], Any], caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """Level and first words of what the log says when that is done in a loop."""

    async def body() -> None:
        loop = asyncio.get_running_loop()
        logs.hush(loop, may_pass)
        logs.hush(loop, may_pass)
        leave()
        await asyncio.sleep(0.01)
        gc.collect()

    with caplog.at_level("DEBUG"), caplog.at_level("DEBUG", logs.log.name):  # others may have set that of the package
        asyncio.run(body())
    return [
        (record.levelname, record.getMessage().partition("\n")[0])
        for record in caplog.records
        if record.name in ("asyncio", logs.log.name) and "selector" not in record.getMessage()
    ]


def future(error: Exception) -> Callable[[], None]:
    return lambda: asyncio.get_running_loop().create_future().set_exception(error)


FORGOTTEN = {
    errors.ProducerFenced(): "DEBUG",
    errors.KafkaConnectionError("gone"): "DEBUG",
    ConnectionResetError(): "DEBUG",
    ValueError("a bug"): "ERROR",
    OSError(28, "full"): "ERROR",
}


def test_messages_of_libraries(caplog: pytest.LogCaptureFixture) -> None:
    reported = said(lambda: [future(error)() for error in FORGOTTEN], caplog)
    assert sorted(reported) == sorted((level, f"Future {NEVER}") for level in FORGOTTEN.values())


def test_what_clients_raise_in_their_own_tasks_and_callbacks(caplog: pytest.LogCaptureFixture) -> None:
    """aiokafka puts batches back that it has given up already."""

    def leave() -> Any:
        accumulator = MessageAccumulator(None, 1000, 0, 30)
        batch = MessageBatch(TopicPartition("t", 0), accumulator.create_builder(), 30, 0)

        async def again() -> None:
            accumulator.reenqueue(batch)

        asyncio.get_running_loop().call_soon(accumulator.reenqueue, batch)
        return asyncio.ensure_future(again())

    (callback, task) = said(leave, caplog)
    assert callback[0] == "DEBUG" and callback[1].startswith("Exception in callback MessageAccumulator.reenqueue")
    assert task == ("DEBUG", f"Task {NEVER}")


def test_own_errors_in_tasks_and_callbacks_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise KeyError("a bug")

    async def failing() -> None:
        fail()

    def leave() -> Any:
        asyncio.get_running_loop().call_soon(fail)
        return asyncio.ensure_future(failing())

    assert [level for level, _ in said(leave, caplog)] == ["ERROR", "ERROR"]


async def test_a_handler_that_is_there_already_stays() -> None:
    heard: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: heard.append(context["message"]))
    logs.hush(loop, may_pass)
    future(errors.ProducerFenced())()
    assert heard == [f"Future {NEVER}"]
