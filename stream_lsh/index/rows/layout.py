"""The layout of what kernels read and write: the words of a row, the columns of tables, and limits."""

from __future__ import annotations

from typing import Self

import numpy as np

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import (
    Bytes,
    Flag,
    Number,
    Numbers,
    Numbers2,
    Real,
    Reals,
    Struct,
    Unsigned,
    Words,
    Words2,
)
from stream_lsh.index.rows.deleted_rows import DeletedRows


def _numbers(*values: int) -> tuple[np.int64, ...]:
    """Constants for kernels: numba gives each plain int a type of its own, and compiles anew for each."""
    return tuple(np.int64(value) for value in values)


# Words of a row. ID, TEXT: keyed hashes of id and normalised text. OF: first word of the hash of the id that the row
# was dropped for or follows, 0 if there is none; of a representative row, the row of the representative. SIMILARITY:
# with that document, as the bits of a float; of a representative row, with `keep`, the row by which its group has the
# representative as a dropped member. GROUP: number of the first member. MASK, with `compare_with = all` only:
# the bands in which it is posted. With a window the stream time follows; then the signature.
SEQ, TIME, ID, TEXT, FLAGS, OF, SIMILARITY, GROUP, MASK = _numbers(0, 1, 2, 4, 6, 7, 8, 9, 10)
# FLAGS: what the row is (low bits), the first verdict (`Kind`, from KIND_BITS on), the low byte of its source partition
# (from PARTITION_BITS on), its size (from SIZE_BITS on).
# CERTAIN: dropped for a document that this shard has as kept, whatever other shards find.
# DELETED: a deletion of an id; TIME is the first event time that is not outdated by it, and it is posted under the id.
# REPRESENTATIVE: a representative row. It is posted in the place of a document that was dropped and is a representative
# now; SEQ is that document's, unless the row is a deletion too.
# ERASED: a deleted row whose hashes and signature are blank (`erased_rows`).
# MEMBER: of a story. It is posted in its buckets whether it was dropped or not, and has no representative row.
# SUPERSEDES: kept in place of the representative of its group, whose row is in OF. It is posted behind the group too,
# because that row is a dropped member from here on.
DROPPED, FOLLOWER, COPY, CERTAIN, DELETED, REPRESENTATIVE, ERASED, MEMBER = _numbers(1, 2, 4, 8, 16, 32, 64, 128)
SUPERSEDES = np.int64(256)
# GROUPED: with `keep` and several shards, every document. It is posted behind its group also if it is kept, because it
# may be superseded later.
GROUPED = np.int64(512)
KIND_BITS, PARTITION_BITS, SIZE_BITS = np.uint64(16), np.uint64(24), np.uint64(32)
PARTITION_MASK = np.int64(0xFF)
UNIQUE, NEAR, EXACT, UNKNOWN = _numbers(0, 1, 2, 255)  # first verdicts, see judging.verdicts.Kind
NO_GROUP = -1

# Flags of a document: it is not rejected; it is a deletion.
VALID, DELETION = _numbers(1, 2)
# Its status. FAILED: by the shard that stores it, after an exception in matching.
NEW, REDELIVERED, ID_REUSED, INVALID, ID_DELETED, OUTDATED, FAILED = _numbers(0, 1, 2, 3, 4, 5, 6)
REPLACED_SINCE = np.int64(-2)

