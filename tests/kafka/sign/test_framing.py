"""Micro-batches: records are cut into frames that continue one another, within the limits."""

import asyncio
import logging
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.structs import ConsumerRecord
from support.poison import WORDS, poison
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from bench.pacing import played
from stream_lsh.embedded.engine_errors import EngineErrors
from stream_lsh.families.family import signer_of
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign import pacing
from stream_lsh.kafka.sign.framing import HEADER_BYTES, Chunk, Framer, Signed
from stream_lsh.kafka.sign.pacing import LONGEST, MOST_FRAMES, Pacing
from stream_lsh.kafka.sign.pending import Pending
from stream_lsh.kafka.sign.records import columns_of
from stream_lsh.text.settings import SigningSettings
from stream_lsh.wire.frames import CONTINUES, FIRST, FROM, PARTITION, STARTS, TO, Frame, Places

NUMBERS = np.random.default_rng(1)


@cache
def signer(settings: SigningSettings) -> Signer:
    return Signer(settings)


def record(
    partition: int, offset: int, text: str, baggage: bytes | None = None
) -> ConsumerRecord[bytes | None, bytes | None]:
    value = b'{"id":"%d-%d","text":"%s"}' % (partition, offset, text.encode())
    headers = (("traceparent", b"%d" % offset),) if offset % 7 == 0 else ()
    headers = (("baggage", baggage),) if baggage is not None else headers
    return ConsumerRecord("docs", partition, offset, 1000 + offset, 0, None, value, None, -1, len(value), headers)


def words(n: int) -> str:
    return " ".join(str(number) for number in NUMBERS.integers(0, 10**9, n))


def chunk(
    partition: int, offsets: Sequence[int], begins: int, ends: int, first: int = CONTINUES, size: int = 8
) -> Chunk:
    return Chunk(partition, [record(partition, offset, words(size)) for offset in offsets], begins, ends, first)


def framed(settings: KafkaSettings, chunks: list[Chunk], largest: int = 2**26) -> list[Signed]:
    return Framer(settings, signer(settings.signing), largest).frames(chunks, 1234)


def all_accepted(settings: KafkaSettings, frames: list[Signed], accepted: Accepted) -> Accepted:
    """The positions behind frames of which every document has to count."""
    for frame in frames:
        decision = accepted.accept(Places.of(frame.data, settings))
        assert decision.documents == frame.documents and decision.mask is None and not decision.gaps
        accepted = decision.after
        assert all(accepted.positions[p] == position for p, position in frame.positions.items())
    return accepted


def test_a_frame_says_where_its_documents_come_from() -> None:
    settings = KafkaSettings(shards=2, compare_with="all")
    [frame] = framed(settings, [chunk(4, [10, 11, 14], 9, 16, STARTS), chunk(0, [7], 5, 8), chunk(4, [16, 17], 16, 18)])
    assert (frame.documents, frame.positions) == (6, {4: 18, 0: 8})
    found = Frame.decode(frame.data, settings)
    assert found.segments.tolist() == [[4, 9, 18, STARTS], [0, 5, 8, CONTINUES]]
    assert found.source.partitions.tolist() == [4, 4, 4, 0, 4, 4]
    assert found.source.offsets.tolist() == [10, 11, 14, 7, 16, 17]
    assert found.source.ids[0] == b'"4-10"'
    assert found.source.times.tolist() == [1010, 1011, 1014, 1007, 1016, 1017]
    assert found.source.signed_at == 1234
    assert found.source.headers == {2: [("traceparent", b"14")], 3: [("traceparent", b"7")]}
    assert (PARTITION, FROM, TO, FIRST) == (0, 1, 2, 3)


@pytest.mark.parametrize("verify", ["exact", "signature"])
def test_frames_keep_the_limits_and_continue_one_another(verify: str) -> None:
    settings = KafkaSettings(verify=verify, frame_bytes=20_000, frame_documents=40, shards=3, compare_with="all")
    chunks = [chunk(0, range(90), 0, 92, STARTS), chunk(1, range(0, 60, 2), 0, 60, STARTS), chunk(0, [93], 92, 94)]
    frames = framed(settings, chunks)
    assert len(frames) > 3
    assert all(len(frame.data) <= 20_000 and 1 <= frame.documents <= 40 for frame in frames)
    assert all_accepted(settings, frames, Accepted(bytes(16))).positions == {0: 94, 1: 60}


