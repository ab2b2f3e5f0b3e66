"""Access of kernels to rows: in memory, in the ring of heads, or in a segment's file."""

from __future__ import annotations

import numpy as np

from stream_lsh.hashing.bits import float_of, popcount
from stream_lsh.hashing.kernels import njit, read_at
from stream_lsh.index.rows.deleted_rows import (
    MARK_DELETED,
    MARK_LIVE,
    MARK_REPRESENTATIVE,
    MARK_SUPERSEDED,
    lasting_mark_of,
    mark_of,
)
from stream_lsh.index.rows.layout import (
    COPY,
    FIRST_ROW,
    FLAGS,
    FOLLOWED,
    FOLLOWER,
    FOLLOWS,
    ID,
    MASK,
    OF,
    ROW_FILE,
    ROWS_AT,
    SEQ,
)

_WORD, _FIRST, _UNKNOWN, _SIGN = np.int64(1), np.int64(0), np.int64(-1), np.uint64(1 << 63)


@njit
def _read_words(rows, row, column, size):  # type: ignore[no-untyped-def]
    """Read words of a row in a file into `rows.read`."""
    segments = rows.segments
    g = len(segments) - 1
    while segments[g, FIRST_ROW] > row:
        g -= 1
    place = segments[g, ROWS_AT] + 8 * ((row - segments[g, FIRST_ROW]) * rows.recent.shape[1] + column)
    read_at(segments[g, ROW_FILE], rows.read.ctypes.data, 8 * size, place)


@njit
def word(rows, row, column):  # type: ignore[no-untyped-def]
    """A word of a row."""
    if row >= rows.base:
        return rows.recent[row - rows.base, column]
    if column >= MASK:
        _read_words(rows, row, column, _WORD)
        return rows.read[0]
    if row != rows.known:  # more of its words are usually read next
        _read_words(rows, row, _FIRST, MASK)
        for k in range(MASK):
            rows.begin[k] = rows.read[k]
        rows.known = row
    return rows.begin[column]


@njit
def copy_words(rows, row, column, out):  # type: ignore[no-untyped-def]
    """Copy words of a row to `out`."""
    if row >= rows.base:
        for k in range(len(out)):
            out[k] = rows.recent[row - rows.base, column + k]
    else:
        _read_words(rows, row, column, np.int64(len(out)))
        for k in range(len(out)):
            out[k] = rows.read[k]


@njit
def name_of(rows, row, limits):  # type: ignore[no-untyped-def]
    """What identifies a row in the rows that follow it: the first word of the hash of its id. With a window or updates
    an id can have several rows: with `compare_with = all`, where copies are listed unread, its number is mixed in."""
    hashed = word(rows, row, ID)
    return hashed ^ word(rows, row, SEQ) if (limits.window or limits.update) and not limits.unique else hashed


@njit
def see(rows, oldest):  # type: ignore[no-untyped-def]
    """Set `rows.seen` to the first row whose stream time is not before `oldest`. Earlier rows have left the window for
    all later documents. In doubling steps, then by bisection, because rows may be in files."""
    if rows.seen_log >= oldest:
        return
    low = rows.seen + (rows.seen_log >= 0)
    high, step = low, _WORD
    while high < rows.total and np.int64(word(rows, high, rows.log_at)) < oldest:
        low = high + 1
        high += step
        step *= 2
    high = min(high, rows.total)
    while low < high:
        middle = (low + high) >> 1
        if np.int64(word(rows, middle, rows.log_at)) < oldest:
            low = middle + 1
        else:
            high = middle
    rows.seen = rows.guides = low
    rows.seen_log = _UNKNOWN
    if low < rows.total:
        rows.seen_log = np.int64(word(rows, low, rows.log_at))
        g = len(rows.segments) - 1
        while rows.segments[g, FIRST_ROW] > low:
            g -= 1
        rows.guides = rows.segments[g, FIRST_ROW]


@njit(forceinline=True)
def equal(one, at, other, where, size, tops):  # type: ignore[no-untyped-def]
    """Number of components in which one[at:at + size] and other[where:where + size] are equal, whose highest bits are
    `tops`: those of the exclusive or that are zero, all of a word at once (Warren, Hacker's Delight, 6-1)."""
    low, total = ~tops, np.uint64(0)
    first, second = np.uint64(at), np.uint64(where)  # a signed index would be checked for being negative each time
    for k in range(np.uint64(size)):
        x = one[first + k] ^ other[second + k]
        total += popcount(~(((x & low) + low) | x | low))
    return np.int64(total)


