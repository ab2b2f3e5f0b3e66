"""Frames as signers and sequencer leave them, and the replies of real shards to them, for tests of the last stages."""

import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from stream_lsh.documents.columns import NO_TIME, Columns, Rejection
from stream_lsh.families.signer import Signer
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import Source
from support.kafka.stages import KEY
from support.simulation.remembered import remembered

PARTITIONS = 3
WORDS = [f"word{i}" for i in range(400)]
SOURCES = [b'"wire"', b"", b"7", b'"herald"', b'"\\ud800"']
IDS = [b'"tab\\t"', b'"\\u0000"', b"-12", '"ä"'.encode(), b'"\\ud800"']


@dataclass(frozen=True)
class Place:
    """Where a document stands, and what is known of it. counted: whether its frame's copy of it is accepted."""

    partition: int
    offset: int
    id: bytes
    counted: bool
    rejected: Rejection | None
    time: int
    headers: list[tuple[str, bytes]]
    deleted: bool = False


@dataclass(frozen=True)
class Answered:
    """A frame with the replies of all shards, in their order."""

    offset: int
    predecessor: int
    places: list[Place]
    replies: list[bytes]


@remembered
def answered(settings: KafkaSettings, folder: Path, number: int, seed: int = 1, most: int = 40) -> list[Answered]:
    """Frames of about `number` documents of `PARTITIONS` partitions: copies, near copies, ids that come again, refused
    and empty ones, and rows that do not count because an earlier frame had them; and deletions, if ids are updated."""
    chance = random.Random(seed)
    signer = Signer(settings.signing, KEY)
    replicas = [Replica(settings, shard, folder / f"play-{shard}") for shard in range(settings.shards)]
    for replica in replicas:
        replica.activate()
    nexts = [0] * PARTITIONS
    texts = [" ".join(chance.choices(WORDS, k=30)) for _ in range(10)]
    ids = list(IDS)
    before: list[tuple[bytes, str]] = []
    frames: list[Answered] = []
    offset, predecessor, made, first = chance.randrange(3), -1, 0, 0
    while made < number:
        n = chance.choice((1, 5, most))
        places, bodies = [], []
        for i in range(n):
            partition = chance.randrange(PARTITIONS)
            counted = chance.random() > 0.1
            place = nexts[partition] if counted else max(0, nexts[partition] - 1)
            nexts[partition] += counted
            rejected = Rejection("not_json", 'no "JSON", but ä') if chance.random() < 0.05 else None
            words = chance.choice(texts).split()
            for _ in range(chance.choice((0, 1, 1, 30))):
                words[chance.randrange(len(words))] = chance.choice(WORDS)
            text = "" if rejected or chance.random() < 0.03 else " ".join(words)
            texts.append(text or texts[0])
            id = b'"d%d"' % (made + i)
            if chance.random() < 0.05:
                id = chance.choice(ids)
            if before and not rejected and chance.random() < 0.05:
                id, text = chance.choice(before)
            if text and not rejected:
                before.append((id, text))
            ids.append(id)
            headers = [("traceparent", b"\xff%d" % i)] if chance.random() < 0.2 else []
            time = 1_600_000_000_000 + made if chance.random() < 0.5 else NO_TIME
            if settings.updates and time != NO_TIME:
                time -= chance.randrange(2000)
            deleted = settings.updates and not rejected and chance.random() < 0.2
            if deleted:
                id, text = chance.choice(before or [(id, "")])[0], ""
            id = b"null" if rejected else id
            places.append(Place(partition, place, id, counted, rejected, time, headers, deleted))
            bodies.append(text.encode())
        made += n
        frame = _frame(settings, signer, places, bodies, 1_700_000_000_000 + made)
        accepted = np.array([place.counted for place in places])
        sequenced = Sequenced(
            offset, predecessor, first, KEY, None if accepted.all() else accepted, memoryview(frame.encode(settings))
        ).encode(settings)
        first += int(accepted.sum())
        replies = []
        for replica in replicas:
            answer = replica.match(sequenced)
            assert answer is not None and answer.reply is not None
            replies.append(answer.reply)
        frames.append(Answered(offset, predecessor, places, replies))
        offset, predecessor = offset + chance.choice((1, 1, 2)), offset
    for replica in replicas:
        replica.close()
    return frames


def _frame(settings: KafkaSettings, signer: Signer, places: list[Place], bodies: list[bytes], signed_at: int) -> Frame:
    rejected = {i: place.rejected for i, place in enumerate(places) if place.rejected}
    times = np.array([place.time for place in places])
    columns = Columns(
        [place.id for place in places], b"".join(bodies), np.cumsum([len(body) for body in bodies]), times, rejected,
        deleted=[i for i, place in enumerate(places) if place.deleted],
    )  # fmt: skip
    source = Source(
        np.array([place.partition for place in places], np.int32), np.array([place.offset for place in places]),
        columns.ids, times, signed_at, rejected,
        {i: place.headers for i, place in enumerate(places) if place.headers},
        [SOURCES[place.offset % len(SOURCES)] for place in places] if settings.source_field else [],
    )  # fmt: skip
    return Frame.of(signer, settings, columns, np.zeros((0, 4), np.int64), source)


def log_of(frames: list[Answered], seed: int = 1, repeats: float = 0.1) -> list[bytes]:
    """The matches topic that these frames may leave: each shard's replies in their order, some of them again later."""
    chance = random.Random(seed)
    rests = [[frame.replies[shard] for frame in frames] for shard in range(len(frames[0].replies))]
    log: list[bytes] = []
    while any(rests):
        rest = chance.choice([rest for rest in rests if rest])
        log.append(rest.pop(0))
        if chance.random() < repeats:
            log.append(chance.choice(log))
    return log


def decoded(frame: Answered, settings: KafkaSettings) -> list[Reply]:
    return [Reply.decode(reply, settings) for reply in frame.replies]
