"""What the kernels work on: the words of a row, the columns of tables, and the limits they compare with."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.structs import Bytes, Flag, Number, Numbers, Numbers2, Real, Struct, Unsigned, Words, Words2
from stream_lsh.index.rows.deleted_rows import DeletedRows


def _numbers(*values: int) -> tuple[np.int64, ...]:
    """Constants for the kernels: of a plain int numba makes a type of its own, and compiles anew for each."""
    return tuple(np.int64(value) for value in values)


# Words of a row. ID, TEXT: keyed hashes of id and normalised text. OF: first word of the id's hash of the document it
# stands behind, 0 if it stands for itself; of an REPRESENTATIVE the row of who is meant. SIMILARITY: with that one, a
# float's bits. GROUP: number of the first member. MASK, under `all` only: the bands in which it is posted. With a
# window the stream time follows; then the signature.
SEQ, TIME, ID, TEXT, FLAGS, OF, SIMILARITY, GROUP, MASK = _numbers(0, 1, 2, 4, 6, 7, 8, 9, 10)
# FLAGS: what the row is (low bits), the first verdict on it (`Kind`, from KIND_BITS on), its size (from SIZE_BITS on).
# CERTAIN: dropped for what its own shard had kept, so that nobody waits for the others' word.
# DELETED: not a document, but that its id was deleted; TIME is the first event time that is not older, and it is posted
# under the id. REPRESENTATIVE: it stands besides where a document is met that was dropped at first and is kept now; SEQ
# is that document's where it is no deletion, too. ERASED: it is dead, and what it said of its id and text is not there
# any more (`erased_rows`). MEMBER: of a story, which is posted in its buckets whether it was dropped or not; nobody
# stands for it.
DROPPED, FOLLOWER, COPY, CERTAIN, DELETED, REPRESENTATIVE, ERASED, MEMBER = _numbers(1, 2, 4, 8, 16, 32, 64, 128)
KIND_BITS, SIZE_BITS = np.uint64(16), np.uint64(32)
UNIQUE, NEAR, EXACT, UNKNOWN = _numbers(0, 1, 2, 255)  # first verdicts, see judging.verdicts.Kind
NO_GROUP = -1

# A document: it is not rejected; this shard is the one that stores it. Or a record that an id is deleted.
VALID, OWNED, DELETION = _numbers(1, 2, 4)
NEW, REDELIVERED, ID_REUSED, INVALID, GONE, OUTDATED = _numbers(0, 1, 2, 3, 4, 5)  # what became of it
WENT_SINCE = np.int64(-2)

# Columns of the table of segments.
FIRST_ROW, ROW_FILE, ROWS_AT = _numbers(0, 1, 2)
# Columns of the table of runs: addresses and lengths. POSTINGS: position in the FILE, or address if that is -1. FIRST:
# row of the shard that the run counts its rows from; LAST: the row after its last one.
FILTER, WORDS, DIRECTORY, BITS, FILE, POSTINGS, FIRST, LAST = _numbers(*range(8))
COLUMNS = 8
# Columns of the results. KNOWN: row with the same id, or -1. ROW_OF: row that it became, or -1. KIND, OLDEST,
# OLDEST_SEQ, GROUP_OF: the verdict as far as the shard knows it, and the first one of a redelivered document; row and
# number are -1 where there is none. OLDEST of a redelivered document is WENT_SINCE if the version that it was dropped
# for is not there any more: that one's id is not said again. MORE: matches that are not listed; of those decided late,
# what was not compared of the provisional. INCOMPLETE: what was not compared. REPLACES: number of the version that
# went, or -1; STOOD: whether it was kept; REPRESENTATIVE_OF, REPRESENTATIVE_SEQ: row and number of who was posted in
# its place, or -1; LEFT: the group that it was in; LIKE: whether the new version is similar to it, so that it may take
# its place.
STATUS, KNOWN, ROW_OF, KIND, OLDEST, OLDEST_SEQ, GROUP_OF, MORE, INCOMPLETE = _numbers(*range(9))
REPLACES, STOOD, REPRESENTATIVE_OF, REPRESENTATIVE_SEQ, LEFT, LIKE = _numbers(9, 10, 11, 12, 13, 14)
RESULTS = 15
WENT = int(RESULTS - REPLACES)  # columns of a version that went
# Columns of the matches found. SAME: whether it has the same text.
DOCUMENT, ROW, NUMBER, SAME = _numbers(*range(4))

HEAD_COMPONENTS = 128
"""Components of a signature that candidates are ranked by, or as many more as fill HEAD_WORDS: of single bits it takes
many to tell a neighbour from a stranger."""
HEAD_WORDS = 16

HALF = 1024
FULL = 2 * HALF
"""Where keys are sampled, an agreement is a share of them, in so many parts: above HALF of the newcomer's own that the
row has, else of the row's that the newcomer has."""


