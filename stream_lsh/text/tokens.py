"""The first pass over a document: from UTF-8 to normalised UTF-8 and the places of its tokens. `Placing` gives the
places in the original text.

One loop, driven by tables. A byte of ASCII costs a look-up and no branch; everything else is processed by code points.
The input is what Python encodes with "surrogatepass". Invalid bytes never cause a read outside the document.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import SEED_MIX, SEED_TOKEN, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.utf8 import decode, encode
from stream_lsh.text.ascii import GROUP, ascii_run
from stream_lsh.text.forms import located
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.unicode import (
    ASCII_SLOW,
    ASCII_SQUEEZE,
    ASCII_WORD,
    BLANK,
    CONTINUOUS,
    JOINER,
    MARK,
    SQUEEZE,
    WHITE,
    WORD,
    record_of,
    tables_for,
)

PADDING = 32  # bytes behind the normalised text that hashing may read
CONTINUOUS_START = 1 << 31  # mark of a token's start: a character of a script without spaces
_OUTSIDE, _IN_WORD, _IN_CONTINUOUS = 0, 1, 2
_FINAL_SIGMA, _SIGMA = 0x3C2, 0x3C3  # one letter, whose form depends on the context
_JOINERS = 0x200C  # and the next: invisible characters


@njit
def normalised_capacity(size):  # type: ignore[no-untyped-def]
    """Most bytes of the normalised form of `size` bytes: U+023A grows from two to three bytes in lower case."""
    return size + size // 2 + PADDING


@njit
def normalise(text, start, end, tables, norm, spans):  # type: ignore[no-untyped-def]
    """Normalise text[start:end] into `norm`, and write the start and end of each token, in turn, into `spans`.

    Args:
        tables: `tables_for(settings)`.
        text, norm: uint8; norm has at least `normalised_capacity(end - start)` bytes.
        spans: uint32, at least end - start + 2 + GROUP. The start of a token that is one character of a script without
            spaces has CONTINUOUS_START set.

    Returns:
        Bytes written, and the number of places written, which is twice the number of tokens.
    """
    quick, ascii_table, flags, lower = tables.quick, tables.ascii, tables.flags, tables.lower
    pages, records, read = tables.pages, tables.records, start
    write: Any = 0
    bounds: Any = 0
    inside: Any = _OUTSIDE
    resume = start  # place from which on eight bytes at once are tried again
    squeezed: Any = 1  # a blank before the first character is dropped
    while read < end:
        if quick and read >= resume and text[read] < 0x80:
            read, write, bounds, inside, squeezed = ascii_run(
                text, read, end, quick, norm, spans, write, bounds, inside, squeezed
            )
            if read == end:
                break
            resume = read + GROUP
        entry = np.int64(ascii_table[text[read]])
        if entry < ASCII_SLOW:
            # No branches here: a place is always written, and counted only where a word begins or ends.
            norm[write] = entry & 0xFF
            spans[bounds] = write
            word = entry >> ASCII_WORD & 1
            bounds += word ^ inside
            inside = word
            squeeze = entry >> ASCII_SQUEEZE
            write += 1 - (squeeze & squeezed)
            squeezed = squeeze
            read += 1
            continue
        point, size = decode(text, read, end)
        if point == 0x1F:  # the separator of a set's elements
            if squeezed and write > 0 and norm[write - 1] == 0x20:
                write -= 1
            if inside:
                spans[bounds] = write
                bounds += 1
                inside = _OUTSIDE
            norm[write] = 0x1F
            write += 1
            squeezed = 1 if flags[record_of(0x20, pages, records)] & SQUEEZE else 0
            read += size
            continue
        record = record_of(point, pages, records)
        flag = flags[record]
        if size == 1:
            point = np.int64(0x3F)  # an invalid byte must not become three bytes
        if flag & CONTINUOUS:
            if inside:
                spans[bounds] = write
                bounds += 1
            spans[bounds] = write | CONTINUOUS_START
            bounds += 1
            inside = _IN_CONTINUOUS
        elif flag & WORD:
            if inside == _IN_CONTINUOUS:
                spans[bounds] = write
                bounds += 1
                inside = _OUTSIDE
            if inside == _OUTSIDE:
                spans[bounds] = write
                bounds += 1
                inside = _IN_WORD
        elif flag & JOINER and inside:
            # Part of the token only if the token continues behind it, and behind all joiners that follow.
            behind = read
            while flag & JOINER and behind < end:
                behind += size
                if behind < end:
                    point, size = decode(text, behind, end)
                    flag = flags[record_of(point, pages, records)]
            same = flag & MARK or (inside == _IN_WORD and flag & WORD and not flag & CONTINUOUS)
            goes_on = behind < end and same
            if not goes_on:
                spans[bounds] = write
                bounds += 1
                inside = _OUTSIDE
            for i in range(read, behind):
                norm[write] = text[i]
                write += 1
            squeezed = 0
            read = behind
            if inside == _IN_CONTINUOUS and (read == end or text[read] < 0x80):
                spans[bounds] = write
                bounds += 1
                inside = _OUTSIDE
            continue
        elif not flag & MARK and inside:
            spans[bounds] = write
            bounds += 1
            inside = _OUTSIDE
        read += size
        if flag & SQUEEZE:
            if not squeezed:
                norm[write] = 0x20
                write += 1
            squeezed = 1
        else:
            write = encode(norm, write, np.int64(0x20) if flag & BLANK else point + np.int64(lower[record]))
            squeezed = 0
        if inside == _IN_CONTINUOUS and (read == end or text[read] < 0x80):
            # The path above distinguishes only "inside a word": any ASCII character ends this token.
            spans[bounds] = write
            bounds += 1
            inside = _OUTSIDE
    if squeezed and write > 0 and norm[write - 1] == 0x20:
        write -= 1
    if inside:
        spans[bounds] = write
        bounds += 1
    return write, bounds


@njit
def is_visible(norm, size, tables):  # type: ignore[no-untyped-def]
    """Whether norm[:size] has a character that is not white space."""
    pages, records, flags, place = tables.pages, tables.records, tables.flags, 0
    while place < size:
        point, step = decode(norm, place, size)
        if not flags[record_of(point, pages, records)] & WHITE:
            return True
        place += step
    return False


class Placed(NamedTuple):
    """The tokens of a text.

    Attributes:
        hashes: uint64[t].
        begins, ends: uint32[t], in code points of the original text.
        continuous: bool[t], whether a token is a character of a script without spaces.
    """

    hashes: NDArray[np.uint64]
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]
    continuous: NDArray[np.bool_]


@njit
def _place(text, tables, norm, spans, hashes, ends):  # type: ignore[no-untyped-def]
    """Fill hashes and ends of `Placed`, and `spans` with the begin of each token. Returns the number of tokens."""
    _, bounds = normalise(text, 0, len(text), tables, norm, spans)
    place, at = np.int64(0), np.int64(0)
    for n in range(bounds >> 1):
        begin, end, state = np.int64(spans[2 * n]), np.int64(spans[2 * n + 1]), SEED_TOKEN
        while place < begin & (CONTINUOUS_START - 1):
            place += decode(norm, place, end)[1]
            at += 1
        spans[n] = begin & CONTINUOUS_START | at
        while place < end:
            point, size = decode(norm, place, end)
            if point & ~1 != _JOINERS:
                state = fold_multiply(state ^ np.uint64(_SIGMA if point == _FINAL_SIGMA else point), SEED_MIX)
            place += size
            at += 1
        hashes[n], ends[n] = state, at
    return bounds >> 1


class Placing:
    """Finds the tokens of texts by these settings."""

    def __init__(self, settings: SigningSettings) -> None:
        # White space is not squeezed: the normalised text then has the same code points, one for one.
        self._settings = replace(settings, space=False)
        self._tables = tables_for(self._settings)

    def __call__(self, text: bytes | memoryview) -> Placed:
        """The tokens of a text in UTF-8 ('surrogatepass')."""
        found = located(text, self._settings)
        text = text if found is None else found.text
        room = len(text) // 2 + 1  # a token of one letter and a separator; other tokens have more bytes
        hashes, ends = np.empty(room, np.uint64), np.empty(room, np.uint32)
        norm, spans = np.empty(normalised_capacity(len(text)), np.uint8), np.empty(len(text) + 2 + GROUP, np.uint32)
        n = _place(np.frombuffer(text, np.uint8), self._tables, norm, spans, hashes, ends)
        begins, continuous = spans[:n] & np.uint32(CONTINUOUS_START - 1), spans[:n] >= CONTINUOUS_START
        ends = ends[:n].copy()
        if found is not None:
            begins, ends = found.begins[begins], found.ends[ends - np.uint32(1)]
        return Placed(hashes[:n].copy(), begins, ends, continuous)
