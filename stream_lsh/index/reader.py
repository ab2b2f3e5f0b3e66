"""What can be asked of the open shards of an index: similar rows, and the parts of a row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns
from stream_lsh.documents.times import NO_TIME
from stream_lsh.families.family import explainer_of, signer_of
from stream_lsh.index.batch import SignedBatch, sign_batch
from stream_lsh.index.batch_run import BatchRun
from stream_lsh.index.evidence import explained
from stream_lsh.index.kernel import compiling
from stream_lsh.index.matches import Matches
from stream_lsh.index.resolution import Resolution
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import NO_GROUP, SEQ
from stream_lsh.index.segments.window import Window
from stream_lsh.index.shard import Shard
from stream_lsh.settings.model import Settings


class IndexReader:
    """The open shards of an index, all as of the same document.

    Args:
        settings: settings of the index.
        key: its key.

    Attributes:
        settings: settings of the index.
        shards: all of them, in order.
        window: its window; None = it keeps everything.
        signer: signs its texts.
    """

    shards: Sequence[Shard]
    window: Window | None
    _resolution: Resolution

    def __init__(self, settings: Settings, key: bytes) -> None:
        self.settings = settings
        self.signer, self._hashes = signer_of(settings.signing, key), Hashes(settings.signing, key)
        self._explain = explainer_of(settings.signing)

    @property
    def count(self) -> int:
        """Number of live documents."""
        return sum(shard.live_rows for shard in self.shards)

    def id_of(self, shard: int, row: int) -> bytes:
        """The id of a row, as JSON text."""
        return self.shards[shard].ids.read(row)

    def first_of(self, shard: int, row: int) -> bytes:
        """The id of the oldest match of a row's document, b"" if it had none."""
        return self.shards[shard].ids.named(row)[1]

    def words(self, shard: int, row: int) -> NDArray[np.uint64]:
        """The words of a row (`layout`)."""
        return self.shards[shard].stored.words(row)

    def text(self, shard: int, row: int) -> bytes:
        """The text of a row, UTF-8 ('surrogatepass'); only with verify = "exact"."""
        return bytes(self.shards[shard].texts.read([row], 1)[0])

    def compile(self) -> None:
        """Load or compile the kernels of matching. Matching does so itself; this call can be interrupted."""
        compiling.have(self.shards[0].kernels, self._compile_evidence)

    def _compile_evidence(self) -> None:
        """Explain a match of a text with itself, so that the kernels for it are compiled."""
        if self._explain is not None:
            self._explain(b"text", [b"text"] if self._explain.of_texts else [])

    def sign(self, columns: Columns, *, want_texts: bool = True) -> SignedBatch:
        """Sign a batch; may run in another thread than `match`."""
        return sign_batch(self.signer, self._hashes, self.settings, columns, want_texts=want_texts)

    def _explained(self, found: list[Matches], batch: SignedBatch) -> list[Matches]:
        """Add the evidence."""
        if self._explain is None:
            return found
        return [
            explained(matches, batch.shingles, shard, self._explain, self.settings.max_matches)
            for shard, matches in zip(self.shards, found, strict=True)
        ]

    def query(self, batch: SignedBatch, *, known: bool = False) -> list[Matches]:
        """Match a batch without storing it, against the rows in the window at the current stream time.

        Args:
            known: look up the ids as well.
        """
        self.compile()
        batch.documents.words[:, SEQ] = np.int64(NO_GROUP).view(np.uint64)
        if self.window is not None:
            batch.documents.log[:] = self.window.now
        steps = [BatchRun(shard, batch, store=False, known=known) for shard in self.shards]
        for step in steps:
            step.run(0, len(batch))
        found = [step.matches() for step in steps]
        if self.settings.late:
            numbers = np.full(len(batch), NO_GROUP, np.int64)
            found = self._resolution.resolve(found, 0, len(batch), numbers, None).found
        return self._explained(found, batch)

    def look_up(self, ids: Sequence[bytes]) -> NDArray[np.int64]:
        """Shard and row int64[n, 2] of the live documents with these ids (as JSON text) in the current window; -1 where
        there is none."""
        n = len(ids)
        batch = self.sign(Columns(list(ids), b"", np.zeros(n, np.int64), np.full(n, NO_TIME)), want_texts=False)
        if self.window is not None:
            batch.documents.log[:] = self.window.now
        found = np.full((n, 2), -1, np.int64)
        for shard in self.shards:
            known = BatchRun(shard, batch, store=False).known()
            there = np.flatnonzero(known >= 0)
            found[there, 0], found[there, 1] = shard.number, known[there]
        return found
