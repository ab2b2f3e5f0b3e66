"""A signed batch: what can be computed of its documents one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import NO_RANKS, Columns, Rejection
from stream_lsh.documents.engine_errors import isolating
from stream_lsh.documents.ranks import LOWEST
from stream_lsh.families.family import Signs
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.index.rows import layout
from stream_lsh.index.rows.keys import Hashes, Keys, as_words, ends_of
from stream_lsh.index.rows.texts import TextFrame, compress
from stream_lsh.settings.model import Settings


@dataclass(slots=True)
class ShingleSets:
    """Shingle sets of n documents, as far as they are in memory: document i has shingles[offsets[i]:offsets[i + 1]] if
    have[i], which may be longer."""

    shingles: NDArray[np.uint64]
    offsets: NDArray[np.int64]
    have: NDArray[np.bool_]


class Shingles(Protocol):
    """The shingle sets of a batch's documents, for exact verification."""

    def known(self) -> ShingleSets:
        """The sets that are in memory."""

    def with_document(self, i: int) -> ShingleSets:
        """The sets in memory, with that of document i."""

    def text(self, i: int) -> bytes:
        """The text of document i, which must not be rejected."""


@dataclass(slots=True)
class AllShingles:
    """All sets of a batch, as signing has made them, and the texts."""

    sets: ShingleSets
    texts: bytes
    ends: NDArray[np.int64]

    def known(self) -> ShingleSets:
        return self.sets

    def with_document(self, i: int) -> ShingleSets:
        return self.sets

    def text(self, i: int) -> bytes:
        return self.texts[int(self.ends[i - 1]) if i else 0 : int(self.ends[i])]


NO_SOURCES = np.empty(0, np.uint64)
_NOTHING, _HAVE = np.empty(0, np.int64), np.ones(1024, np.bool_)
NO_SHINGLES = AllShingles(
    ShingleSets(np.empty(0, np.uint64), np.zeros(1, np.int64), np.zeros(0, np.bool_)), b"", _NOTHING
)


@dataclass(slots=True)
class SignedBatch:
    """A batch after signing.

    Attributes:
        ids: as JSON text.
        documents: as kernels read them.
        frames: the compressed texts, a list for each shard; empty without exact verification.
        rejected: by place, rejected in parsing or signing.
    """

    ids: list[bytes]
    documents: layout.Batch
    frames: tuple[list[TextFrame], ...]
    shingles: Shingles
    rejected: Mapping[int, Rejection]

    def __len__(self) -> int:
        return len(self.ids)


def sign_batch(
    signer: Signs, hashes: Hashes, settings: Settings, columns: Columns, *, want_texts: bool = True
) -> SignedBatch:
    """Signatures, hashes, keys and, if wanted, compressed texts of documents. Documents with which this fails are
    rejected."""

    def sign(begin: int, end: int, found: Mapping[int, Rejection]) -> SignedBatch:
        return _signed(signer, hashes, settings, columns.part(begin, end).rejecting(found), want_texts)

    return isolating(sign, len(columns))


def _signed(signer: Signs, hashes: Hashes, settings: Settings, columns: Columns, want_texts: bool) -> SignedBatch:
    exact = settings.verify == "exact"
    signed = signer.sign(columns.texts, columns.ends, columns.scope_hashes(signer.key), want_shingles=exact)
    sizes = signed.sizes
    if columns.rejected:
        sizes[list(columns.rejected)] = 0
    owner = owners(columns.ids, settings.shards)
    frames: tuple[list[TextFrame], ...] = tuple([] for _ in range(settings.shards))
    if want_texts:
        frames = text_frames(settings, columns, sizes, owner, all_packed=False)
    shingle_sets = (signed.shingles, signed.offsets) if hashes.samples else None
    sources = NO_SOURCES
    if settings.keep_per is not None:  # the text of another source is another text
        sources = columns.source_hashes(signer.key)
        signed.fingerprints[:, 0] ^= sources
    documents = batch_of(
        hashes, columns.ids, owner, signed.signatures, signed.fingerprints, sizes, columns.times, shingle_sets,
        ranks_of(settings, columns), sources,
    )  # fmt: skip
    if columns.deleted:
        documents.what[columns.deleted] = layout.DELETION
    shingles = NO_SHINGLES
    if exact:
        n = len(columns)
        sets = ShingleSets(signed.shingles, signed.offsets, _HAVE if n <= len(_HAVE) else np.ones(n, np.bool_))
        shingles = AllShingles(sets, columns.texts, columns.ends)
    return SignedBatch(columns.ids, documents, frames, shingles, columns.rejected)


