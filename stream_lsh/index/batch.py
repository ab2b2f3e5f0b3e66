"""A signed batch: everything about its documents that can be known without knowing any other document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.columns import Columns
from stream_lsh.families.signer import Signer
from stream_lsh.hashing.murmur import murmur128
from stream_lsh.index.buckets import all_keys
from stream_lsh.index.layout import Documents
from stream_lsh.index.texts import TextFrame, compress
from stream_lsh.settings import Settings

COMPRESSION = 1

Sets = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""Shingle hashes document after document, and offsets int64[n + 1] of each document's in them."""


class Shingles(Protocol):
    """The shingle sets of a batch's documents, for exact verification."""

    def of(self, documents: NDArray[np.int64]) -> Sets:
        """The sets of at least these documents (positions in the batch); others may be empty."""

    def known(self) -> Sets:
        """The sets that are at hand without further work."""


@dataclass(frozen=True, slots=True)
class AllShingles:
    """Sets that signing has left: all of them."""

    shingles: NDArray[np.uint64]
    offsets: NDArray[np.int64]

    def of(self, documents: NDArray[np.int64]) -> Sets:
        return self.known()

    def known(self) -> Sets:
        return self.shingles, self.offsets


@dataclass(frozen=True, slots=True)
class SignedBatch:
    """A batch after signing.

    ids: as JSON text. owner: int64[n], the shard that stores each document. documents: `owned` is for no shard;
    `owned_by` sets it. frames: the compressed texts, one list a shard (empty without exact verification).
    """

    ids: list[bytes]
    owner: NDArray[np.int64]
    documents: Documents
    frames: tuple[list[TextFrame], ...]
    shingles: Shingles

    def __len__(self) -> int:
        return len(self.ids)

    def owned_by(self, shard: int) -> Documents:
        """The documents as one shard sees them."""
        return self.documents._replace(owned=self.documents.valid & (self.owner == shard))


def sign_batch(signer: Signer, settings: Settings, columns: Columns, *, want_shingles: bool) -> SignedBatch:
    """Signatures, fingerprints, keys and compressed texts of documents."""
    signed = signer.sign(columns.texts, columns.ends, want_shingles=want_shingles)
    valid = signed.sizes > 0
    valid[list(columns.rejected)] = False
    ids, owner = owners(columns.ids, settings.shards)
    frames: tuple[list[TextFrame], ...] = tuple([] for _ in range(settings.shards))
    if settings.verify == "exact":
        frames = tuple(
            compress(columns.texts, columns.ends, np.flatnonzero(valid & (owner == shard)), COMPRESSION)
            for shard in range(settings.shards)
        )
    n = len(columns.ids)
    documents = Documents(
        valid, np.zeros(n, np.bool_), ids, signed.fingerprints, all_keys(signed.keys, ids, signed.fingerprints),
        signed.signatures, signed.sizes, np.zeros(n, np.int64), columns.times,
    )  # fmt: skip
    return SignedBatch(columns.ids, owner, documents, frames, AllShingles(signed.shingles, signed.offsets))


def shingle(signer: Signer, texts: bytes, ends: NDArray[np.int64]) -> Sets:
    """The shingle sets of texts, each ending at ends[i]; for exact verification of what was stored or sent."""
    signed = signer.sign(texts, ends, want_shingles=True)
    return signed.shingles, signed.offsets


def owners(ids: list[bytes], shards: int) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Hashes uint64[n, 2] of ids, and the shards that store them."""
    hashes = murmur128(b"".join(ids), np.cumsum([len(i) for i in ids], dtype=np.int64))
    return hashes, (hashes[:, 0] % np.uint64(shards)).astype(np.int64)
