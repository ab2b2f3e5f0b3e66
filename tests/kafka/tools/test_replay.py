"""`stream-lsh kafka replay`: as they came, those that were asked for, each once, and not for ever."""

import asyncio
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from click.testing import CliRunner, Result
from support.kafka.brokers import Make
from support.kafka.stages import records
from support.simulation.runner import simulated

from stream_lsh.cli import main
from stream_lsh.kafka.consumer.delivery import Delivery
from stream_lsh.kafka.forward.join import Verdict
from stream_lsh.kafka.forward.partition import dead_letter
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools import replay as tool
from stream_lsh.kafka.tools.replay import HEADER, Counts, Letter, Reached, Wanted, replay

NOW = time.time_ns() // 1_000_000
Run = Callable[..., Result]


def document(number: int, value: bytes | None, headers: Sequence[tuple[str, bytes]] = (), at: int = NOW) -> Any:
    key = b"k%d" % number
    return ConsumerRecord("documents", 1, number, at, 0, key, value, None, 0, 0, tuple(headers))


def letter(number: int, value: bytes | None, reason: str, *headers: tuple[str, bytes], at: int = NOW) -> Any:
    verdict = Verdict(0, number, "rejected", reason)
    key, value, added, timestamp = dead_letter(document(number, value, headers, at), verdict)
    return ConsumerRecord("dead", 1, number, timestamp, 0, key, value, None, 0, 0, tuple(added))


def test_a_letter_is_the_document_as_it_arrived() -> None:
    headers = ("traceparent", b"\x00\xff"), ("reason", b"the document's own"), ("empty", b"")
    found = Letter.of(letter(7, b"\xff{", "not_json", *headers))
    assert found == Letter("not_json", 0, (b"k7", b"\xff{", [*headers, (HEADER, b"1")], NOW))
    again = Letter.of(letter(7, None, "no_value", *headers, (HEADER, b"2")))
    assert again == Letter("no_value", 2, (b"k7", None, [*headers, (HEADER, b"3")], NOW))
    assert Letter.of(letter(7, b"", "x", (HEADER, b"many"))) == Letter("x", 0, (b"k7", b"", [(HEADER, b"1")], NOW))
    assert Letter.of(document(7, b"{}")) is None and Letter.of(document(7, b"{}", [("reason", b"x")])) is None


def test_which_letters() -> None:
    given = [
        letter(0, b"a", "not_json"), letter(1, b"b", "too_large"), document(2, b"c"),
        letter(3, b"d", "too_large", (HEADER, b"3")), letter(4, b"e", "too_large", at=NOW + 5),
        letter(5, b"f", "too_large", at=-1),
    ]  # fmt: skip

    def values(wanted: Wanted, reached: Reached = Reached()) -> tuple[list[bytes | None], Counts]:  # noqa: B008
        counts = Counts()
        return [row[1] for row in counts.chosen(given, wanted, reached)], counts

    found, counts = values(Wanted())
    assert found == [b"a", b"b", b"e", b"f"] and counts == Counts({"not_json": 1, "too_large": 3}, 0, 1, 1)
    assert values(Wanted(frozenset({"too_large"}), most=4))[0] == [b"b", b"d", b"e", b"f"]
    found, counts = values(Wanted(since=NOW, until=NOW + 5))
    assert found == [b"a", b"b"] and counts.other_time == 2
    assert values(Wanted(since=NOW + 5))[0] == [b"e"]
    assert values(Wanted(), Reached(1, {"too_large": 5}))[0] == [b"f"]


def test_letters_of_several_topics_go_back_to_their_own() -> None:
    first, other = letter(0, b"a", "not_json"), document(2, b"c")
    second = letter(1, b"b", "too_large")
    second.headers = tuple((name, b"crawl" if name == "topic" else value) for name, value in second.headers)
    counts = Counts()
    assert counts.by_topic([first, other, second], ["crawl", "documents"]) == {"crawl": [second], "documents": [first]}
    assert counts.foreign == 1
    assert counts.by_topic([first, other], ["x"]) == {"x": [first, other]}


def test_how_far_it_is() -> None:
    everything, large, empty = Wanted(), Wanted(frozenset({"large"})), Wanted(frozenset({"empty", "large"}))
    start = Reached()
    some = start.after(large, 10)
    assert (some.at("large"), some.at("empty"), some.first(everything), some.first(empty)) == (10, 0, 0, 0)
    both = some.after(empty, 4)
    assert (both.at("large"), both.at("empty"), both.at("other")) == (10, 4, 0)
    assert both.after(everything, 3) == Reached(3, {"large": 10, "empty": 4})
    assert both.after(everything, 7) == Reached(7, {"large": 10})
    assert both.after(everything, 12) == Reached(12)
    # From the beginning again, some of them: the others stay where they are.
    again = Reached(12).again(large)
    assert (again.at("large"), again.at("empty"), again.first(everything)) == (0, 12, 0)
    assert again.after(large, 5) == Reached(12, {"large": 5})
    assert again.after(everything, 5) == Reached(12, {"large": 5}) and again.after(everything, 13) == Reached(13)
    assert Reached(5, {"large": 9}).again(everything) == start


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    return await make(partitions=2)


