"""The shards of a pipeline as of one frame."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from stream_lsh.index.reader import IndexReader
from stream_lsh.index.rows.layout import SEQ
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions, restored


class FrameReader(IndexReader):
    """Asks the open shards of a pipeline. Nothing may be applied to them meanwhile.

    Args:
        key: of the index.
        replicas: all shards in order, open, and all as of the same frame.
        known: with several shards and `compare_with = "kept"`, the decisions on all documents up to this frame that
            are provisional in a shard.
    """

    def __init__(
        self, settings: Settings, key: bytes, replicas: Sequence[Replica], known: Sequence[Decisions] = ()
    ) -> None:  # fmt: skip
        super().__init__(settings, key)
        self.shards = [replica.shard for replica in replicas]
        forgetting = replicas[0].forgetting
        self.window = None if forgetting is None else forgetting.window
        self._resolution = restored(settings.keep, known)
        self._known = known
        if known:
            place = provisional_from(self.shards[0].late.block, settings)
            self._resolution.forget(place)
            self._resolution.take_superseded(place)

    @cached_property
    def _names(self) -> dict[int, bytes]:
        """By seq of provisional documents, the ids that they were dropped for."""
        return {
            seq: name
            for decisions in self._known
            for seq, name in zip(decisions.states.seq[decisions.joined].tolist(), decisions.names, strict=True)
        }

    def first_of(self, shard: int, row: int) -> bytes:
        """The id of the oldest match of a row's document, b"" if it had none."""
        return super().first_of(shard, row) or self._names.get(int(self.words(shard, row)[SEQ]), b"")


def provisional_from(block: int, settings: Settings) -> int:
    """The place in the log of the first document that may be provisional, in the latest block of a shard."""
    return max(0, block - 1) * settings.block
