"""The records of verdicts and pairs for a complete frame, by source partition. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np
import orjson

from stream_lsh.documents.columns import NO_TIME, Rejection
from stream_lsh.documents.fields import plain
from stream_lsh.judging.verdicts import Judgement, Kind, judge, pairs, reasons, verdicts
from stream_lsh.kafka.consumer.output_headers import PAIR, VERDICT, EventHeaders, verdict_headers
from stream_lsh.kafka.judge.deciding import Deciding
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.memberships import Memberships
from stream_lsh.wire.replies import Reply, ReplyNames, source_of
from stream_lsh.wire.source import TOPIC_BITS, Headers, header_bytes, numbers, output_of

VERDICT_BYTES = 768 << 10  # the topic accepts 1 MiB, with source and headers

Record = tuple[bytes | None, bytes, Headers, None]  # key, value, headers, timestamp (now), as in `Delivery`
_NONE: Headers = []
_KINDS = [verdict_headers(kind.label) for kind in Kind]
_KIND_BYTES = [header_bytes(headers) for headers in _KINDS]


@dataclass(slots=True)
class Records:
    """Records by partition of the outputs, in the order of the frames, and their counts.

    Attributes:
        decisions: one record per frame, with several shards and `compare_with = "kept"` (`deciding`).
        memberships: one record per frame, with groups.
        kinds: number of verdicts by kind.
        documents: number of documents that count.
        not_compared: total of their verdicts.
        size: bytes of all keys, values and headers.
        frames: of each frame its offset, its number of documents that count, and headers by document.
    """

    topics: Topics
    verdicts: dict[int, list[Record]] = field(default_factory=dict)
    pairs: dict[int, list[Record]] = field(default_factory=dict)
    decisions: list[bytes] = field(default_factory=list)
    memberships: list[bytes] = field(default_factory=list)
    kinds: Counter[Kind] = field(default_factory=Counter)
    documents: int = 0
    not_compared: int = 0
    size: int = 0
    frames: list[tuple[int, int, dict[int, Headers]]] = field(default_factory=list)

    def judge(self, replies: Sequence[bytes], deciding: Deciding | None, settings: KafkaSettings) -> None:
        """Add the records for a frame, and the decisions if there are any.

        Args:
            replies: of all shards in order, encoded.
            deciding: with several shards and `compare_with = "kept"`.

        Raises:
            FormatError: a reply cannot be read, or the replies do not fit together.
        """
        found = [Reply.decode(reply, settings) for reply in replies]
        if deciding is not None:
            found, decisions = deciding.decide(found)
            self.decisions.append(decisions.encode(settings))
            self.size += len(self.decisions[-1])
        self.add(found, settings)

    def add(self, replies: Sequence[Reply], settings: KafkaSettings) -> None:
        """Add the records for a frame, from the replies of all shards in order. Raises FormatError as `judge`."""
        source, accepted = source_of(replies)
        n, topics = len(source), self.topics
        rows = np.arange(n) if accepted is None else np.flatnonzero(accepted)
        counted = rows.tolist()
        judgement, found = _judged(replies, source.ids, settings.max_matches)
        numbered = zip(source.partitions.tolist(), source.offsets.tolist(), strict=True)
        encoded = [name.encode() for name in topics.sources]
        places = [(encoded[number >> TOPIC_BITS], output_of(number), offset) for number, offset in numbered]
        partitions = [partition for _, partition, _ in places]
        ends = [b',"source":{"topic":"%b","partition":%d,"offset":%d}' % place for place in places]
        detected = b',"detected_at":%d' % source.signed_at
        why, ended = _reasons(judgement, source.rejected), _tombstones(judgement, replies, topics)
        times, ids, headers = source.times.tolist(), source.ids, source.headers
        carried = {i: header_bytes(found) for i, found in headers.items()}
        of_verdicts, of_pairs = EventHeaders(settings, VERDICT), EventHeaders(settings, PAIR)
        names = [b"%b:%d:%d" % place for place in places]
        kinds = judgement.kinds.tolist()
        for i in counted:
            time = times[i]
            value = b'%b%b,"time":%b%b%b%b}' % (
                found[i], ends[i], b"null" if time == NO_TIME else b"%d" % time, detected, why.get(i, b""),
                ended.get(i, b""),
            )  # fmt: skip
            records = self.verdicts.get(partitions[i])
            if records is None:
                records = self.verdicts[partitions[i]] = []
            event = of_verdicts.of(names[i], source.signed_at)
            records.append((plain(ids[i]), value, [*headers.get(i, _NONE), *_KINDS[kinds[i]], *event], None))
            self.size += len(value) + len(ids[i]) + carried.get(i, 0) + _KIND_BYTES[kinds[i]] + header_bytes(event)
        for number, (i, older, head) in enumerate(pairs(judgement, settings.verify)):
            value = b"%b%b%b}" % (head, ends[i], detected)
            key = b"[%b,%b]" % (older, ids[i])
            event = of_pairs.of(b"%b:%d" % (names[i], number), source.signed_at)
            row = key, value, [*headers.get(i, _NONE), *event], None
            self.pairs.setdefault(partitions[i], []).append(row)
            self.size += len(value) + len(key) + carried.get(i, 0) + header_bytes(event)
        if settings.groups:
            offset, predecessor = replies[0].offset, replies[0].predecessor
            log = next((reply.log for reply in replies if reply.log is not None), None)
            place = offset, predecessor, replies[0].shift
            self.memberships.append(Memberships.encoded(*place, judgement, source, log, rows, settings))
            self.size += len(self.memberships[-1])
        self.not_compared += int(judgement.not_compared.sum())
        counts = judgement.kinds if accepted is None else judgement.kinds[accepted]
        for kind, count in enumerate(np.bincount(counts, minlength=len(Kind)).tolist()):
            if count:
                self.kinds[Kind(kind)] += count
        self.documents += len(counted)
        self.frames.append((replies[0].offset, len(counted), headers))


def _judged(replies: Sequence[Reply], ids: Sequence[bytes], most: int) -> tuple[Judgement, list[bytes]]:
    """The judgement and its verdicts. The limit on matches is lowered until each verdict fits into a record."""
    matches = [reply.matches for reply in replies]
    seqs = numbers(replies[0].offset, len(ids))
    most = most or sum(len(found.document) for found in matches)
    while True:
        judgement = judge(matches, ids, seqs, most, ReplyNames([reply.names for reply in replies]))
        found = verdicts(judgement)
        if most <= 1 or max(map(len, found), default=0) <= VERDICT_BYTES:
            return judgement, found
        most //= 2


def _reasons(judgement: Judgement, rejected: dict[int, Rejection]) -> dict[int, bytes]:
    return {
        i: b',"reason":%b,"detail":%b' % (orjson.dumps(rejection.reason), orjson.dumps(rejection.detail))
        for i, rejection in reasons(judgement, rejected).items()
    }


def _tombstones(judgement: Judgement, replies: Sequence[Reply], topics: Topics) -> dict[int, bytes]:
    """For documents that ended a kept document: a field that says so, and where the new representatives are in the
    documents topics. Includes representatives chosen only now for documents that ended earlier."""

    def place(shard: int, seq: int) -> bytes:
        source, offset = replies[shard].representatives[seq]
        topic, partition = topics.place(source)
        return b'{"topic":"%b","partition":%d,"offset":%d}' % (topic.encode(), partition, offset)

    found = {}
    for i in judgement.removals.tolist():
        found[i] = b',"tombstone":true'
        if (seq := int(judgement.representative_seqs[i])) >= 0:
            found[i] += b',"new_representative_source":%b' % place(int(judgement.representatives[i, 0]), seq)
    for i, later in groupby(judgement.later.tolist(), key=itemgetter(0)):
        places = b",".join([place(shard, seq) for _, _, shard, _, seq in later])
        found[i] = found.get(i, b"") + b',"new_representative_sources":[%b]' % places
    return found