@pytest.fixture
def run(settings: KafkaSettings) -> Run:
    def replayed(*words: str) -> Result:
        given = ["kafka", "replay", *words, "--topic-prefix", settings.topic_prefix]
        return CliRunner().invoke(main, [*given, "--bootstrap-servers", settings.bootstrap_servers])

    return replayed


async def write(settings: KafkaSettings, partition: int, letters: Sequence[Any]) -> None:
    """Dead letters, as forward writes them: in a transaction."""
    topic = Topics.of(settings).dead_letters
    producer = AIOKafkaProducer(bootstrap_servers=settings.bootstrap_servers, transactional_id="forward")
    async with producer, producer.transaction():
        for found in letters:
            await producer.send_and_wait(topic, found.value, found.key, partition, found.timestamp, list(found.headers))


def sent(settings: KafkaSettings, partition: int) -> list[Any]:
    topic = Topics.of(settings).documents
    found = asyncio.run(records(settings, topic, partition, "read_committed"))
    return [(r.key, r.value, list(r.headers), r.timestamp) for r in found]


@simulated()
def test_each_once_by_reason_and_time(settings: KafkaSettings, run: Run) -> None:
    trace = "traceparent", b"t"
    asyncio.run(
        write(settings, 0, [letter(0, b"a", "not_json", trace), letter(1, b"b", "too_large"), document(2, b"c")])
    )
    asyncio.run(
        write(settings, 1, [letter(0, None, "no_value", at=NOW - 7), letter(1, b"e", "too_large", (HEADER, b"3"))])
    )
    dry = run("--dry-run")
    assert dry.exit_code == 0, dry.output
    assert dry.output.splitlines()[0].startswith("3 documents would be sent again: ")
    assert "left: 1, sent again 3 times already" in dry.output and "left: 1, no dead letters" in dry.output
    assert sent(settings, 0) == sent(settings, 1) == []

    assert run("--reason", "too_large").output.startswith("1 document sent again: 1 too_large\n")
    assert sent(settings, 0) == [(b"k1", b"b", [(HEADER, b"1")], NOW)] and sent(settings, 1) == []
    assert run("--reason", "too_large").output == "0 documents sent again\n"

    assert "2 documents sent again" in run().output
    assert sent(settings, 0)[1:] == [(b"k0", b"a", [trace, (HEADER, b"1")], NOW)]
    assert sent(settings, 1) == [(b"k0", None, [(HEADER, b"1")], NOW - 7)]
    assert run().output == "0 documents sent again\n"

    # What comes later; of that only a time; what was left out by it counts as gone through.
    letters = [letter(3, b"f", "empty", at=NOW - 7_200_000), letter(4, b"g", "empty")]
    asyncio.run(write(settings, 0, letters))
    hour_ago = datetime.fromtimestamp(NOW / 1000 - 3600, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    later = run("--since", hour_ago)
    assert later.output == "1 document sent again: 1 empty\nleft: 1, outside of the time asked for\n"
    assert run().output == "0 documents sent again\n"
    assert run("--from-beginning", "--reason", "empty").output.startswith("2 documents sent again: 2 empty\n")
    assert [value for _, value, *_ in sent(settings, 0)] == [b"b", b"a", b"g", b"f", b"g"]


class Killed(BaseException):
    """Nothing is done about it."""


@simulated()
def test_killed_anywhere_each_is_sent_once(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LETTERS", 3)
    letters = [letter(number, b"%d" % number, "not_json" if number % 2 else "empty") for number in range(20)]
    asyncio.run(write(settings, 0, letters))
    deliver, calls = Delivery.__call__, 0

    async def dies(self: Delivery, outputs: Any, positions: Any) -> None:
        """Every second time with the transaction open, else behind it."""
        nonlocal calls
        calls += 1
        if calls % 4 == 1:
            await self._producer.begin_transaction()
            await self._acknowledged(self._batches(outputs), [])
            raise Killed
        await deliver(self, outputs, positions)
        if calls % 4 == 3:
            raise Killed

    monkeypatch.setattr(Delivery, "__call__", dies)
    runs = 0
    while True:
        runs += 1
        try:
            asyncio.run(replay(settings, Wanted()))
            break
        except Killed:
            assert runs < 50
    assert runs > 5
    assert [value for _, value, *_ in sent(settings, 0)] == [b"%d" % number for number in range(20)]


@simulated()
def test_another_one_takes_over(settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "LETTERS", 1)
    asyncio.run(write(settings, 0, [letter(number, b"%d" % number, "empty") for number in range(3)]))
    deliver = Delivery.__call__

    async def overtaken(self: Delivery, outputs: Any, positions: Any) -> None:
        monkeypatch.setattr(Delivery, "__call__", deliver)
        assert (await replay(settings, Wanted())).sent.total() == 3
        await deliver(self, outputs, positions)

    monkeypatch.setattr(Delivery, "__call__", overtaken)
    with pytest.raises(tool.BrokerError, match=r"fenced this one\. If no other replay is running"):
        asyncio.run(replay(settings, Wanted()))
    assert [value for _, value, *_ in sent(settings, 0)] == [b"0", b"1", b"2"]
