"""One run after the other: when a role begins again, when it gives up, and what it lets through."""

import asyncio
import errno
from collections.abc import Callable, Iterator

import pytest
from aiokafka import errors

from stream_lsh.errors import BrokerError, StoreError
from stream_lsh.kafka.client.clients import Stopped
from stream_lsh.kafka.run import restarts
from stream_lsh.kafka.run.health import Health
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.restarts import Failed, Stage, keep_running
from stream_lsh.kafka.settings import KafkaSettings

# A port that nothing listens on: the reason why no connection came about is looked for there.
SETTINGS = KafkaSettings(give_up_seconds=300, bootstrap_servers="127.0.0.1:1")


class Clock:
    """A clock that a script moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Play:
    """Runs by script: each entry is called with the stage; what it raises ends the run, the last one stops all."""

    def __init__(self, *script: Callable[[Stage], None]) -> None:
        self.clock = Clock()
        self.probe = Probe("sign", health=Health(self.clock))
        self.stop = asyncio.Event()
        self.runs = 0
        self.delays: list[float] = []
        play = self

        class Scripted(Stage):
            role = "sign"

            async def run(self, stop: asyncio.Event) -> None:
                number, play.runs = play.runs, play.runs + 1
                if number < len(script):
                    script[number](self)
                else:
                    stop.set()

        self.make = lambda: Scripted(SETTINGS, self.probe)

    async def run(self) -> None:
        await keep_running(self.make, self.stop, SETTINGS, self.probe)

    def sample(self, name: str) -> str:
        text = self.probe.registry.exposition()[0].decode()
        return next(line.split()[-1] for line in text.splitlines() if line.startswith(f"stream_lsh_{name}"))


@pytest.fixture(autouse=True)
def delays(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """Waits are noted, not waited for."""
    found: list[float] = []

    async def noted(stop: asyncio.Event, seconds: float) -> bool:
        found.append(seconds)
        return stop.is_set()

    monkeypatch.setattr(restarts, "waited", noted)
    monkeypatch.setattr(restarts.random, "uniform", lambda low, high: 1.0)
    yield found


def fails(error: BaseException, after: float = 0.0, idle: float | None = None) -> Callable[[Stage], None]:
    """A run that fails after so many seconds, before which it is idle, once, when so many have passed."""

    def act(run: Stage) -> None:
        clock = run.probe.health.clock
        assert isinstance(clock, Clock)
        if idle is not None:
            clock.now += idle
            run.probe.idle()
        clock.now += after
        raise error

    return act


def caused(error: Exception, cause: Exception | None = None) -> Exception:
    """An error with a cause; without another one it is its own."""
    error.__cause__ = cause or error
    return error


async def test_waits_longer_after_each_failure(delays: list[float]) -> None:
    play = Play(*[fails(errors.KafkaTimeoutError())] * 9)
    await play.run()
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
    assert play.runs == 10 and float(play.sample("restarts_total")) == 9


@pytest.mark.parametrize(
    "error",
    [
        Failed("another member has taken over"),
        asyncio.CancelledError(),  # of a client that was closed, not of the role
        errors.KafkaConnectionError("gone"),
        errors.ProducerFenced(),
        errors.ConsumerStoppedError(),
        ConnectionResetError(),
        TimeoutError(),
        OSError(errno.EHOSTUNREACH, "no route"),
        caused(errors.KafkaConnectionError("raised from itself")),
        None,  # a run that ends by itself
    ],
)
async def test_what_may_pass_is_tried_again(error: BaseException | None) -> None:
    play = Play((lambda _: None) if error is None else fails(error))
    await play.run()
    assert play.runs == 2


@pytest.mark.parametrize(
    "error", [StoreError("the index is damaged"), KeyError("a bug"), OSError(errno.ENOSPC, "full")]
)
async def test_what_cannot_be_helped_passes_through(error: Exception) -> None:
    play = Play(fails(error))
    with pytest.raises(type(error)) as found:
        await play.run()
    assert found.value is error and play.runs == 1


async def test_a_long_quiet_life_was_a_good_one(delays: list[float]) -> None:
    play = Play(*[fails(Failed("the broker is restarted once an hour"), idle=3600)] * 5)
    await play.run()
    assert play.runs == 6 and delays == pytest.approx([0.1] * 5)


async def test_time_in_which_all_was_well_is_no_failure() -> None:
    play = Play(
        fails(errors.KafkaTimeoutError(), after=30, idle=50), *[fails(errors.KafkaTimeoutError(), after=90)] * 3
    )
    with pytest.raises(BrokerError, match="Given up after 300 s"):
        await play.run()
    assert play.runs == 4


async def test_what_short_runs_commit_hides_no_failure(delays: list[float]) -> None:
    """Other partitions have moved."""

    def commits(after: float) -> Callable[[Stage], None]:
        def act(run: Stage) -> None:
            run.probe.committed()
            fails(errors.MessageSizeTooLargeError(), after=after)(run)

        return act

    play = Play(*[commits(2)] * 4, commits(20), *[commits(2)] * 9)
    with pytest.raises(BrokerError, match=r"max\.message\.bytes"):
        await play.run()
    assert play.runs == 13
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5, 5])


async def test_a_repeated_failure_is_logged_at_intervals(caplog: pytest.LogCaptureFixture) -> None:
    away = fails(ConnectionRefusedError(111, "refused"), after=5)
    play = Play(*[away] * 8, fails(Failed("fenced"), after=1), away)
    with caplog.at_level("WARNING"):
        await play.run()
    assert [record.message.partition(";")[0].rpartition(" ")[2] for record in caplog.records] == [
        "refused", "refused", "fenced", "refused",
    ]  # fmt: skip


async def test_a_glance_at_an_empty_input_is_no_progress() -> None:
    play = Play(*[fails(errors.NotEnoughReplicasError(), after=50, idle=0)] * 9)
    with pytest.raises(BrokerError):
        await play.run()
    assert play.runs == 6


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.SaslAuthenticationFailed("wrong password"), "refuses the login"),
        (errors.TopicAuthorizationFailedError("stream-lsh.frames"), "stream-lsh.frames"),
        (caused(Failed("a send was refused"), errors.TopicAuthorizationFailedError("the.frames")), r"the\.frames"),
    ],
)
async def test_refusals_end_it_at_once(error: Exception, words: str) -> None:
    play = Play(fails(error))
    with pytest.raises(BrokerError, match=words):
        await play.run()
    assert play.runs == 1


async def test_a_missing_topic_has_a_little_time_to_appear() -> None:
    missing = fails(errors.UnknownTopicOrPartitionError(), after=4)
    play = Play(missing, missing)
    await play.run()
    assert play.runs == 3
    play = Play(*[missing] * 9)
    with pytest.raises(BrokerError, match="topics create"):
        await play.run()
    assert play.runs == 5
    # Of a moment, after long trouble of another kind.
    play = Play(*[fails(ConnectionResetError(), after=4)] * 6, missing, missing)
    await play.run()
    assert play.runs == 9


@pytest.mark.parametrize("error", [errors.KafkaTimeoutError(), Stopped()])
async def test_an_error_while_stopping_is_no_error(caplog: pytest.LogCaptureFixture, error: Exception) -> None:
    """Also of a stage that has not begun yet, which just stops."""

    def stopped(run: Stage) -> None:
        play.stop.set()
        raise error

    play = Play(stopped)
    with caplog.at_level("WARNING"):
        await play.run()
    assert play.runs == 1 and ("stopped with an error" in caplog.text) != isinstance(error, Stopped)


async def test_a_stop_does_not_wait_for_the_reason_of_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> BaseException:
        play.stop.set()
        return await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(restarts, "cause", never)
    play = Play(fails(errors.KafkaConnectionError()))
    await asyncio.wait_for(play.run(), 2)
    assert play.runs == 1


async def test_an_error_is_not_lost_when_closing_is_cancelled() -> None:
    def closes(run: Stage) -> None:
        try:
            raise StoreError("the index is damaged")
        finally:
            raise asyncio.CancelledError

    with pytest.raises(StoreError):
        await Play(closes).run()