def test_texts_that_compress_badly_make_more_frames() -> None:
    settings = KafkaSettings(frame_bytes=60_000)
    framer = Framer(settings, signer(settings.signing), 2**26)
    easy = Chunk(0, [record(0, i, "the same " * 200) for i in range(200)], 0, 200, STARTS)
    accepted = all_accepted(settings, framer.frames([easy], 1), Accepted(bytes(16)))
    hard = framer.frames([chunk(0, range(200, 300), 200, 300, size=200)], 1)
    assert len(hard) > 1 and all(len(frame.data) <= 60_000 for frame in hard)
    assert all_accepted(settings, hard, accepted).positions == {0: 300}


def test_a_document_that_fits_into_no_frame_is_refused_and_the_others_are_not() -> None:
    settings = KafkaSettings(frame_bytes=5_000)
    records = [record(0, 0, words(10)), record(0, 1, words(5000)), record(0, 2, words(10)), record(0, 3, words(1500))]
    frames = framed(settings, [Chunk(0, records, 0, 4, STARTS)], largest=20_000)
    assert all_accepted(settings, frames, Accepted(bytes(16))).positions == {0: 4}
    found = [Frame.decode(frame.data, settings) for frame in frames]
    reasons = {int(f.source.offsets[i]): why.reason for f in found for i, why in f.source.rejected.items()}
    assert reasons == {1: "too_large"}
    # Larger than frame_bytes, alone: it goes as it is.
    assert [frame.documents for frame in frames if len(frame.data) > 5_000] == [1]
    assert [ids for f in found for ids in f.source.ids] == [b'"0-0"', b'"0-1"', b'"0-2"', b'"0-3"']


def test_documents_keep_their_scopes_where_frames_are_cut() -> None:
    settings = KafkaSettings(match_within=["lang"], frame_documents=3)
    values = [b'{"id":%d,"text":"the same text in all languages","lang":"%d"}' % (i, i % 2) for i in range(7)]
    records = [
        ConsumerRecord("docs", 0, offset, 1000, 0, None, value, None, -1, len(value), ())
        for offset, value in enumerate(values)
    ]
    cut = framed(settings, [Chunk(0, records, 0, 7)])
    assert [frame.documents for frame in cut] == [3, 3, 1]
    whole = columns_of(records, settings)
    one = signer(settings.signing)
    expected = one.sign(whole.texts, whole.ends, whole.scope_hashes(one.key), want_shingles=False)
    found = [Frame.decode(frame.data, settings) for frame in cut]
    assert np.array_equal(np.concatenate([frame.signatures for frame in found]), expected.signatures)
    assert np.array_equal(np.concatenate([frame.fingerprints for frame in found]), expected.fingerprints)
    assert len(np.unique(expected.signatures, axis=0)) == len(np.unique(expected.fingerprints, axis=0)) == 2


