"""What a service does when a run of its readers ends: it tries again, or says why it cannot."""

import asyncio
from collections.abc import Callable

import pytest
from aiokafka import errors

from stream_lsh.errors import BrokerError, StoreError, StreamLshError
from stream_lsh.kafka.run.restarts import Failed
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.serve.pipeline import restarts
from stream_lsh.serve.pipeline.restarts import Restarts

Tell = Callable[[bool], None]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "PAUSES", (0.0, 0.0))


async def ended(*ends: BaseException | None, patience: float = 300) -> tuple[BaseException, list[bool]]:
    """What it ends with whose runs end so, one after the other (None: it was up to date before, and Kafka went away);
    and whether it was up to date, as that changed."""
    left, moved = list(ends), list[bool]()

    async def live(tell: Tell) -> None:
        end = left.pop(0)
        if end is None:
            tell(True)
            raise errors.NodeNotReadyError("away")
        raise end

    found = Restarts(KafkaSettings(give_up_seconds=patience), live, lambda: moved.append(found.up_to_date))
    with pytest.raises(Exception) as error:  # which one is what is asked
        await found.run()
    return error.value, moved


async def test_what_may_pass_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    last = StoreError("for good")
    error, moved = await ended(
        Failed("once"), None, asyncio.CancelledError(), errors.NodeNotReadyError("away"), None, last
    )
    assert error is last and moved == [True, False, True, False]
    assert caplog.text.count("It is tried again") == 3  # each cause once


async def test_topics_that_are_not_there_are_an_error_at_the_first_start_only() -> None:
    missing = BrokerError("Kafka does not have the topic x")
    assert (await ended(missing))[0] is missing
    assert (await ended(None, missing, last := StoreError("for good")))[0] is last


async def test_a_refused_login_is_an_error_at_once() -> None:
    error, _ = await ended(errors.TopicAuthorizationFailedError("x"))
    assert isinstance(error, BrokerError) and "permission" in str(error)


async def test_a_broker_that_never_answers_is_an_error_after_a_while() -> None:
    error, _ = await ended(*[errors.NodeNotReadyError("away")] * 1000, patience=0.001)
    assert isinstance(error, BrokerError) and "cannot be reached" in str(error)
    error, _ = await ended(None, *[Failed("x")] * 50, last := StoreError("for good"), patience=1e-9)
    assert error is last


async def test_mistakes_of_ours_are_not_hidden() -> None:
    mistake = KeyError("x")
    error, _ = await ended(None, mistake)
    assert error is mistake and not isinstance(error, StreamLshError)
