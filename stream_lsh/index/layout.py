"""What the kernels work on: columns of rows, documents, runs and candidates, and the limits they compare with."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Words of a row: fixed ones, then the bit mask of the bands it is posted in, then the signature.
SEQ, TIME, ID, TEXT, FLAGS, MASK = 0, 1, 2, 4, 6, 7
# Columns of the table of runs: addresses and lengths. KEYS and POSTED are positions in the FILE, or addresses if it
# is -1.
FILTER, WORDS, DIRECTORY, ENTRIES, FILE, KEYS, POSTED, SIZE, SHIFT = range(9)
COLUMNS = 9
COPY, DUPLICATE = 1, 2  # flags: same text as an earlier row; judged a duplicate under `against unique`
NEW, REDELIVERED, ID_REUSED, INVALID = 0, 1, 2, 3  # status of a document
VERIFY, SAME_TEXT, COPY_OF = 0, 1, 2  # kind of a candidate
NOT_UNIQUE, UNIQUE, OPEN, ASK = 0, 1, -1, -2  # decisions
EVERYTHING = np.int64(1 << 62)
# Columns of candidates int64[m, 6], in the order of the documents. OF: for COPY_OF the position of the candidate that
# the row is a copy of. MORE: further copies of this candidate that are not listed.
DOCUMENT, ROW, AGREEMENT, KIND, OF, MORE = range(6)


class Documents(NamedTuple):
    """A batch as the kernel sees it; n documents, b bands, K components."""

    valid: NDArray[np.bool_]  # not rejected
    owned: NDArray[np.bool_]  # this shard is the one that stores it
    ids: NDArray[np.uint64]  # [n, 2] hash of the id
    texts: NDArray[np.uint64]  # [n, 2] fingerprint of the normalised text
    keys: NDArray[np.uint64]  # [n, b + 2] band keys, then the id's and the text's
    signatures: NDArray[np.uint16] | NDArray[np.uint32]  # [n, K]
    sizes: NDArray[np.uint32]
    seqs: NDArray[np.int64]
    times: NDArray[np.int64]


class Rows(NamedTuple):
    """The shard's rows: those before `base` in a file, later ones in memory; each also as signature components."""

    base: int
    file: int  # descriptor
    start: int  # position of row 0 in the file
    line: NDArray[np.uint64]  # room for one row of the file
    recent: NDArray[np.uint64]
    line_components: NDArray[np.uint16] | NDArray[np.uint32]
    recent_components: NDArray[np.uint16] | NDArray[np.uint32]
    components_at: int


class Limits(NamedTuple):
    """What the kernel compares with; agreements are numbers of equal signature components."""

    floor: int  # least agreement of a candidate that is verified
    follow: int  # agreement from which a document follows a leader
    expand: int  # agreement from which a leader's followers are looked at
    bucket_half: int
    followers_half: int
    copies: int  # copies listed for one candidate, the oldest; the rest is counted
    unique_only: bool  # stop at every document with candidates, for a decision
