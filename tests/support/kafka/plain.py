"""What the plain models say of an order that was recorded: nothing of the engine is used but how a frame is read, and
of that only where its documents stand. And random histories, made so that the engine must say the same."""

import json
import random
import time
from collections.abc import Iterable, Iterator
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.sequenced import Sequenced
from support.indexes import comparable, same
from support.kafka.feeding import Record, Source
from support.kafka.oracle import Outputs
from support.models.changes import Verdict, model_of
from support.models.spreading import Spreading, reached

STEP = 4000  # ms from one document to the next
OUTLETS = ("wire", "herald", "radio", 7, None)
SURE: dict[str, Any] = {
    "shingles": "words:1", "threshold": 0.45, "bands": 64, "rows": 1, "signature_size": 128, "max_bucket_rows": 4096,
    "max_candidates": 128, "max_verified_matches": 1000, "text_field": ("text",),
}  # fmt: skip
"""All that is similar is found (64 bands of one row: J of 0.45 is missed once in 2^55), and no limit is met."""


def history(n: int, partitions: int, seed: int, families: int = 60) -> list[Record]:
    """So many records up to now: texts that drift, and are copied, changed, withdrawn and told again by any partition;
    late, without a time, with an absurd one; and what is no document. families: how many texts are told at a time."""
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(400)]
    told = [chance.sample(words, 12) for _ in range(families)]
    reported: list[tuple[str | int, str]] = [("begin", "to begin with")]
    begin, out = time.time_ns() // 1_000_000 - STEP * n, list[Record]()
    for i in range(n):
        stamp = begin + STEP * i - chance.choice((0, 0, 0, STEP, 40 * STEP))
        ts = chance.choice((stamp, stamp, stamp, stamp, stamp, stamp - 300 * STEP, None, None))
        if chance.random() < 0.04:
            ts = chance.choice((stamp + 10**10, 4 * 10**12, 10**12))
        id, text = chance.choice(reported[-300:])
        what = chance.random()
        document: dict[str, Any] = {"outlet": chance.choice(OUTLETS)} | ({} if ts is None else {"ts": ts})
        if what < 0.12:
            document |= {"id": id if what < 0.11 else f"never {i}", "deleted": True}
        elif what < 0.16:
            out.append(_record(chance, partitions, str(id) if what < 0.15 else "", None, stamp))
            continue
        elif what < 0.22:
            document |= {"id": id, "text": text}
        else:
            id = id if what < 0.37 else i if what < 0.45 else f"d{i}"
            said = text.split() if what < 0.28 else list(chance.choice(told))
            for _ in range(chance.choice((0, 0, 1, 2, 4))):
                said[chance.randrange(len(said))] = chance.choice(words)
            if chance.random() < families / 300:
                told[chance.randrange(len(told))] = chance.sample(words, 12)
            text = " ".join(said)
            document |= {"id": id, "text": text if what < 0.97 else chance.choice(("", " \n", 5, None))}
            reported += [(id, text)] if what < 0.97 else []
        value = json.dumps(document).encode()
        if what > 0.985:
            value = chance.choice((b"", value[:-9], b"[]", json.dumps({**document, "id": 1.5}).encode()))
        out.append(_record(chance, partitions, str(id), value, stamp))
    return out


def _record(chance: random.Random, partitions: int, key: str, value: bytes | None, stamp: int) -> Record:
    headers = (
        (("traceparent", b"00-1"), ("new-representative", b"4"), ("new-representative-offset", b"5"))
        if chance.random() < 0.05
        else ()
    )
    return Record(chance.randrange(partitions), key.encode(), value, headers, stamp)


class Said(NamedTuple):
    """What a record says. id: None where it is not known. text: None = it is no document. time: its own event time, in
    ms. deleted: the id is, and there is no text."""

    id: str | int | None = None
    text: str | None = None
    time: int | None = None
    outlet: Any = None
    deleted: bool = False


