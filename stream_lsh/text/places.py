"""Where the tokens of a text stand in it, in code points, and a hash of each: what `tokens.normalise` finds, of the
text as it came."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import SEED_MIX, SEED_TOKEN, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.text.tokens import decode
from stream_lsh.text.unicode import CONTINUOUS, JOINER, MARK, PAGE_BITS, WORD, Tables

_LOW = (1 << PAGE_BITS) - 1
_OUTSIDE, _IN_WORD, _IN_CONTINUOUS = 0, 1, 2
_FINAL_SIGMA, _SIGMA = 0x3C2, 0x3C3  # one letter: which form stands at an end is a matter of the context


class Placed(NamedTuple):
    """The tokens of a text: hashes uint64[t], and the code points uint32[t] at which each begins and ends."""

    hashes: NDArray[np.uint64]
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]


@njit
def _flag_of(point, pages, records, flags):  # type: ignore[no-untyped-def]
    return flags[records[np.int64(pages[point >> PAGE_BITS]) << PAGE_BITS | point & _LOW]]


@njit
def _lower_of(point, pages, records, lower):  # type: ignore[no-untyped-def]
    point += np.int64(lower[records[np.int64(pages[point >> PAGE_BITS]) << PAGE_BITS | point & _LOW]])
    return np.uint64(_SIGMA if point == _FINAL_SIGMA else point)


@njit
def _place(text, pages, records, flags, lower, hashes, begins, ends):  # type: ignore[no-untyped-def]
    """Fills the columns of `Placed`; the number of tokens. The rule is that of `tokens.normalise`."""
    read, at, end, n, inside, state = 0, 0, len(text), np.int64(0), _OUTSIDE, SEED_TOKEN
    while read < end:
        point, size = decode(text, read, end)
        flag = _flag_of(point, pages, records, flags)
        step = 1
        if flag & (CONTINUOUS | WORD):
            if inside != _OUTSIDE and (flag & CONTINUOUS or inside == _IN_CONTINUOUS):
                hashes[n], ends[n] = state, at
                n += 1
                inside = _OUTSIDE
            if inside == _OUTSIDE:
                begins[n], state = at, SEED_TOKEN
            inside = _IN_CONTINUOUS if flag & CONTINUOUS else _IN_WORD
        elif flag & JOINER and inside != _OUTSIDE:  # of the token only if that goes on behind all that follow
            behind, follows, more, steps = read, flag, size, 0
            while follows & JOINER and behind < end:
                behind += more
                steps += 1
                if behind < end:
                    point, more = decode(text, behind, end)
                    follows = _flag_of(point, pages, records, flags)
            same = follows & MARK or (inside == _IN_WORD and follows & WORD and not follows & CONTINUOUS)
            if not (behind < end and same):
                hashes[n], ends[n] = state, at
                n += 1
                inside = _OUTSIDE
            size, step = behind - read, steps
            at += step
            read += size
            continue
        elif not flag & MARK and inside != _OUTSIDE:
            hashes[n], ends[n] = state, at
            n += 1
            inside = _OUTSIDE
        if inside != _OUTSIDE:
            state = fold_multiply(state ^ _lower_of(point, pages, records, lower), SEED_MIX)
        at += step
        read += size
    if inside != _OUTSIDE:
        hashes[n], ends[n] = state, at
        n += 1
    return n


def placed(text: bytes | memoryview, tables: Tables) -> Placed:
    """The tokens of a text in UTF-8 ('surrogatepass')."""
    room = len(text) // 2 + 1  # a token of one letter, and what parts it from the next; others have more bytes
    hashes, begins, ends = np.empty(room, np.uint64), np.empty(room, np.uint32), np.empty(room, np.uint32)
    n = _place(
        np.frombuffer(text, np.uint8), tables.pages, tables.records, tables.flags, tables.lower, hashes, begins, ends
    )
    return Placed(hashes[:n].copy(), begins[:n].copy(), ends[:n].copy())
