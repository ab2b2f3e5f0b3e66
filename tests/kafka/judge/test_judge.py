"""The judge in a simulated Kafka, and killed on a real one: one verdict a document; what verdicts and pairs say."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import RecordsToDelete
from support.kafka.brokers import Make
from support.kafka.judge_play import PARTITIONS, Answered, answered, decoded, log_of
from support.kafka.last_steps import DEATHS, Victim
from support.kafka.stages import commit, ended, records, running, send, until, until_committed
from support.schemas import checker
from support.simulation.remembered import remembered
from support.simulation.runner import simulated

from stream_lsh.documents.fields import plain
from stream_lsh.errors import BrokerError, FormatError, StoreError
from stream_lsh.kafka.client.connection import admin, client_options
from stream_lsh.kafka.consumer.decisions import Judged
from stream_lsh.kafka.judge import records as module
from stream_lsh.kafka.judge import stage as judge
from stream_lsh.kafka.judge.gather import Gather
from stream_lsh.kafka.judge.records import Records
from stream_lsh.kafka.judge.stage import JudgeStage
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.run import restarts
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.skip import look, skip
from stream_lsh.serve.output_schemas import schema_of
from stream_lsh.wire.envelope import pack
from stream_lsh.wire.replies import head


@pytest.fixture
def make(make: Make) -> Make:
    return partial(
        make, partitions=PARTITIONS, shards=2, verify="signature", session_timeout_ms=30_000,
        transaction_timeout_ms=30_000, give_up_seconds=300,
    )  # fmt: skip


async def reply(settings: KafkaSettings, log: Sequence[bytes]) -> None:
    """Write replies to the matches topic."""
    await send(settings, Topics.of(settings).matches, log)


async def committed_records(settings: KafkaSettings, topic: str) -> dict[int, list[ConsumerRecord]]:
    """What was committed, by partition."""
    return {partition: await records(settings, topic, partition, "read_committed") for partition in range(PARTITIONS)}


@remembered
def expected(settings: KafkaSettings, frames: Sequence[Answered]) -> Records:
    records = Records(Topics.of(settings))
    for frame in frames:
        records.add(decoded(frame, settings), settings)
    return records


async def check(settings: KafkaSettings, wanted: Records) -> None:
    """Verdicts and pairs are there, each once, in order."""
    topics = Topics.of(settings)
    for topic, rows in ((topics.verdicts, wanted.verdicts), (topics.pairs, wanted.pairs)):
        found = await committed_records(settings, topic)
        for partition, there in found.items():
            got = [(record.key, record.value, list(record.headers), None) for record in there]
            assert got == rows.get(partition, []), (topic, partition)


def goal(settings: KafkaSettings, log: Sequence[bytes]) -> int:
    """The position that is committed, or a later one, when all is judged to which a log has the replies."""
    gather: Gather[bytes] = Gather(settings.shards, -1)
    end = 0
    for position, value in enumerate(log):
        gather.add(position, *head(value, settings), value)
        while gather.take() is not None:
            end = position + 1
    return gather.needed(end)


async def until_judged(settings: KafkaSettings, log: Sequence[bytes] | int, victim: Victim | None = None) -> None:
    """Wait until the replies, or those up to a position, are judged, or until the victim that should judge is dead."""
    position = log if isinstance(log, int) else goal(settings, log)
    await until_committed(
        settings, "judge", Topics.of(settings).matches,
        lambda found: found.get(0, -1) >= position or (victim is not None and victim.dead),
    )  # fmt: skip


@simulated()
async def test_verdicts_and_pairs_over_several_runs(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With several rounds of one reading."""
    monkeypatch.setattr(judge, "ROUND_DOCUMENTS", 10)
    monkeypatch.setattr(judge, "BLOCKING_BYTES", 3000)
    settings = await make()
    frames = answered(settings, tmp_path, 600)
    log, probe = log_of(frames), Probe("judge")
    half, wanted = len(log) // 2, expected(settings, frames)

    def complete() -> bool:
        return _value(probe.registry.documents.labels("judge")) == wanted.documents

    await reply(settings, log[:half])
    async with running(JudgeStage, settings, probe):
        await until(lambda: probe.commits > 0, "something is judged")
    async with running(JudgeStage, settings, probe):
        await reply(settings, log[half:])
        await until_judged(settings, log)
        await until(lambda: complete(), "all is judged")
    await check(settings, wanted)
    assert _value(probe.registry.pairs.labels("judge")) == sum(map(len, wanted.pairs.values()))
    for kind, number in wanted.kinds.items():
        assert _value(probe.registry.verdicts.labels("judge", kind.label)) == number


