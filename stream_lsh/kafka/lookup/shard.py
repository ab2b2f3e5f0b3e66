"""A shard that only follows its changelog."""

from __future__ import annotations

from stream_lsh.errors import StoreError
from stream_lsh.kafka.match.held import Held
from stream_lsh.kafka.match.replica import Replica

NO_END = 2**63 - 1


class LookupShard(Held):
    """A replica that matches no frames and writes to no topic. Its folder is never the only copy of the shard, so it
    is deleted and built again wherever that helps."""

    @property
    def replica(self) -> Replica:
        """The replica. Raises RuntimeError if it is not open."""
        return self._opened()

    def follow(self) -> None:
        """Follow the changelog again after `activate`."""
        self.check(self.start, NO_END)

    async def apply(self) -> None:
        """Apply everything that was taken.

        Raises:
            Failed, FormatError, StoreError: see `Held.take`.
        """
        self.backlog.flush()
        await self.backlog.wait(-1)

    def check_complete(self) -> None:
        """Raise StoreError if the changelog lacks rows that documents can match."""
        if missing := self.replica.missing:
            raise StoreError(
                f"the changelog of shard {self.shard} begins at offset {self.start}: it was trimmed, and changes of "
                f"{missing:,} rows are missing. So the pipeline cannot be looked up; rebuild it under another "
                "topic_prefix with stream-lsh kafka reindex"
            )

    def _delete(self, reason: str, *, whole: bool = False) -> None:
        super()._delete(reason, whole=True)
