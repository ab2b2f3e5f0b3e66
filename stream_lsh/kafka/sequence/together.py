"""Frames that travel in one record: a quarter of what a small frame costs match is paid once a record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.parts import Place, cut
from stream_lsh.wire.sequenced import frame_of, join_frames

MOST = 32  # frames in a record, as match takes them


@dataclass(slots=True)
class Together:
    """Frames of a poll that are not sent yet. They share a record for each shard, up to limits.

    Attributes:
        frames: of each frame, its encodings for the shards.
        size: bytes of the largest record.
        documents: how many of the frames' documents count.
        mark: the position after all of them, with what is accepted then.
    """

    frames: list[Sequence[bytes]] = field(default_factory=list)
    size: int = 0
    documents: int = 0
    mark: tuple[int, Accepted] | None = None

    def room(self, frame: Sequence[bytes], most: int) -> bool:
        """Whether a frame may share the records. most: bytes of a record with more than one frame."""
        size = max(map(len, frame), default=0)
        return not (frame and self.frames) or (len(self.frames) < MOST and self.size + size <= most)

    def add(self, frame: Sequence[bytes], documents: int, mark: tuple[int, Accepted]) -> None:
        """Add a frame. frame: empty if it is not sent to the shards."""
        if frame:
            self.frames.append(frame)
            self.size += max(map(len, frame))
        self.documents += documents
        self.mark = mark

    def records(self, settings: KafkaSettings) -> list[tuple[int, bytes]]:
        """A record for each shard, or its parts, with the shard's number."""
        return [
            (shard, part)
            for shard, frames in enumerate(zip(*self.frames, strict=True))
            for part in _parts(shard, frames, settings)
        ]


def _parts(shard: int, frames: Sequence[bytes], settings: KafkaSettings) -> list[bytes]:
    record, most = join_frames(frames, settings), settings.record_bytes
    if len(record) <= most:
        return [record]
    return cut(record, Place(shard, *frame_of(frames[0], settings)), most, settings)