# Columns of the table of segments.
FIRST_ROW, ROW_FILE, ROWS_AT = _numbers(0, 1, 2)
# Columns of the table of runs: addresses and lengths. POSTINGS: position in the FILE, or address if FILE is -1. FIRST:
# row of the shard that the run counts its rows from; LAST: the row after its last one. ROW_BITS: low bits of a posting
# that are its row. OCTETS: bytes of a posting.
FILTER, WORDS, DIRECTORY, BITS, FILE, POSTINGS, FIRST, LAST, ROW_BITS, OCTETS = _numbers(*range(10))
COLUMNS = 10
# Columns of the results. KNOWN: row with the same id, or -1. ROW_OF: row that it became, or -1.
# KIND, OLDEST, OLDEST_SEQ, GROUP_OF: the verdict as far as this shard can give it, or the first verdict of a
# redelivered document; row and number are -1 where there is none. OLDEST of a redelivered document is REPLACED_SINCE if
# the version that it was dropped for was deleted or replaced: that id is then not repeated.
# PARTITION: low byte of the source partition of the live document with the same id, or -1.
# MORE: matches that are not listed; with provisional rows, what was not compared of these. NOT_COMPARED: what was not
# compared.
# REPLACES: number of the version that was deleted or replaced, or -1; WAS_REPRESENTATIVE: whether it was a
# representative; REPRESENTATIVE_OF, REPRESENTATIVE_SEQ: row and number of the new representative, or -1; LEFT: its
# group; LIKE: whether the new version is similar to it, and may be the representative in its place.
# SUPERSEDED: the match with the same text that ranks lower than the document, or without one the oldest that does, or
# -1. If it is superseded, it is OLDEST too, with KIND UNIQUE.
STATUS, KNOWN, ROW_OF, KIND, OLDEST, OLDEST_SEQ, GROUP_OF, MORE, NOT_COMPARED, PARTITION = _numbers(*range(10))
REPLACES, WAS_REPRESENTATIVE, REPRESENTATIVE_OF, REPRESENTATIVE_SEQ, LEFT, LIKE = _numbers(10, 11, 12, 13, 14, 15)
SUPERSEDED = np.int64(16)
RESULTS = 17
REMOVED_COLUMNS = int(SUPERSEDED - REPLACES)  # columns of a deleted or replaced version
# Columns of the matches found. SAME: whether it has the same text. EFFECT: what it does to the document if it is a kept
# one. OF_GROUP: the group of its row.
DOCUMENT, ROW, NUMBER, SAME, EFFECT, OF_GROUP = _numbers(*range(6))
MATCH_COLUMNS = 6
# Effects. ELSEWHERE: none, as it is of another source, or is contained in the document.
DROPS, OUTRANKED, ELSEWHERE = _numbers(0, 1, 2)

HEAD_COMPONENTS = 128
"""Components of a signature that candidates are ranked by, or as many as fill HEAD_WORDS: of single bits many are
needed."""
HEAD_WORDS = 16

HALF = 1024
FULL = 2 * HALF
"""Where keys are sampled, an agreement is a share of them, in this many parts. Above HALF: the share of the new
document's keys that the row has. Below: the share of the row's keys that the document has."""


class Batch(Struct):
    """n documents as kernels read them; S words a signature.

    Attributes:
        words: of the rows that they may become, with SEQ, TIME, ID, TEXT, and size and source partition in FLAGS.
        keys, starts: document i has keys[starts[i]:starts[i + 1]], see `keys.Keys`.
        log: their stream times, with a window.
        ranks: with `keep`, where it depends on the document.
        sources: with `keep_per`, their hashes.
    """

    words: Words2  # [n, MASK]
    what: Bytes  # VALID, DELETION
    owner: Numbers  # the shard that stores each
    keys: Words
    starts: Numbers
    signatures: Words  # [n * S]
    log: Numbers
    ranks: Reals
    sources: Words

    @classmethod
    def of(
        cls, words: Words2, what: Bytes, owner: Numbers, keys: Words, starts: Numbers, signatures: Words, log: Numbers,
        ranks: Reals, sources: Words,
    ) -> Self:  # fmt: skip
        return cls.of_arrays(
            _fill, words=words, what=what, owner=owner, keys=keys, starts=starts, signatures=signatures, log=log,
            ranks=ranks, sources=sources,
        )  # fmt: skip

    @property
    def sizes(self) -> Words:
        """Numbers of distinct shingles."""
        return self.words[:, FLAGS] >> SIZE_BITS

    @property
    def deletes(self) -> bool:
        """Whether there is a deletion."""
        return int(DELETION) in self.what.tobytes()


