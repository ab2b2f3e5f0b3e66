"""What the tests of a shard without Kafka share: documents, sequenced frames, what the embedded index says of them."""

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path

import numpy as np

from stream_lsh.documents.builder import columns
from stream_lsh.documents.document import Document
from stream_lsh.documents.fields import Fields
from stream_lsh.documents.times import NO_TIME
from stream_lsh.embedded.engine import checked
from stream_lsh.families.family import signer_of
from stream_lsh.index.index import Index
from stream_lsh.index.segments.stream_time import StreamTime, begun
from stream_lsh.index.store.rocksdb import DELETED_MARKS
from stream_lsh.judging.verdicts import judge, pair_lines, verdict_lines
from stream_lsh.kafka.match.replica import Answer, Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.replies import Reply, ReplyNames, source_of
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import Source, numbers
from support.kafka.stages import KEY

WORDS = [f"w{i}" for i in range(300)]
STEP = 6000  # ms from one document to the next: with a window of 16 minutes 160 are in it
ANY = {"compare_with": "all", "max_verified_matches": 0}
UPDATES = {"on_conflict": "update", "time_field": "ts", "segment_documents": 90}
WINDOW = {"window": "16m", "decision_lag": 4, "segment_documents": 400}  # so that a segment is two minutes


def settings_of(**given: object) -> Settings:
    return Settings(**{"memtable_documents": 200, "max_matches": 0, **given})


def stream(seed: int, n: int) -> list[Document]:
    chance = random.Random(seed)
    texts = [[chance.choice(WORDS) for _ in range(chance.choice((5, 40)))] for _ in range(6)]
    out: list[Document] = []
    for number in range(n):
        words = list(chance.choice(texts))
        for _ in range(chance.choice((0, 0, 1, 1, 2, 6))):
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        texts.append(words)
        out.append(chance.choice(out) if out and chance.random() < 0.05 else Document(number, " ".join(words)))
        if chance.random() < 0.02:
            out[-1] = Document(out[-1].id, "")
    return out


def changing(n: int) -> list[Document]:
    """Documents of which many are replaced and deleted, by later and by earlier versions."""
    chance, out = random.Random(3), [replace(document, time=1000 + i) for i, document in enumerate(stream(8, n))]
    for i in range(20, n):
        what, old = chance.random(), chance.choice(out[max(0, i - 80) : i])
        if what < 0.2:
            out[i] = replace(out[i], id=old.id, time=chance.choice((None, 1000 + i, 1000 + i - 60)))
        elif what < 0.4:
            out[i] = Document(old.id, time=chance.choice((None, 1000 + i, 1000 + i - 60)), deleted=True)
    return out


def timed(n: int, updates: bool) -> list[Document]:
    """Documents with times, some late or absurd; with updates many are replaced and deleted, also when they have left
    the window, by later and by earlier versions, and some changes have no time."""
    out = []
    for number, found in enumerate(stream(5, n)):
        chance = random.Random(number)
        late = chance.choice((0, 0, 0, 500, 40_000))
        time = chance.choice((0, 4 * 10**12)) if chance.random() < 0.05 else 10**12 + number * STEP - late
        out.append(Document(found.id, found.text, time=time))
    chance = random.Random(4)
    for i in range(20, n if updates else 0):
        what, old, now = chance.random(), chance.choice(out[max(0, i - 220) : i]), 10**12 + i * STEP
        changed = chance.choice((None, now, now, now - 60 * STEP))
        if what < 0.2:
            out[i] = replace(out[i], id=old.id, time=changed)
        elif what < 0.4:
            out[i] = Document(old.id, time=changed, deleted=True)
    return out


WRONG_CLOCK = 4 * 10**15  # ms; of signers, on which nothing depends


def feed_of(settings: Settings, n: int) -> list[Document]:
    """Documents of all sorts that these settings know of."""
    if settings.window is not None:
        return timed(n, settings.updates)
    return changing(n) if settings.updates else stream(5, n)


def fields_of(settings: Settings) -> Fields:
    return Fields(
        match_within=settings.match_within, item=settings.item, rank_field=settings.rank_field,
        source_field=settings.source_field,
    )  # fmt: skip


def frames(settings: Settings, documents: Sequence[Document], seed: int = 0, key: bytes = KEY) -> list[bytes]:
    """Sequenced frames of random sizes; the offsets have gaps, and some documents are not accepted. With a window they
    have the stream times that a sequencer gives them."""
    chance = random.Random(seed)
    signer, out, time = signer_of(settings.signing, key), [], StreamTime()
    at, offset, predecessor, first = 0, chance.randrange(3), -1, 0
    while at < len(documents):
        n = chance.choice((1, 3, 20, 60))
        part = columns(list(documents[at : at + n]), fields_of(settings))
        count = len(part.ids)
        source = Source(
            np.zeros(count, np.int32), np.arange(at, at + count), part.ids, part.times, WRONG_CLOCK, part.rejected,
            sources=(part.sources or [b""] * count) if settings.source_field else [],
        )  # fmt: skip
        frame = Frame.of(signer, settings, part, np.array([[0, at, at + count, 0]], np.int64), source)
        accepted = None
        if chance.random() < 0.3:
            accepted = np.array([chance.random() < 0.8 for _ in range(count)])
        log = None
        if settings.window is not None:
            log = begun(time.advance(part.times if accepted is None else np.where(accepted, part.times, NO_TIME)))
        data = memoryview(frame.encode(settings))
        out.append(
            Sequenced(offset, predecessor, first, key, accepted, data, log=log, appended=1000 + at).encode(settings)
        )
        first += count if accepted is None else int(accepted.sum())
        predecessor, offset, at = offset, offset + chance.choice((1, 1, 2)), at + count
    return out


