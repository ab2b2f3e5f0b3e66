"""The batch that a shard matches, from a frame. Texts are decompressed and shingled when they are needed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Rejection, hashes_of
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.documents.times import NO_TIME
from stream_lsh.errors import FormatError
from stream_lsh.families.family import Signs
from stream_lsh.families.terms import scoped
from stream_lsh.index.batch import NO_SOURCES, ShingleSets, SignedBatch, batch_of, owners
from stream_lsh.index.rows.keys import Hashes, Keys, ends_of
from stream_lsh.index.rows.layout import DELETION, FLAGS, PARTITION_BITS, SEQ
from stream_lsh.index.rows.texts import decompress
from stream_lsh.settings.model import Settings
from stream_lsh.wire.frames import Frame
from stream_lsh.wire.sequenced import Sequenced
from stream_lsh.wire.source import row_bits


class TextShingles:
    """Shingle sets of a frame's documents, made from its compressed texts when they are needed.

    Args:
        valid: bool[n], documents that are not rejected.

    Under `tf-idf` the scopes are in the signatures, and change the terms.
    """

    def __init__(self, frame: Frame, valid: NDArray[np.bool_], signer: Signs) -> None:
        n = len(valid)
        self._signer = signer
        self._scopes = frame.signatures[:, 0].astype(np.uint64) if signer.settings.measure == "tf-idf" else None
        self._valid = valid
        self._sets = ShingleSets(np.empty(0, np.uint64), np.zeros(n + 1, np.int64), np.zeros(n, np.bool_))
        self._ahead = 1  # documents shingled at once: in a dense feed nearly all are needed
        self._part = np.full(n, -1)  # the compressed part that has a document's text
        self._parts = [part for parts in frame.texts for part in parts]
        for number, part in enumerate(self._parts):
            if int(part.documents.max(initial=0)) >= n:
                raise FormatError("a frame is damaged: it has texts of documents that are not in it")
            self._part[part.documents] = number
        if len(self._parts) and bool((self._part[valid] < 0).any()):
            raise FormatError("a frame is damaged: texts of its documents are missing")
        self._texts: dict[int, bytes] = {}

    def known(self) -> ShingleSets:
        return self._sets

    def with_document(self, i: int) -> ShingleSets:
        missing = i + np.flatnonzero(self._valid[i:] & ~self._sets.have[i:])[: self._ahead]
        ahead, self._ahead = self._ahead, 1  # after an exception: without the documents behind it
        texts = [self._take(k) for k in missing.tolist()]
        shingles, offsets = self._signer.shingle(b"".join(texts), ends_of(texts))
        self._ahead = 2 * ahead
        if self._scopes is not None:
            shingles = scoped(shingles, offsets, self._scopes[missing])
        self._add(missing, shingles, offsets)
        return self._sets

    def all(self) -> tuple[Keys, dict[int, Rejection]]:
        """The sets of all valid documents: shingles, and offsets. Also the documents with which shingling fails."""
        failed: dict[int, Rejection] = {}
        self._ahead = len(self._valid)
        while len(missing := np.flatnonzero(self._valid & ~self._sets.have)):
            i, alone = int(missing[0]), self._ahead == 1
            try:
                self.with_document(i)
            except Exception as error:
                why = rejection_of(error)
                if alone:
                    failed[i], self._valid[i] = why, False
        return (self._sets.shingles, self._sets.offsets), failed

    def text(self, i: int) -> bytes:
        if i not in self._texts:
            part = self._parts[self._part[i]]
            self._texts.update(zip(part.documents.tolist(), decompress(part), strict=True))
        return self._texts[i]

    def _take(self, i: int) -> bytes:
        text = self.text(i)
        del self._texts[i]
        return text

    def _add(self, documents: NDArray[np.int64], shingles: NDArray[np.uint64], offsets: NDArray[np.int64]) -> None:
        """Add the sets of documents, ascending; the k-th has shingles[offsets[k]:offsets[k + 1]]."""
        old, sizes, new = self._sets, np.diff(self._sets.offsets), np.zeros(len(self._valid), np.bool_)
        sizes[documents], new[documents] = np.diff(offsets), True
        mine = np.repeat(new, sizes)
        both = np.empty(len(mine), np.uint64)
        both[mine], both[~mine] = shingles, old.shingles
        self._sets = ShingleSets(both, np.concatenate(([0], np.cumsum(sizes))), old.have | new)


def signed_batch(frame: Frame, sequenced: Sequenced, settings: Settings, hashes: Hashes, signer: Signs) -> SignedBatch:
    """The batch of a frame, for a shard. Documents that are not accepted are not valid. Those with which shingling
    fails are added to the rejected ones.

    Args:
        hashes, signer: of the sequenced frame's key.

    Raises:
        FormatError: columns do not fit together.
    """
    n, accepted, source = len(frame.source), sequenced.accepted, frame.source
    if accepted is not None and len(accepted) != n:
        raise FormatError(f"a sequenced frame is damaged: it accepts {len(accepted)} documents of {n}")
    # Copies, because numba would compile its kernels again for read-only arrays.
    sizes = frame.sizes.copy() if accepted is None else np.where(accepted, frame.sizes, np.uint32(0))
    times = source.times.copy()
    if settings.time_field is None and (settings.updates or settings.measure == "tf-idf"):
        times[:] = NO_TIME  # the place in the log orders versions; the age of a story is not known
    times[frame.stamped] = NO_TIME
    shingles = TextShingles(frame, sizes > 0, signer)
    shingle_sets, failed = shingles.all() if hashes.samples else (None, {})
    fingerprints, sources = frame.fingerprints.copy(), NO_SOURCES
    if settings.keep_per is not None:  # as in `batch.sign_batch`
        sources = hashes_of(source.sources, signer.key)
        fingerprints[:, 0] ^= sources
    documents = batch_of(
        hashes, source.ids, owners(source.ids, settings.shards), frame.signatures.copy(), fingerprints, sizes, times,
        shingle_sets, frame.ranks.copy(), sources,
    )  # fmt: skip
    documents.words[:, SEQ] = sequenced.numbers(n)
    documents.words[:, FLAGS] |= row_bits(source.partitions).astype(np.uint64) << PARTITION_BITS
    deleted = frame.deleted if accepted is None else frame.deleted[accepted[frame.deleted]]
    documents.what[deleted] = DELETION
    if sequenced.log is not None:
        if len(sequenced.log) != n:
            raise FormatError(
                f"a sequenced frame is damaged: it has stream times of {len(sequenced.log)} documents of {n}"
            )
        documents.log[:] = sequenced.log
    return SignedBatch(source.ids, documents, frame.texts, shingles, {**source.rejected, **failed})
