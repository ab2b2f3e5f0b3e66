"""Documents as columns, validated. Rejected documents keep their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, pairwise

import numpy as np
from numpy.typing import NDArray

from stream_lsh.documents.fields import LINE_ID, Fields, Record
from stream_lsh.documents.times import NO_TIME
from stream_lsh.hashing.siphash import siphash128

__all__ = [
    "LINE_ID",
    "NO_TIME",
    "Columns",
    "Fields",
    "Position",
    "Rejection",
]


NO_RANKS = np.empty(0)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a document is rejected. size: its full size in bytes if only its beginning was stored."""

    reason: str
    detail: str
    size: int | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """How far an input was read.

    Attributes:
        offset, line: uncompressed bytes and lines (for a folder: bytes of files, and files).
        crc: CRC-32 of the last of these bytes, from a multiple of a MiB on, where such checksums are made; otherwise 0.
    """

    offset: int = 0
    line: int = 0
    crc: int = 0


@dataclass(slots=True, eq=False)
class Columns:
    """n documents. A rejected one has an empty text, and the id b"null" if none is known.

    Attributes:
        ids: as JSON text (b'"abc"', b"17").
        texts: all texts as UTF-8 ('surrogatepass').
        ends: int64[n], where each text ends.
        times: int64[n], ms since 1970, or NO_TIME.
        rejected: by place.
        sources: as JSON text, b"" for none; empty without `source_field`.
        scopes: as `within_text` has them, or uint64[n], their hashes under the index's key; empty without
            `match_within`.
        deleted: places of the deletions.
        stamped: places of documents without a time of their own: their time is that of the record. It counts for stream
            time and does not order versions.
        ranks: float64[n], see `ranks.rank_of`; empty without `rank_field`.
    """

    ids: list[bytes]
    texts: bytes
    ends: NDArray[np.int64]
    times: NDArray[np.int64]
    rejected: dict[int, Rejection] = field(default_factory=dict)
    sources: list[bytes] = field(default_factory=list)
    scopes: list[bytes] | NDArray[np.uint64] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    stamped: list[int] = field(default_factory=list)
    ranks: NDArray[np.float64] = field(default_factory=lambda: NO_RANKS)

    @classmethod
    def of_records(
        cls, records: Sequence[Record], rejected: dict[int, Rejection], fields: Fields, *, sources: bool
    ) -> Columns:
        """Documents that were read one by one. sources: whether there are any."""
        texts, ends = joined([record.text for record in records])
        return cls(
            [record.id for record in records], texts, ends, np.array([record.time for record in records], np.int64),
            rejected, [record.source for record in records] if sources else [],
            [record.within for record in records] if fields.match_within else [],
            [i for i, record in enumerate(records) if record.deleted], [],
            np.array([record.rank for record in records]) if fields.rank_field is not None else NO_RANKS,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.ids)

    def put(self, records: Mapping[int, Record]) -> None:
        """Put documents that were read one by one in their places, which ascend."""
        if not records:
            return
        sizes, pieces, done = np.diff(self.ends, prepend=0), list[bytes](), 0
        for i, record in records.items():
            self.ids[i], self.times[i] = record.id, record.time
            if self.sources:
                self.sources[i] = record.source
            if len(self.scopes):
                self.scopes[i] = record.within
            if len(self.ranks):
                self.ranks[i] = record.rank
            if record.deleted:
                self.deleted.append(i)
            text, end = record.text.encode("utf-8", "surrogatepass"), int(self.ends[i])
            pieces += [self.texts[done : end - int(sizes[i])], text]
            sizes[i], done = len(text), end
        self.texts, self.ends = b"".join([*pieces, self.texts[done:]]), np.cumsum(sizes)

    def scope_hashes(self, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """uint64[n], the hashes of the scopes under a key uint64[2]; empty without `match_within`.

        Without the key a value with the hash of another scope cannot be constructed. It is the second half of SipHash,
        because it is mixed into the first half of a text's hash under the same key.
        """
        if isinstance(self.scopes, np.ndarray):
            return self.scopes
        return hashes_of(self.scopes, key) if self.scopes else np.empty(0, np.uint64)

    def source_hashes(self, key: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """uint64[n], the hashes of the sources under the same key. All documents without a source have one."""
        return hashes_of(self.sources or [b""] * len(self), key)

    def part(self, begin: int, end: int) -> Columns:
        """The documents [begin, end)."""
        if begin == 0 and end == len(self):
            return self
        start = int(self.ends[begin - 1]) if begin else 0
        stop = int(self.ends[end - 1]) if end > begin else start
        return Columns(
            self.ids[begin:end], self.texts[start:stop], self.ends[begin:end] - start, self.times[begin:end],
            {i - begin: why for i, why in self.rejected.items() if begin <= i < end}, self.sources[begin:end],
            self.scopes[begin:end], [i - begin for i in self.deleted if begin <= i < end],
            [i - begin for i in self.stamped if begin <= i < end], self.ranks[begin:end],
        )  # fmt: skip

    @classmethod
    def chained(cls, parts: Sequence[Columns]) -> Columns:
        """The documents of parts that were read with the same optional columns, one part after the other."""
        if len(parts) == 1:
            return parts[0]
        places = [*accumulate(map(len, parts), initial=0)]
        ends = [*accumulate([len(part.texts) for part in parts], initial=0)]
        numbered = list(zip(places, parts, strict=False))
        scopes = [list(part.scopes) for part in parts]
        return cls(
            list(chain.from_iterable(part.ids for part in parts)), b"".join(part.texts for part in parts),
            np.concatenate([part.ends + end for end, part in zip(ends, parts, strict=False)]),
            np.concatenate([part.times for part in parts]),
            {place + i: why for place, part in numbered for i, why in part.rejected.items()},
            list(chain.from_iterable(part.sources for part in parts)), list(chain.from_iterable(scopes)),
            [place + i for place, part in numbered for i in part.deleted],
            [place + i for place, part in numbered for i in part.stamped],
            np.concatenate([part.ranks for part in parts]),
        )  # fmt: skip

    def code_points(self) -> NDArray[np.int64]:
        """int64[n], the lengths of the texts."""
        before = np.concatenate(([0], self.ends))
        if not self.texts.isascii():
            begins = (np.frombuffer(self.texts, np.uint8) & 0xC0) != 0x80
            before = np.concatenate(([0], np.cumsum(begins, dtype=np.int64)))[before]
        lengths: NDArray[np.int64] = np.diff(before)
        return lengths

    def rejecting(self, found: Mapping[int, Rejection]) -> Columns:
        """The same documents, with these rejected, by place."""
        if not found:
            return self
        bounds = pairwise([0, *self.ends.tolist()])
        texts = [b"" if i in found else self.texts[start:end] for i, (start, end) in enumerate(bounds)]
        return replace(
            self, texts=b"".join(texts), ends=np.cumsum(list(map(len, texts)), dtype=np.int64),
            rejected={**self.rejected, **found}, deleted=[i for i in self.deleted if i not in found],
        )  # fmt: skip


def joined(texts: list[str]) -> tuple[bytes, NDArray[np.int64]]:
    """Texts concatenated as UTF-8 ('surrogatepass'), and where each ends."""
    together = "".join(texts)
    if together.isascii():
        return together.encode("ascii"), np.array([*accumulate(map(len, texts))], np.int64)
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(encoded), np.array([*accumulate(map(len, encoded))], np.int64)


def hashes_of(texts: Sequence[bytes], key: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """uint64[n], the hashes of scopes or sources under a key."""
    return siphash128(b"".join(texts), np.cumsum(list(map(len, texts)), dtype=np.int64), key)[:, 1].copy()