class Batch(Struct):
    """n documents as the kernel sees them; S words a signature.

    words: those of the rows that they may become, with SEQ, TIME, ID, TEXT and the size in FLAGS. keys, starts:
    document i has keys[starts[i]:starts[i + 1]], see `keys.Keys`. hits: the runs that
    may hold each key (`bucket.passing`). log: their stream times, where there is a window.
    """

    words: Words2  # [n, MASK]
    what: Bytes  # VALID, OWNED, DELETION
    keys: Words
    starts: Numbers
    hits: Words2
    signatures: Words  # [n * S]
    log: Numbers

    @property
    def sizes(self) -> Words:
        """Numbers of distinct shingles."""
        return self.words[:, FLAGS] >> SIZE_BITS


class Rows(Struct):
    """The shard's rows: those before `base` in the segments' files, later ones in memory; and the heads (the first
    words of the signatures) of the latest ones in a ring, from row `kept` on as far as they are not overwritten.

    total: number of rows of all segments. read: scratch, what is read of a row in a file. begin: the words before
    MASK of the row in a file that was asked for last, which is `known`. notes: what is known of
    the rows in the ring, FOLLOWS and FOLLOWED. seen: the first row that the document at hand sees; stream time never
    goes back, so it sees all after it. guides: the first row of its segment, behind which others may stand that are
    seen.
    """

    base: Number
    total: Number
    recent: Words2  # [room, width]
    segments: Numbers2  # [g, 3] oldest first
    signature_at: Number  # word of a row at which its signature begins
    log_at: Number  # that of its stream time, where there is a window
    read: Words
    begin: Words
    known: Number
    kept: Number
    ring: Words  # [h * w]
    notes: Bytes  # [h]
    seen: Number
    seen_log: Number  # its stream time, -1 if it is not known
    guides: Number
    dead: DeletedRows


FOLLOWS, FOLLOWED = _numbers(1, 2)  # it stands behind another one; others stand behind it


class Limits(Struct):
    """What the kernel compares with. Agreements are numbers of equal components of two heads, padding included."""

    unique: Flag  # compare with what was kept, and post only that
    stories: Flag  # what is alike belongs to one story (`tf_idf`)
    exact: Flag  # verify by the shingles; else by the whole signature
    alone: Flag  # there is no other shard: what is found here is the verdict
    late: Flag  # under `kept`, as there are others: rows are posted once it is known whether they were kept
    store: Flag  # else documents are only looked up
    update: Flag  # an id that comes with another text replaces what was there; else it is rejected
    window: Number  # of stream time, in ms, in which a row is seen; 0 = always
    threshold: Real
    full: Number  # agreement of equal signatures
    floor: Number  # least agreement of a candidate that is verified
    likely: Number  # agreement from which a candidate is thought to match
    follow: Number  # agreement from which a document follows a leader
    expand: Number  # agreement from which a leader's followers are looked at
    bucket: Number  # rows of a bucket that are read
    behind: Number  # followers of a leader that are read
    max_candidates: Number  # candidates that are verified
    matches: Number  # matches after which no more candidates are verified
    copies: Number  # copies that are listed for a match
    head: Number  # words of a head
    signature: Number  # words of a signature: S
    components: Number  # K
    bits: Number  # of a component
    bands: Number
    rows: Number  # components of a band
    secret: Unsigned  # of the bands' keys
    padding: Number  # components that signatures have more, so as to fill words; all equal
    accident: Real  # probability that two components are equal by accident
    tops: Unsigned  # the highest bit of each component in a word
    samples: Flag  # keys are a sample of the shingles; candidates are ranked by how many they share
    slack: Real  # of the keys that the threshold asks for so many times the root of their number may be missing
    masks: Words2  # [bands, S], the bits of each key, where components are bits; else [0, 0]
    pieces: Number  # number of the 32 bits of a signature that are its first key, where keys stand in it; else 0
