"""Which documents of a frame count: those from the accepted position of their source partition on.

Signers send at least once, a fenced signer may send late, and a refused send may leave a gap. The order of the frames
in their topic decides, with these rules for each source partition in a frame:

- The partition is new: only a segment marked `STARTS` is accepted. Another segment is ignored; the signer repeats it.
- The segment begins after the accepted position: it is a gap, ignored until the missing frames arrive. Only `JUMPS`,
  which an operator has allowed (accept_deleted_records), skips a gap.
- The segment ends at or before the accepted position: it is a repeat.
- Otherwise its documents from the accepted position on count, and its end becomes the accepted position.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import numpy as np
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.record.util import decode_varint, encode_varint
from numpy.typing import NDArray

from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import FormatError, StoreError
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.index.segments.stream_time import StreamTime, begun
from stream_lsh.kafka.consumer.position import committed
from stream_lsh.kafka.names import Topics
from stream_lsh.settings.model import Settings
from stream_lsh.wire.envelope import OLDER
from stream_lsh.wire.frames import CONTINUES, JUMPS, Places
from stream_lsh.wire.sequenced import Sequenced

_VERSION = 2


@dataclass(frozen=True, slots=True)
class Gap:
    """Documents of a source partition that are missing before a segment. accepted: -1 if nothing is accepted yet."""

    partition: int
    accepted: int
    begins: int


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """What to do with a frame.

    Attributes:
        after: the accepted positions after the frame.
        documents: how many of its documents count. A frame without any is not sent to the shards.
        mask: which ones count, bool[n], or None for all.
        gaps: segments that were ignored.
        repeats: documents that were accepted before.
        log: with a window or groups, the stream time after each document, int64[n]; shift: of it (`StreamTime.shift`).
    """

    after: Accepted
    documents: int
    mask: NDArray[np.bool_] | None
    gaps: tuple[Gap, ...]
    repeats: int
    log: NDArray[np.int64] | None = None
    shift: int = 0


@dataclass(frozen=True, slots=True)
class Accepted:
    """What the sequencer has accepted: the accepted position of each source partition. Immutable.

    Attributes:
        key: of the index, created at the very first start.
        last: offset of the last frame that was sent to the shards, -1 before the first.
        documents: how many have been accepted.
        log: with a window or groups, the state of stream time (`StreamTime.facts`).
    """

    key: bytes
    positions: Mapping[int, int] = field(default_factory=dict)
    last: int = -1
    documents: int = 0
    log: Mapping[str, Any] | None = None

    def accept(self, frame: Places, latest: int | None = None) -> Decision:
        """Decide on a frame.

        Args:
            latest: for stream time, a later event time counts as this one (ms since 1970). None: there is no limit.

        Raises:
            FormatError: a segment ends before it begins.
        """
        decision = self._accept(frame.segments, frame.partitions, frame.offsets)
        if frame.times is None or not decision.documents:
            return decision
        time, times = StreamTime(self.log), frame.times
        if latest is not None:
            times = np.minimum(times, latest)
        log = begun(time.advance(times if decision.mask is None else np.where(decision.mask, times, NO_TIME)))
        return replace(decision, after=replace(decision.after, log=time.facts), log=log, shift=time.shift)

    def _accept(
        self, segments: NDArray[np.int64], partitions: NDArray[np.int32], offsets: NDArray[np.int64]
    ) -> Decision:
        known = self.positions
        moved: dict[int, int] = {}
        taken: list[tuple[int, int, int]] = []  # partition, begin, end
        gaps: list[Gap] = []
        repeated = cut = False
        for partition, begins, ends, first in segments.tolist():
            if not 0 <= begins <= ends:
                raise FormatError(f"a frame is damaged: a segment begins at {begins} and ends at {ends}")
            at = moved.get(partition, known.get(partition, -1))
            if at < 0:
                at = begins if first != CONTINUES else -1
            elif begins > at and first == JUMPS:
                at = begins
            elif ends <= at:
                repeated = True
                continue
            if at < begins:
                gaps.append(Gap(partition, at, begins))
                continue
            cut |= at > begins
            taken.append((partition, at, ends))
            moved[partition] = ends
        n = len(offsets)
        after = replace(self, positions={**known, **moved}) if moved else self
        if not (gaps or repeated or cut):
            return Decision(after, n, None, (), 0)
        mask = np.zeros(n, np.bool_)
        for partition, begins, ends in taken:
            mask |= (partitions == partition) & (offsets >= begins) & (offsets < ends)
        documents = int(np.count_nonzero(mask))
        missed = np.isin(partitions, [gap.partition for gap in gaps]) if gaps else np.zeros(n, np.bool_)
        repeats = int(np.count_nonzero(~mask & ~missed))
        return Decision(after, documents, None if documents == n else mask, tuple(gaps), repeats)

    def set_back(self, time: int) -> Accepted:
        """The same, with stream time set back to `time` (`StreamTime.set_back`)."""
        log = StreamTime(self.log)
        log.set_back(time)
        return self if self.log is None else replace(self, log=log.facts)

    def passed_on(self, offset: int, documents: int) -> Accepted:
        """The same, with the frame at `offset` as the last one sent, of which `documents` documents count."""
        return replace(self, last=offset, documents=self.documents + documents)

    def metadata(self) -> str:
        """The text for the metadata of an offset commit.

        It is `2:` and base64 of the key (16 bytes) and of varints: last, documents, then two for
        each source partition, ascending. These are the count of partitions skipped before it, and its position minus
        that of the one before. With a window or groups `:` follows, and base64 of stream time and the last event
        times, oldest first, each as the difference from the one before. If stream time was set back, `:` and the shift
        follow.

        A source partition takes about 4 bytes if partitions are about equally long, the times about 300. Brokers
        accept 4,096 bytes (offset.metadata.max.bytes).
        """
        out = bytearray(self.key)
        encode_varint(self.last, out.append)
        encode_varint(self.documents, out.append)
        before, position = -1, 0
        for partition, ends in sorted(self.positions.items()):
            encode_varint(partition - before - 1, out.append)
            encode_varint(ends - position, out.append)
            before, position = partition, ends
        text = f"{_VERSION}:{base64.b64encode(out).decode('ascii')}"
        if self.log is None:
            return text
        out, before = bytearray(), 0
        for time in (self.log["time"], *self.log["last"]):
            encode_varint(time - before, out.append)
            before = time
        text = f"{text}:{base64.b64encode(out).decode('ascii')}"
        return f"{text}:{self.log['shift']}" if "shift" in self.log else text

    @classmethod
    def of(cls, metadata: str) -> Accepted:
        """Parse a text of `metadata`.

        Raises:
            StoreError: an older version has written it.
            FormatError: a newer version or another program has written it.
        """
        version, _, text = metadata.partition(":")
        if version == "1":
            raise StoreError(f"the sequencer's committed offset was written by version 1, this is {_VERSION}: {OLDER}")
        if version != str(_VERSION):
            raise FormatError(
                f"the metadata {metadata[:40]!r} of the sequencer's committed offset was not written by this version: "
                "upgrade this worker if another version wrote it; otherwise rebuild under another topic_prefix"
            )
        try:
            text, timed, times = text.partition(":")
            times, _, shift = times.partition(":")
            data = base64.b64decode(text, validate=True)
            key, numbers = data[:KEY_BYTES], _read(data[KEY_BYTES:])
            last, documents = next(numbers), next(numbers)
            positions: dict[int, int] = {}
            partition, position = -1, 0
            for skipped in numbers:
                partition += skipped + 1
                position += next(numbers)
                positions[partition] = position
            log = None
            if timed:
                time, *last_times = accumulate(_read(base64.b64decode(times, validate=True)))
                log = {"last": last_times, "time": time} | ({"shift": int(shift)} if shift else {})
        except (binascii.Error, StopIteration, ValueError):
            raise FormatError(
                "the metadata of the sequencer's committed offset is damaged; rebuild under another topic_prefix"
            ) from None
        return cls(key, positions, last, documents, log)


def sent_to_shards(
    offset: int, appended: int, value: bytes, decision: Decision, per_shard: Sequence[bytes], settings: Settings
) -> list[bytes]:
    """The records for the shards, in their order, of a frame that has documents.

    Args:
        offset, appended, value: of the frame in `signatures`; appended: ms since 1970.
        per_shard: the decisions that are sent with it.
    """
    after = decision.after
    frame = Sequenced(
        offset, after.last, after.documents, after.key, decision.mask, memoryview(value), appended=appended,
        shift=decision.shift, log=None if settings.window is None else decision.log,
    )  # fmt: skip
    same = frame.encode(settings)
    return [replace(frame, decisions=found).encode(settings) if found else same for found in per_shard]


async def sequenced(client: AIOKafkaAdminClient, topics: Topics) -> tuple[int, Accepted] | None:
    """The sequencer's position in signatures, and what it has accepted; None before its first start, which creates the
    key. Raises as `position.committed` and `Accepted.of`."""
    found = (await committed(client, topics.group("sequence"), topics.signatures)).get(0)
    return None if found is None else (found[0], Accepted.of(found[1]))


def _read(data: bytes) -> Iterator[int]:
    at = 0
    if data and data[-1] > 127:  # aiokafka would read beyond
        raise ValueError("cut off")
    while at < len(data):
        number, at = decode_varint(data, at)
        yield number