async def test_killed_in_a_transaction(make: Make, tmp_path: Path) -> None:
    settings = await make(**DEATHS)
    frames = answered(settings, tmp_path, 600)
    log = log_of(frames)
    victim = Victim("judge", settings, 2)
    # Commit 1 is that of the beginning.
    await until_judged(settings, 0)
    # Replies in slices, each when the one before is judged or no judge is left: there are many transactions.
    for start in range(0, len(log), 10):
        await reply(settings, log[start : start + 10])
        await until_judged(settings, log[: start + 10], victim)
    await asyncio.to_thread(victim.wait_until_dead)
    async with running(JudgeStage, settings):
        await until_judged(settings, log)
        await reply(settings, [frames[-1].replies[0]])  # a repeat changes nothing
        await asyncio.sleep(0.5)
    await check(settings, expected(settings, frames))


@simulated()
async def test_a_shard_that_is_down_holds_nothing_but_its_frames(make: Make, tmp_path: Path) -> None:
    settings = await make()
    frames = answered(settings, tmp_path, 300)
    probe = Probe("judge")
    async with running(JudgeStage, settings, probe):
        await reply(settings, [frame.replies[1] for frame in frames])
        await until(lambda: probe.last_idle is not None, "it has read them")
        assert not any((await committed_records(settings, Topics.of(settings).verdicts)).values())
        # The sender of shard 0 fails: its first reply is lost, and then it begins again.
        await reply(settings, [frame.replies[0] for frame in frames[1:4]])
        await reply(settings, [frame.replies[0] for frame in frames])
        await until_judged(settings, 2 * len(frames))
    await check(settings, expected(settings, frames))
    assert _value(probe.registry.ignored.labels("judge", "gap")) == 3


@simulated()
async def test_a_deleted_commit_is_no_beginning(make: Make) -> None:
    settings = await make()
    async with AIOKafkaProducer(**client_options(settings)) as producer:
        await producer.send_and_wait(Topics.of(settings).verdicts, b"{}", partition=2)
    with pytest.raises(StoreError, match=r"no committed offset.*reindex"):
        await ended(JudgeStage, settings)