@njit
def agreement_with(rows, row, signatures, at, size, tops):  # type: ignore[no-untyped-def]
    """Agreement of the first words of a row's signature with signatures[at:at + size]."""
    if row >= rows.base:
        return equal(rows.recent[row - rows.base], rows.signature_at, signatures, at, size, tops)
    _read_words(rows, row, rows.signature_at, size)
    return equal(rows.read, _FIRST, signatures, at, size, tops)


@njit
def in_ring(rows):  # type: ignore[no-untyped-def]
    """The first row whose head is in the ring."""
    return max(rows.kept, rows.total - len(rows.notes))


@njit
def note_of(rows, row):  # type: ignore[no-untyped-def]
    """FOLLOWS and FOLLOWED of a row. An old row is taken to be followed."""
    if row >= in_ring(rows):
        return np.int64(rows.notes[row & (len(rows.notes) - 1)])
    behind = word(rows, row, FLAGS) & np.uint64(FOLLOWER | COPY)
    return FOLLOWED | FOLLOWS if behind else FOLLOWED


@njit
def same_hash(rows, row, what, batch, i):  # type: ignore[no-untyped-def]
    """Whether a row has the same hash as a document: of the id (what = ID), of the text (TEXT)."""
    return word(rows, row, what) == batch.words[i, what] and word(rows, row, what + 1) == batch.words[i, what + 1]


@njit
def is_copy(rows, row, name):  # type: ignore[no-untyped-def]
    """Whether a row is a copy of the row with this name. By a collision of keys others are posted behind it too."""
    return word(rows, row, FLAGS) & np.uint64(COPY) != 0 and word(rows, row, OF) == name


@njit
def order_of(row, work):  # type: ignore[no-untyped-def]
    """A number that orders rows by their rank, with `keep`: the highest rank has the smallest one."""
    if work.limits.newest:
        return ~np.uint64(row)
    bits = word(work.rows, row, work.limits.rank_at)
    return bits if bits & _SIGN else ~(bits | _SIGN)


@njit
def outranks(i, row, work):  # type: ignore[no-untyped-def]
    """Whether document i ranks higher than a row before it."""
    limits = work.limits
    return limits.newest != 0 or work.batch.ranks[i] > float_of(word(work.rows, row, limits.rank_at))


@njit
def of_another_source(i, row, work):  # type: ignore[no-untyped-def]
    """Whether, with `keep_per`, document i and a row are of two sources: they may be kept beside each other."""
    at = work.limits.source_at
    return at != 0 and word(work.rows, row, at) != work.batch.sources[i]


@njit
def visible(rows, row):  # type: ignore[no-untyped-def]
    """Whether a row is live and in the window."""
    return row >= rows.seen and mark_of(rows.deleted_rows, row) == MARK_LIVE


@njit
def up_to(rows, n, out, most):  # type: ignore[no-untyped-def]
    """How many of the n rows in `out`, newest first, hold `most` visible ones, with those between; and whether another
    visible one follows."""
    there, end = _FIRST, _FIRST
    for k in range(n):
        if visible(rows, out[k]):
            if there == most:
                return end, True
            there += 1
        end = k + _WORD
    return end, False


@njit
def live(rows, n, out):  # type: ignore[no-untyped-def]
    """Keep the visible ones of the n rows in `out`. Returns their number."""
    left = _FIRST
    for k in range(n):
        if visible(rows, out[k]):
            out[left] = out[k]
            left += 1
    return left


@njit
def row_met_at(rows, row):  # type: ignore[no-untyped-def]
    """The row that is met where this row is posted: itself, or that of its representative; -1 if it is deleted or
    superseded. The row `aside` counts as live here."""
    mark = lasting_mark_of(rows.deleted_rows, row)
    if mark == MARK_REPRESENTATIVE:
        row = np.int64(word(rows, row, OF))
        mark = lasting_mark_of(rows.deleted_rows, row) if row >= rows.seen else MARK_DELETED
        if mark == MARK_SUPERSEDED:  # it was, before it became the representative again
            mark = MARK_LIVE
    return row if mark == MARK_LIVE else _UNKNOWN