def said(record: Record, settings: KafkaSettings) -> Said:
    if record.value is None:
        return Said(record.key.decode(), deleted=True) if record.key and settings.key_is_id == "string" else Said()
    try:
        found = json.loads(record.value)
    except ValueError:
        return Said()
    if not isinstance(found, dict) or not isinstance(found["id"], (str, int)):
        return Said()
    deleted = settings.deleted_field is not None and found.get("deleted") is True
    text, ts = found.get("text"), found.get("ts")
    if deleted or not isinstance(text, str) or (ts is None and settings.window is None):
        text = None
    return Said(found["id"], text, ts, found.get("outlet"), deleted)


def modelled(
    settings: KafkaSettings, frames: Iterable[tuple[Sequenced, Frame]], documents: Iterable[Record]
) -> tuple[dict[Source, Verdict], list[dict[str, Any]]]:
    """The verdict on each document, and the events of groups."""
    records = {record.source: record for record in documents}
    model = model_of(settings)
    steps, log = list[tuple[int, Source, Said, Verdict, int]](), list[int]()
    for seq, source, appended in _accepted(frames):
        record = records[source]
        found = said(record, settings)
        time = record.timestamp if found.time is None else found.time
        assert time is not None
        stamp = min(time, appended + (settings.max_future_ms or 0))  # that only a window asks for
        if found.deleted:
            verdict = model.delete(seq, found.id, found.time, stamp)
        else:
            verdict = model.judge(seq, found.id, found.text or "", found.time, stamp)
        steps.append((seq, source, found, verdict, time))
        log.append(model.log)
    groups, events = Spreading(), list[dict[str, Any]]()
    if settings.groups:
        seqs = [seq for seq, *_ in steps]
        ends = reached(log, seqs, settings.window_ms) if settings.window else [0] * len(seqs)
        for (seq, _, found, verdict, time), end in zip(steps, ends, strict=True):
            events += groups.step(seq, found.id, verdict, time, found.outlet, end)
    return {source: verdict for _, source, _, verdict, _ in steps}, events


def _accepted(frames: Iterable[tuple[Sequenced, Frame]]) -> Iterator[tuple[int, Source, int]]:
    """Of each document its number, where it stood, and when its frame was appended."""
    for sequenced, frame in frames:
        source, n = frame.source, len(frame.source)
        counts = np.ones(n, np.bool_) if sequenced.accepted is None else sequenced.accepted
        numbers = sequenced.numbers(n).tolist()
        for i in np.flatnonzero(counts).tolist():
            yield numbers[i], (int(source.partitions[i]), int(source.offsets[i])), sequenced.appended


def verdict_of(line: dict[str, Any]) -> Verdict:
    """One of the pipeline's, as the model tells it."""
    assert "not_compared" not in line and "truncated" not in line, line
    representative = line.get("new_representative")
    return Verdict(
        line["kind"], line.get("first_kind"), line["duplicate_of"], line["similarity"], line["group"],
        tuple((match["id"], match["seq"], match["similarity"]) for match in line["matches"]), line.get("replaces"),
        None if representative is None else (representative["id"], representative["seq"]),
        tuple((later["group"], later["id"], later["seq"]) for later in line.get("new_representatives", ())),
    )  # fmt: skip


def check(settings: KafkaSettings, frames: Iterable[tuple[Sequenced, Frame]], found: Outputs) -> None:
    """The verdicts and the events of groups are those of the models."""
    expected, events = modelled(settings, frames, found.documents)
    lines = sorted((json.loads(record.value or b"") for record in found.verdicts), key=itemgetter("seq"))
    assert len(lines) == len(expected)
    theirs = [expected[line["source"]["partition"], line["source"]["offset"]] for line in lines]
    same(comparable(list(map(verdict_of, lines)), settings), comparable(theirs, settings))
    reported = [json.loads(record.value) for record in found.groups if record.value is not None]
    for one, other in zip(reported, events, strict=True):
        assert one == other, f"{one}\n{other}"