@simulated()
async def test_what_is_no_reply_is_passed_over(make: Make, tmp_path: Path) -> None:
    settings, probe = await make(), Probe("judge")
    frames = answered(settings, tmp_path, 300)
    foreign = [b"hello", b"", b"SLS and what not", pack(b"F", 2, settings.fingerprint, [])]
    log = [value for part in log_of(frames) for value in (part, *foreign)]
    wanted = expected(settings, frames)
    await reply(settings, log)
    async with running(JudgeStage, settings, probe):
        await until(lambda: _value(probe.registry.documents.labels("judge")) == wanted.documents, "all is judged")
        ignored = probe.registry.ignored.labels("judge", "foreign")
        await until(lambda: _value(ignored) == len(log) // 5 * 4, "all is read")
    await check(settings, wanted)


@simulated()
async def test_a_reply_of_other_settings_is_passed_over_once_it_is_skipped(make: Make, tmp_path: Path) -> None:
    settings, probe = await make(), Probe("judge")
    frames = answered(settings, tmp_path, 100)
    other = pack(b"R", 2, "00" * 8, [])
    await reply(settings, [other, *log_of(frames)])
    where = "partition 0, offset 0: a reply was made with other settings"
    with pytest.raises(FormatError, match=rf"{where}.*stream-lsh kafka skip matches 0 0"):
        await ended(JudgeStage, settings)
    await skip(settings, await look(settings, "matches", 0, 0))
    async with running(JudgeStage, settings, probe):
        await until_judged(settings, goal(settings, log_of(frames)) + 1)
    await check(settings, expected(settings, frames))
    assert _value(probe.registry.ignored.labels("judge", "skipped")) == 1


@simulated()
async def test_replies_that_were_deleted_are_no_gap_to_go_over(make: Make, tmp_path: Path) -> None:
    settings = await make()
    frames = answered(settings, tmp_path, 60)
    topics = Topics.of(settings)
    place = TopicPartition(topics.matches, 0)
    await commit(settings, "judge", place.topic, 0, Judged(-1, topics.documents, 0).metadata())
    await reply(settings, log_of(frames))
    async with admin(settings) as client:
        await client.delete_records({place: RecordsToDelete(before_offset=2)})
    with pytest.raises(StoreError, match=r"deleted before they were judged.*reindex"):
        await ended(JudgeStage, settings)


@simulated()
async def test_a_source_partition_that_the_outputs_do_not_have(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = await make(partitions=1)
    frames = answered(settings, tmp_path, 60)
    monkeypatch.setattr(restarts, "PATIENCE", 1.0)
    await reply(settings, log_of(frames))
    with pytest.raises(BrokerError, match=r"has 1 partitions.*topics create"):
        await ended(JudgeStage, settings)


def test_metadata_of_commits() -> None:
    for judged in (Judged(-1, "crawl", 0), Judged(2**50, "crawl", 1), Judged(7, "news.documents", 12)):
        assert Judged.of(judged.metadata(), "g") == judged
    for text in ("", "x", "[]", '{"version":2,"last":null}', json.dumps({"version": 2, "lost": 1})):
        with pytest.raises(StoreError, match="consumer group g has no frame in its metadata"):
            Judged.of(text, "g")
    with pytest.raises(StoreError, match=r"group g was written by version 1, this is 2: start under a new.*reindex"):
        Judged.of('{"last":7}', "g")
    with pytest.raises(StoreError, match=r"version 3, this is 2: upgrade this worker"):
        Judged.of('{"version":3,"last":7}', "g")


def test_a_judge_of_another_documents_topic_is_refused() -> None:
    """Its verdicts would name documents that they are not about."""
    judged = Judged(7, "news.documents", 12)
    text = judged.metadata()
    assert Judged.of(text, "g", "news.documents") == Judged.of(text, "g") == judged
    with pytest.raises(StoreError, match=r"has judged news.documents so far, .* is crawl now: use one topic_pref"):
        Judged.of(text, "g", "crawl")


@simulated()
async def test_the_documents_topic_is_committed(make: Make, tmp_path: Path) -> None:
    settings = await make(shards=1)
    frames = answered(settings, tmp_path, 100)
    log = log_of(frames)
    for part in (log[:0], log):  # at the very first start, and with each round
        await reply(settings, part)
        async with running(JudgeStage, settings):
            await until_judged(settings, goal(settings, part))
        with pytest.raises(StoreError, match="one topic_prefix for one documents topic"):
            await ended(JudgeStage, settings.model_copy(update={"documents_topic": "crawl"}))


def _value(metric: Any) -> float:
    found: float = metric._value.get()
    return found


def test_what_was_put_out_is_counted(tmp_path: Path) -> None:
    """What it is: test_same_answers.py compares all records with the embedded engine."""
    settings = KafkaSettings(verify="signature", max_matches=3, on_conflict="update", time_field="ts")
    records = Records(Topics.of(settings))
    for frame in answered(settings, tmp_path, 600):
        records.add(decoded(frame, settings), settings)
    every = [json.loads(value) for rows in records.verdicts.values() for _, value, *_ in rows]
    assert set(records.verdicts) == set(range(PARTITIONS)) and records.documents == len(every)
    kinds = Counter(value["kind"] for value in every)
    assert {kind.label: number for kind, number in records.kinds.items()} == kinds
    rows = [row for kind in (records.verdicts, records.pairs) for found in kind.values() for row in found]
    sizes = [len(key or b"") + len(value) + sum(len(n) + len(v) for n, v in headers) for key, value, headers, _ in rows]
    checks = [checker(schema_of(output)) for output in ("verdict", "pair")]
    for found, check in zip((records.verdicts, records.pairs), checks, strict=True):
        for _, value, *_ in (row for rows in found.values() for row in rows):
            check(json.loads(value))
    assert 0 <= records.size - sum(sizes) <= 6 * len(every)  # ids are counted with quotes and escapes
    assert sum(bool(headers) for found in records.pairs.values() for *_, headers, _ in found) > 5


@pytest.mark.parametrize(
    ("id", "key"),
    [
        (b'"a1"', b"a1"),
        (b'""', b""),
        (b"17", b"17"),
        (b"-3", b"-3"),
        (b"null", None),
        (b'"a\\"b\\\\c\\n"', b'a"b\\c\n'),
        ('"ä 中"'.encode(), "ä 中".encode()),
        (b'"\\ud800"', b"\xed\xa0\x80"),
    ],
)
def test_the_key_is_the_plain_id(id: bytes, key: bytes | None) -> None:
    assert plain(id) == key


def test_replies_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    settings = KafkaSettings(shards=2, compare_with="all", verify="signature")
    frames = answered(settings, tmp_path, 60)
    one, other = decoded(frames[0], settings), decoded(next(f for f in frames if len(f.places) > 5), settings)
    for replies in ([one[0], other[1]], [replace(one[0], source=None), replace(one[1], source=None)]):
        with pytest.raises(FormatError, match="do not fit together"):
            Records(Topics.of(settings)).add(replies, settings)


def test_a_verdict_of_any_crowd_fits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a limit on matches as many as a record can hold are listed, and the others counted."""
    settings = KafkaSettings(compare_with="all", verify="signature", max_matches=0, max_verified_matches=0)
    frames = answered(settings, tmp_path, 600)

    def values() -> list[bytes]:
        records = Records(Topics.of(settings))
        for frame in frames:
            records.add(decoded(frame, settings), settings)
        return [value for rows in records.verdicts.values() for _, value, *_ in rows]

    whole = values()
    monkeypatch.setattr(module, "VERDICT_BYTES", 600)
    short = values()
    assert max(map(len, whole)) > 1500 and max(map(len, short)) < 1000
    less = 0
    for value, other in zip(map(json.loads, short), map(json.loads, whole), strict=True):
        assert value["kind"] == other["kind"] and value["duplicate_of"] == other["duplicate_of"]
        assert value["matches"] == other["matches"][: len(value["matches"])]
        assert len(value["matches"]) + value.get("truncated", 0) == len(other["matches"]) + other.get("truncated", 0)
        less += "truncated" in value
    assert less > 10


def test_headers_name_the_kind_and_make_outputs_events(tmp_path: Path) -> None:
    given: dict[str, Any] = {"verify": "signature", "max_matches": 3, "trace_headers": ("traceparent",)}
    uri = {"cloudevents_source": "/news", "cloudevents_schemas": "https://schemas.example/"}
    plain, events = KafkaSettings(**given), KafkaSettings(**given, **uri)
    both = []
    for settings in (plain, events):
        both.append(Records(Topics.of(settings)))
        for frame in answered(settings, tmp_path / str(len(both)), 300):
            both[-1].add(decoded(frame, settings), settings)
    ids = []
    for output in ("verdict", "pair"):
        without, found = ([row for rows in getattr(one, f"{output}s").values() for row in rows] for one in both)
        assert [row[:2] for row in without] == [row[:2] for row in found] != []
        for (_, value, own, _), (_, _, headers, _) in zip(without, found, strict=True):
            said, kept = dict(headers[len(own) :]), dict(own)
            if output == "verdict":
                assert (kept["kind"].decode(), kept["schema-version"]) == (json.loads(value)["kind"], b"1")
            assert headers[: len(own)] == own and len(said) == 7 and said["ce_source"] == b"/news"
            assert said["ce_type"] == b"stream-lsh." + output.encode() and said["ce_specversion"] == b"1.0"
            assert said["ce_dataschema"] == b"https://schemas.example/%b.json" % output.encode()
            when = datetime.fromisoformat(said["ce_time"].decode()).timestamp()
            assert round(1000 * when) == json.loads(value)["detected_at"]
            ids.append(said["ce_id"])
    assert len(ids) == len(set(ids))