def test_trace_headers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what waits, and where a frame is full: a frame that turned out too large would be encoded several times."""
    encoded: list[int] = []
    real = Framer._encoded

    def encode(self: Framer, batch: Any, now: int) -> bytes:
        encoded.append(len(batch.columns))
        return real(self, batch, now)

    monkeypatch.setattr(Framer, "_encoded", encode)
    settings = KafkaSettings(frame_bytes=20_000)
    records = [record(0, i, words(8), b"b" * 2000) for i in range(60)]
    pending = Pending()
    pending.add(Chunk(0, records, 0, 60, STARTS))
    assert pending.bytes > 60 * 2000
    frames = framed(settings, pending.take(60))
    assert pending.bytes == 0
    assert all_accepted(settings, frames, Accepted(bytes(16))).positions == {0: 60}
    assert max(len(frame.data) for frame in frames) <= 20_000
    assert encoded == [frame.documents for frame in frames]


def test_a_document_with_endless_trace_headers_is_refused_and_the_others_are_not() -> None:
    settings = KafkaSettings()
    sizes = [10, HEADER_BYTES + 1, HEADER_BYTES - len("baggage"), 20]
    records = [record(0, i, words(8), b"b" * size) for i, size in enumerate(sizes)]
    frames = framed(settings, [Chunk(0, records, 0, 4, STARTS)])
    assert all_accepted(settings, frames, Accepted(bytes(16))).positions == {0: 4}
    found = {int(f.source.offsets[i]): (f, i) for frame in frames for f in [Frame.decode(frame.data, settings)]
             for i in range(len(f.source))}  # fmt: skip
    assert {at for at, (f, i) in found.items() if i in f.source.rejected} == {1}
    frame, row = found[1]
    assert frame.source.rejected[row].reason == "too_large" and "trace headers" in frame.source.rejected[row].detail
    assert frame.source.ids[row] == b'"0-1"' and frame.sizes[row] == 0
    carried = [f.source.headers.get(i, []) for f, i in (found[at] for at in range(4))]
    assert [sum(len(value) for _, value in headers) for headers in carried] == [10, 0, sizes[2], 20]


def test_a_chunk_without_records_moves_positions() -> None:
    settings = KafkaSettings()
    [frame] = framed(settings, [Chunk(2, (), 5, 5, STARTS), Chunk(1, (), 3, 9)])
    assert (frame.documents, frame.positions) == (0, {2: 5, 1: 9})
    decision = Accepted(bytes(16), {1: 3}).accept(Places.of(frame.data, settings))
    assert (decision.documents, decision.after.positions) == (0, {1: 9, 2: 5})


def test_what_waits_is_taken_in_order_and_counted() -> None:
    settings = KafkaSettings(frame_documents=10)
    pending = Pending()
    pending.add(Chunk(1, (), 0, 0, STARTS))
    pending.add(chunk(0, range(25), 0, 26, STARTS))
    pending.add(chunk(1, range(5), 0, 5))
    pending.add(Chunk(0, (), 26, 27))
    assert (pending.documents, bool(pending)) == (30, True)
    accepted, sizes = Accepted(bytes(16)), []
    while pending:
        before = pending.documents
        taken = pending.take(10)
        assert before - pending.documents == sum(len(part.records) for part in taken)
        accepted = all_accepted(settings, framed(settings, taken), accepted)
        sizes.append(sum(len(part.records) for part in taken))
    assert sizes == [10, 10, 10]
    assert accepted.positions == {0: 27, 1: 5}
    assert (pending.documents, pending.bytes, pending.take(5)) == (0, 0, [])
    pending.add(chunk(0, range(5), 0, 5))
    pending.clear()
    assert (pending.documents, pending.bytes, bool(pending)) == (0, 0, False)


@pytest.mark.parametrize("given", [{}, {"match_within": ["text"]}, {"measure": "containment"}], ids=str)
def test_a_document_that_signing_raises_on_is_rejected_however_frames_are_cut(
    given: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    settings = KafkaSettings(shards=2, compare_with="all", **given)
    records = [record(0, offset, WORDS if offset == 7 else words(9)) for offset in range(20)]

    def rows(most: int) -> list[tuple[Any, ...]]:
        framer = Framer(settings.model_copy(update={"frame_documents": most}), signer_of(settings.signing), 2**26)
        signed = framer.frames([Chunk(0, records, 0, 20, STARTS)], 1)
        for frame in signed:
            failures.look(
                frame.source.rejected,
                partial(frame.source.place, Topics.of(KafkaSettings(documents_topic="docs")).where),
            )
        frames = [Frame.decode(frame.data, settings) for frame in signed]
        return [
            (f.source.ids[i], int(f.sizes[i]), f.signatures[i].tobytes(), f.source.rejected.get(i))
            for f in frames for i in range(len(f.source))
        ]  # fmt: skip

    failures = EngineErrors(logging.getLogger("stream_lsh"))
    whole = rows(20)
    poison(monkeypatch)
    found = rows(20)
    assert found == rows(6) == rows(1)
    assert found[:7] + found[8:] == whole[:7] + whole[8:]
    id, size, _, why = found[7]
    assert (id, size, why.reason) == (b'"0-7"', 0, "engine_error")
    assert re.fullmatch(r"the engine raised ValueError in stream_lsh\.text\.preparation, line \d+: .{200}", why.detail)
    assert caplog.messages == [f'docs, partition 0, offset 7, id "0-7": rejected as engine_error: {why.detail}']


def test_what_no_document_causes_ends_signing(monkeypatch: pytest.MonkeyPatch) -> None:
    poison(monkeypatch, MemoryError())
    with pytest.raises(MemoryError):
        framed(KafkaSettings(), [Chunk(0, [record(0, 0, WORDS)], 0, 1, STARTS)])


def stamped(partition: int, times: Sequence[int]) -> Chunk:
    """The first records of a partition, with these timestamps."""
    records = [replace(record(partition, offset, "a"), timestamp=time) for offset, time in enumerate(times)]
    return Chunk(partition, records, 0, len(times))


def test_with_a_window_the_oldest_record_is_next() -> None:
    """Partitions are signed side by side, and nothing before what may still come of another one. A few timestamps in
    the future change nothing."""
    pending, wrong = Pending(64_000), 4 * 10**12
    pending.add(stamped(0, [wrong if i in (9, 20, 59) else 1000 * i for i in range(60)]))
    pending.add(stamped(1, [1000 * i + 500 for i in range(30)]))
    assert not pending.ready([2]) and pending.take(90, [2]) == []  # its times are not known yet
    pending.add(Chunk(2, (), 0, 0, STARTS))
    assert [chunk.partition for chunk in pending.take(90, [2])] == [2]
    taken = [record for chunk in pending.take(90, [0, 1]) for record in chunk.records]
    assert [record.offset for record in taken[:46]] == sorted(2 * list(range(23)))
    assert (len(taken), pending.documents, pending.ready([1])) == (23 + 30, 37, False)
    assert sum(len(chunk.records) for chunk in pending.take(90)) == 37 and not pending
    for late in (9000, 5000):  # what holds up the others can itself be taken
        pending.add(stamped(1, [late]))
    assert len(pending.take(90, [1])) == 2


SECONDS, SETTLED = 12, 4


@pytest.mark.parametrize("signers", [1, 3, 20, 100, 200])
def test_all_signers_together_keep_below_the_limit_of_frames(signers: int) -> None:
    chance = random.Random(signers)
    for _ in range(3):
        partitions = [chance.randint(1, 3) for _ in range(signers)]
        shares = [own / sum(partitions) for own in partitions]
        weights = [chance.choice((0.1, 1.0, 5.0)) for _ in range(signers)]
        rates = [chance.choice((300, 1000, 2000)) * weight / sum(weights) for weight in weights]
        frames, waits = played(chance, rates, shares, SECONDS)
        assert max(frames[SETTLED:]) <= 1.1 * MOST_FRAMES
        assert max(map(max, filter(None, waits))) <= LONGEST * 0.02


def test_documents_of_a_quiet_pipeline_do_not_wait_for_the_share_of_their_signer() -> None:
    frames, waits = played(random.Random(1), [0.2] * 50, [1 / 50] * 50, SECONDS)
    assert 0 < sum(frames) < 20 * SECONDS
    assert max(map(max, filter(None, waits))) <= 0.02
    assert Pacing(0).pause == 0


@simulated()
async def test_signers_of_one_topic_keep_to_their_shares(world: World, cluster: Cluster) -> None:
    """Three signers, at each of which a document arrives every 25 ms. Each document would be a frame."""
    pacing.MOST_FRAMES = 20  # this seed has a process of its own
    pipeline = Pipeline(world, cluster, partitions=3)
    await pipeline.create_topics()
    workers = [pipeline.start("sequence"), *(pipeline.start("sign") for _ in range(3))]
    counts = list[int]()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
        for number in range(1600):
            if number >= 800 and number % 400 == 0:
                counts.append(len(pipeline.records("signatures")))
            value = b'{"id":%d,"text":"a text"}' % number
            await producer.send(pipeline.topics.documents, value, partition=number % 3)
            await asyncio.sleep(0.025 / 3)
    assert counts[1] - counts[0] <= 1.3 * 20 * 400 * 0.025 / 3
    await pipeline.stop(*workers)