@njit
def _fill(out, words, what, owner, keys, starts, signatures, log, ranks, sources):  # type: ignore[no-untyped-def]
    out[0], out[1], out[2] = words.ctypes.data, words.shape[0], words.shape[1]
    out[3], out[4], out[5], out[6] = what.ctypes.data, len(what), owner.ctypes.data, len(owner)
    out[7], out[8], out[9], out[10] = keys.ctypes.data, len(keys), starts.ctypes.data, len(starts)
    out[11], out[12], out[13], out[14] = signatures.ctypes.data, len(signatures), log.ctypes.data, len(log)
    out[15], out[16], out[17], out[18] = ranks.ctypes.data, len(ranks), sources.ctypes.data, len(sources)
    return out.ctypes.data


class Rows(Struct):
    """The rows of a shard: those before `base` in the segments' files, later ones in memory. A ring has the heads (the
    first words of the signatures) of the latest rows, from row `kept` on, as far as they are not overwritten.

    Attributes:
        total: number of rows of all segments.
        read: scratch for words of a row in a file.
        begin, known: the words before MASK of the row in a file that was read last, and that row.
        notes: FOLLOWS and FOLLOWED of the rows in the ring.
        seen: the first row in the window of the current document; all later rows are in it, because stream time never
            decreases.
        guides: the first row of the segment of `seen`; rows from there on may lead to followers in the window.
    """

    base: Number
    total: Number
    recent: Words2  # [room, width]
    segments: Numbers2  # [g, 3], oldest first
    signature_at: Number  # first word of a row's signature
    log_at: Number  # word of its stream time, with a window
    read: Words
    begin: Words
    known: Number
    kept: Number
    ring: Words  # [h * w]
    notes: Bytes  # [h]
    seen: Number
    seen_log: Number  # its stream time, -1 = not read yet
    guides: Number
    deleted_rows: DeletedRows


FOLLOWS, FOLLOWED = _numbers(1, 2)  # it follows another row or is its copy; others follow it


class Limits(Struct):
    """What kernels compare with. Agreements are numbers of equal components of two heads, padding included."""

    unique: Flag  # compare with kept documents, and post only these
    stories: Flag  # similar documents are one story (`tf_idf`)
    exact: Flag  # verify by the shingles, not by the whole signature
    alone: Flag  # the only shard: what it finds is the verdict
    late: Flag  # several shards and `kept`: rows are posted after their decision
    store: Flag  # not a query
    update: Flag  # a known id with another text is an update, not rejected
    window: Number  # length in stream time, in ms; 0 = none
    keep: Flag  # a kept document may be superseded
    newest: Flag  # by any later one
    rank_at: Number  # word of a row's rank; 0 = it has none
    source_at: Number  # word of a row's source, with `keep_per`; otherwise 0
    threshold: Real
    full: Number  # agreement of equal signatures
    floor: Number  # least agreement of a candidate
    likely: Number  # agreement from which a candidate probably matches
    follow: Number  # agreement from which a document follows a leader
    expand: Number  # agreement from which a leader's followers are read
    bucket: Number  # rows read of a bucket
    behind: Number  # followers read of a leader
    max_candidates: Number  # candidates verified of a document
    matches: Number  # matches after which no candidate is verified
    copies: Number  # copies listed for a match
    head: Number  # words of a head
    signature: Number  # words of a signature: S
    components: Number  # K
    bits: Number  # of a component
    bands: Number
    rows: Number  # components of a band
    secret: Unsigned  # of the keys of bands
    padding: Number  # components that fill up the last word of a signature; all are equal
    accident: Real  # probability that two components are equal by chance
    tops: Unsigned  # the highest bit of each component in a word
    samples: Flag  # keys are sampled; candidates are ranked by the number of shared keys
    slack: Real  # keys that may be missing of those that the threshold asks for, in square roots of their number
    masks: Words2  # [bands, S], the bits of each key, where components are bits; otherwise [0, 0]
    # Number of the 32 bits of a signature that are its first key, where signatures contain their keys; otherwise 0.
    pieces: Number