def text_frames(
    settings: Settings, columns: Columns, sizes: NDArray[np.uint32], owner: NDArray[np.int64], *,
    all_packed: bool = True,
) -> tuple[list[TextFrame], ...]:  # fmt: skip
    """The texts of the documents that are not rejected, compressed, a list for each shard; empty without exact
    verification. all_packed: see `compress`."""
    if settings.verify != "exact":
        return tuple([] for _ in range(settings.shards))
    if settings.shards == 1:
        return (compress(columns.texts, columns.ends, sizes.nonzero()[0], all_packed=all_packed),)
    return tuple(
        compress(columns.texts, columns.ends, ((sizes > 0) & (owner == shard)).nonzero()[0])
        for shard in range(settings.shards)
    )


def batch_of(
    hashes: Hashes,
    ids: list[bytes],
    owner: NDArray[np.int64],
    signatures: NDArray[Any],
    fingerprints: NDArray[np.uint64],
    sizes: NDArray[np.uint32],
    times: NDArray[np.int64],
    sets: Keys | None = None,
    ranks: NDArray[np.float64] = NO_RANKS,
    sources: NDArray[np.uint64] = NO_SOURCES,
) -> layout.Batch:
    """The kernels' view of documents. Without a size a document is not VALID. SEQ and stream times are to be set.

    Args:
        sets: shingles and their offsets, where keys are sampled from them.
    """
    hashed, words, what = hashes.of_documents(ids, fingerprints, sizes, times)
    keys, starts = hashes.keys(signatures, fingerprints, hashed, sets)
    if sets is not None:  # for containment candidates: the number of keys is in the signature
        signatures[:, -8:] = (np.diff(starts) - 2).astype("<u8").view(np.uint8).reshape(-1, 8)
    log = np.zeros(len(ids), np.int64)
    return layout.Batch.of(words, what, owner, keys, starts, as_words(signatures).reshape(-1), log, ranks, sources)


def ranks_of(settings: Settings, columns: Columns) -> NDArray[np.float64]:
    """float64[n], the ranks of documents; empty where they depend on nothing but the order of arrival."""
    if settings.keep == "best":
        return columns.ranks if len(columns.ranks) else np.full(len(columns), LOWEST)
    return columns.code_points().astype(np.float64) if settings.keep == "longest" else NO_RANKS


def parts(places: NDArray[np.int64], segments: NDArray[np.int64], block: int = 0) -> Iterator[tuple[int, int, int]]:
    """Cut a batch where a segment begins: segment, start and stop of each part.

    Args:
        places: int64[n], ascending, number of documents of the log before each.
        segments: int64[n], the number of each document's segment.
        block: cut also where a block of this many documents begins; 0 = none.
    """
    if len(places) == 1:
        yield int(segments[0]), 0, 1
        return
    cuts = segments[1:] != segments[:-1]
    if block:
        blocks = places // block
        cuts |= blocks[1:] != blocks[:-1]
    cuts = cuts.nonzero()[0] + 1
    for start, stop in pairwise([0, *cuts.tolist(), len(places)]):
        if start < stop:
            yield int(segments[start]), start, stop


def owners(ids: list[bytes], shards: int) -> NDArray[np.int64]:
    """int64[n], the shards that store documents with these ids. The hash has no key, because verdicts depend on it."""
    if shards == 1:
        return np.zeros(len(ids), np.int64)
    hashed = murmur128(b"".join(ids), ends_of(ids))
    return (hashed[:, 0] % np.uint64(shards)).astype(np.int64)