def judged(found: list[Reply], settings: Settings) -> list[bytes]:
    """Verdicts on what counts of a frame, and its pairs, from the replies of all shards."""
    source, accepted = source_of(found)
    seqs = numbers(found[0].offset, len(source))
    judgement = judge(
        [reply.matches for reply in found],
        source.ids,
        seqs,
        settings.max_matches,
        ReplyNames([reply.names for reply in found]),
    )
    lines = verdict_lines(judgement).splitlines()
    if accepted is not None:
        lines = [line for line, counts in zip(lines, accepted, strict=True) if counts]
    return [*lines, pair_lines(judgement, settings.verify)]


def verdicts(replies: list[list[bytes]], settings: Settings) -> bytes:
    """Verdicts and pairs from the shards' replies, frame by frame."""
    decoded = ([Reply.decode(part, settings) for part in parts] for parts in replies)
    return b"\n".join(line for found in decoded for line in judged(found, settings))


def oracle(settings: Settings, log: list[bytes], folder: Path, documents: Sequence[Document]) -> bytes:
    """The same from the embedded index, over the order that the log has; its key is another, and it takes the time of
    the documents itself."""
    index = Index(settings, folder, durable=False)
    out, count = [], 0
    for data in log:
        sequenced = Sequenced.decode(data, settings)
        source = Frame.decode(sequenced.frame, settings).source
        accepted = np.ones(len(source), np.bool_) if sequenced.accepted is None else sequenced.accepted
        chosen = np.flatnonzero(accepted).tolist()
        part = columns([documents[int(source.offsets[i])] for i in chosen], fields_of(settings))
        seqs = sequenced.numbers(len(source))[chosen]
        matches = index.match(index.sign(part), seqs, count + np.arange(len(chosen)))
        if index.window is not None and chosen:
            assert sequenced.log is not None and index.window.now == sequenced.log[chosen[-1]]
        count += len(chosen)
        judgement = judge(matches, part.ids, seqs, settings.max_matches, index)
        out += [*verdict_lines(judgement).splitlines(), pair_lines(judgement, settings.verify)]
        if index.full or index.window is not None:
            index.commit({})
    index.close()
    return b"\n".join(out)


def each_frame(settings: Settings, log: list[bytes], folder: Path, documents: Sequence[Document]) -> list[bytes]:
    """What the embedded index answers after each frame: the verdicts on all documents, without storing them."""
    index, found, count = Index(settings, folder, durable=False), [], 0
    for data in log:
        sequenced = Sequenced.decode(data, settings)
        source = Frame.decode(sequenced.frame, settings).source
        chosen = np.arange(len(source)) if sequenced.accepted is None else np.flatnonzero(sequenced.accepted)
        part = columns([documents[int(source.offsets[i])] for i in chosen.tolist()])
        index.match(index.sign(part), sequenced.numbers(len(source))[chosen], count + np.arange(len(chosen)))
        count += len(chosen)
        index.commit({})
        found.append(verdict_lines(checked(index, columns(list(documents))).judgement))
    index.close()
    return found


def answer(replica: Replica, data: bytes) -> Answer:
    found = replica.match(data)
    assert found is not None and found.change is not None and found.reply is not None
    return found


def reply_of(found: Answer) -> bytes:
    assert found.reply is not None
    return found.reply


def change_of(found: Answer) -> bytes:
    assert found.change is not None
    return found.change


def undisturbed(settings: Settings, log: Sequence[bytes], folder: Path, shard: int = 0) -> list[Answer]:
    """What a shard answers that nothing happens to."""
    with closing(Replica(settings, shard, folder)) as replica:
        replica.activate()
        return [answer(replica, data) for data in log]


def marks(replica: Replica) -> list[tuple[int, int]]:
    """Which rows are deleted, and their marks."""
    found = []
    for segment in replica.store.segments():
        for first, value in replica.store.rows_of(DELETED_MARKS, replica.number, segment):
            bits = np.unpackbits(np.frombuffer(value, np.uint8), bitorder="little").reshape(-1, 2)
            found += [(first + row, int(bits[row] @ (1, 2))) for row in np.flatnonzero(bits.any(axis=1)).tolist()]
    return found


def folders_in(folder: Path) -> Iterator[Path]:
    """New folders below it, without end."""
    return (folder / f"replica-{number}" for number in count(1))
