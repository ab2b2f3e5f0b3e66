"""One form of a text for all its spellings in Unicode: without invisible characters, and in NFC or NFKC.

A scan finds the documents that need a change, so that all others cost little. ASCII and the letters of most feeds are
tested eight bytes at a time, the rest by code points. Documents that need NFC are normalised by Python.

The result depends on the Unicode version of the package's table, not on that of the running Python.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.hashing.bits import load64
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.utf8 import decode
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.unicode import COMPOSED, COMPOSES, IGNORABLE, NOT_NFC, record_of, unicode_data

INVISIBLE = 1  # has characters to be removed
FORM = 2  # may have another form in NFC
RARE = 4  # has characters that `casing` rewrites
_DOTTED, _SIGMA = 0x130, 0x3A3
_TOPS, _SEVENS = np.uint64(0x8080808080808080), np.uint64(0x7F7F7F7F7F7F7F7F)
_ONES = 0x0101010101010101
BLOCK = 64  # bytes that are tested together
MOST_MARKS = 30  # of a character, that are sorted together
_NONE = np.uint64(0)


@cache
def _special(ignorable: bool, nfc: bool, lower: bool) -> NDArray[np.uint8]:
    """uint8[256 * 64]: 1 at (first byte << 6 | low bits of the second byte) where a character that begins with these
    may matter to a scan."""
    data = unicode_data()
    points = np.arange(sys.maxunicode + 1)
    records = data.records_of(points)
    wanted = IGNORABLE * ignorable | (NOT_NFC | COMPOSES) * nfc
    matters = data.flags[records] & np.uint16(wanted) != 0
    matters |= nfc & (data.combining[records] != 0)
    matters[[_DOTTED, _SIGMA]] |= lower
    found = np.ones((256, 64), np.uint8)  # also of bytes that begin no character
    found[0xC2:0xE0] = matters[0x80:0x800].reshape(-1, 64).any(axis=1)[:, None]
    found[0xE0:0xF0] = matters[:0x10000].reshape(16, 64, 64).any(axis=2)
    found[0xF0:0xF4] = matters[:0x100000].reshape(4, 64, 4096).any(axis=2)
    return found.reshape(-1)


@njit(forceinline=True)
def _from(x, byte):  # type: ignore[no-untyped-def]
    """The highest bit of each byte of x that is at least `byte`, which is at least 0x80."""
    return (x & _SEVENS) + np.uint64((0x100 - byte) * _ONES) & x & _TOPS


@njit(forceinline=True)
def _is(x, byte):  # type: ignore[no-untyped-def]
    """The highest bit of each byte of x that is `byte`."""
    other = x ^ np.uint64(byte * _ONES)
    return ~((other & _SEVENS) + _SEVENS | other) & _TOPS


@njit
def _plain_until(text, start, end):  # type: ignore[no-untyped-def]
    """A place in text[start:end] up to which a scan finds nothing, judged by the first bytes of characters: nearly all
    of most texts in Latin and Cyrillic letters, Chinese and Japanese. It may be within a character.
    """
    place, hits = start, _NONE
    while hits & _TOPS == _NONE and place + BLOCK + 2 <= end:
        start = place
        for at in range(place, place + BLOCK, 8):
            hits |= load64(text, at)
        place += BLOCK
    place, hits = start, _NONE
    while hits == _NONE and place + BLOCK + 2 <= end:
        start = place
        for at in range(place, place + BLOCK, 8):
            x, second, third = load64(text, at), load64(text, at + 1), load64(text, at + 2)
            plain = _is(x, 0xC3) | _from(x, 0xC5) & ~_from(x, 0xCC) | _from(x, 0xD0) & ~_from(x, 0xD2)
            plain |= _is(x, 0xC2) & ~_is(second, 0xAD) | _is(x, 0xC4) & ~_is(second, 0xB0)  # U+00AD, U+0130
            plain |= _from(x, 0xE4) & ~_from(x, 0xEA) | _is(x, 0xEF) & (_is(second, 0xBC) | _is(second, 0xBD))
            # U+200B to 200F, 202A to 202E
            invisible = _from(third, 0x8B) & ~_from(third, 0x90) | _from(third, 0xAA) & ~_from(third, 0xAF)
            invisible |= ~_from(third, 0x82)  # U+2000, 2001: another form in NFC
            plain |= _is(x, 0xE2) & (_is(second, 0x80) & ~invisible | _is(second, 0x82))
            marks = _is(second, 0x80) & _from(third, 0xAA)  # U+302A to 302F
            marks |= _is(second, 0x82) & _from(third, 0x99) & ~_from(third, 0x9B)  # U+3099, 309A
            plain |= _is(x, 0xE3) & ~_from(second, 0x84) & ~marks
            hits |= _from(x, 0xC2) & ~plain
        place += BLOCK
    return place if hits == _NONE else start


@njit
def _scan(text, ends, special, pages, records, flags, combining, ignorable, nfc, lower, marks):  # type: ignore[no-untyped-def]
    """The quick check of UAX 15, which also looks for invisible and for rare characters.

    marks: uint8[n], filled with INVISIBLE, FORM and RARE. Returns all of them.
    """
    every, start = 0, np.int64(0)
    for document in range(ends.shape[0]):
        end, place, found = ends[document], start, 0
        before = np.int64(-1)  # where the character before begins, without invisible ones
        last = np.uint8(0)  # its combining class
        until = start  # the next place from which `_plain_until` is tried
        while place < end:
            if place >= until:
                skipped = _plain_until(text, place, end)
                until = skipped + BLOCK
                if skipped > place:
                    place = skipped
                    while place < end and text[place] & 0xC0 == 0x80:
                        place += 1
                    before, last = place - 1, np.uint8(0)
                    while before > start and text[before] & 0xC0 == 0x80:
                        before -= 1
                    continue
            first = np.int64(text[place])
            if first < 0x80:
                before, last = place, np.uint8(0)
                place += 1
                continue
            second = np.int64(text[place + 1]) if place + 1 < end else np.int64(0)
            if not special[first << 6 | second & 0x3F]:
                before, last = place, np.uint8(0)
                place += 2 + np.int64(first >= 0xE0) + np.int64(first >= 0xF0)
                continue
            point, size = decode(text, place, end)
            record = record_of(point, pages, records)
            flag = flags[record]
            if ignorable and flag & IGNORABLE:
                found |= INVISIBLE
                place += size
                continue
            if lower and point in (_DOTTED, _SIGMA):
                found |= RARE
            if nfc:
                own = combining[record]
                if flag & NOT_NFC or (own != 0 and own < last):
                    found |= FORM
                elif flag & COMPOSES and before >= 0:
                    # What composes only with certain characters is harmless behind all others, as in most of India.
                    previous, _ = decode(text, before, end)
                    if last != 0 or flags[record_of(previous, pages, records)] & COMPOSED:
                        found |= FORM
                last = own
            before = place
            place += size
        marks[document] = found
        every |= found
        start = end
    return every


@njit(allocates=True)
def _remove(text, ends, marks, special, pages, records, flags, out, out_ends):  # type: ignore[no-untyped-def]
    """Copy documents without the invisible characters of those that have INVISIBLE. Returns the bytes written."""
    copied, read, write = np.int64(0), np.int64(0), np.int64(0)
    for document in range(ends.shape[0]):
        end = ends[document]
        if not marks[document] & INVISIBLE:
            read = end
        while read < end:
            first = np.int64(text[read])
            if first < 0x80:
                read += 8 if read + 8 <= end and load64(text, read) & _TOPS == _NONE else 1
                continue
            second = np.int64(text[read + 1]) if read + 1 < end else np.int64(0)
            if not special[first << 6 | second & 0x3F]:
                read = min(end, read + 2 + np.int64(first >= 0xE0) + np.int64(first >= 0xF0))
                continue
            point, size = decode(text, read, end)
            if flags[record_of(point, pages, records)] & IGNORABLE:
                out[write : write + read - copied] = text[copied:read]
                write += read - copied
                copied = read + size
            read += size
        out_ends[document] = write + end - copied
    out[write : write + read - copied] = text[copied:read]
    return write + read - copied


def unified(
    text: NDArray[np.uint8], ends: NDArray[np.int64], settings: SigningSettings
) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint8]]:
    """Remove invisible characters and normalise to NFC or NFKC, as the settings say. Invisible characters go first,
    because they separate letters and marks that belong together.

    Args:
        text: the documents in UTF-8, concatenated.
        ends: where each ends.

    Returns:
        The new texts and ends, the same arrays if there is nothing to do; and uint8[n], 0 where `casing` has nothing
        to do, or nothing where it has nothing to do at all.
    """
    marks = np.zeros(len(ends), np.uint8)
    every = _marked(text, ends, settings, marks)
    if not (every or settings.nfkc):
        return text, ends, marks[:0]
    if every & INVISIBLE:
        data = unicode_data()
        out, out_ends = np.empty(len(text), np.uint8), np.empty_like(ends)
        special = _special(True, False, False)
        out = out[: _remove(text, ends, marks, special, data.pages, data.records, data.flags, out, out_ends)]
        out.flags.writeable = False  # kernels are compiled for read-only arrays, which `bytes` give
        text, ends = out, out_ends
    if settings.nfkc or every & FORM:
        form = NFKC if settings.nfkc else NFC
        lengths, starts = np.diff(ends, prepend=0), ends - np.diff(ends, prepend=0)
        changed = np.ones(len(ends), np.bool_) if settings.nfkc else marks & FORM != 0
        parts, place = list[Any](), 0
        for document in np.flatnonzero(changed).tolist():
            start, end = int(starts[document]), int(ends[document])
            plain = text[start:end].tobytes().decode("utf-8", "surrogatepass")
            normal = normalised(plain, form).encode("utf-8", "surrogatepass")
            parts += text[place:start].data, normal
            lengths[document], place = len(normal), end
        text = np.frombuffer(b"".join([*parts, text[place:].data]), np.uint8)
        ends = np.cumsum(lengths)
        marks[changed] |= RARE  # a new form may be rare
    return text, ends, marks & np.uint8(RARE)


def _marked(
    text: NDArray[np.uint8], ends: NDArray[np.int64], settings: SigningSettings, marks: NDArray[np.uint8]
) -> int:
    nfc = settings.nfc and not settings.nfkc
    if not (settings.ignorable or nfc or settings.lower):
        return 0
    data, special = unicode_data(), _special(settings.ignorable, nfc, settings.lower)
    return int(
        _scan(
            text, ends, special, data.pages, data.records, data.flags, data.combining, settings.ignorable, nfc,
            settings.lower, marks,
        )
    )  # fmt: skip


Form = Literal["NFC", "NFKC"]
NFC: Form = "NFC"
NFKC: Form = "NFKC"


def normalised(text: str, form: Form) -> str:
    """The text in a form of the table's Unicode version.

    Characters assigned in this version have the same form in all later ones (Unicode's stability policy). An unassigned
    code point is no mark, has no other form and combines with no other: it is kept, and separates what is before and
    behind it.

    More than MOST_MARKS marks in a row are normalised in parts, as in the stream-safe format of UAX 15: Python sorts
    the marks of a character in quadratic time.
    """
    if text.isascii():
        return text
    points = _points(text)
    kept = unassigned()[points]
    begins = kept.copy()
    begins[1:] |= kept[:-1]
    begins[_cuts(points)] = begins[0] = True
    places = np.flatnonzero(begins)
    pieces = zip(places.tolist(), [*places[1:].tolist(), len(text)], kept[places].tolist(), strict=True)
    return "".join(text[a:b] if same else unicodedata.normalize(form, text[a:b]) for a, b, same in pieces)


def _cuts(points: NDArray[np.uint32]) -> list[int]:
    """Where parts of long runs of marks begin."""
    data = unicode_data()
    starters = np.flatnonzero(data.combining[data.records_of(points)] == 0)
    before, behind = np.append(-1, starters), np.append(starters, len(points))
    long = behind - before > MOST_MARKS + 1
    runs = zip(before[long].tolist(), behind[long].tolist(), strict=True)
    return [place for start, stop in runs for place in range(start + 1 + MOST_MARKS, stop, MOST_MARKS)]


@cache
def unassigned() -> NDArray[np.bool_]:
    """bool[0x110000]: code points that are unassigned in the table's Unicode version."""
    found = np.zeros(sys.maxunicode + 1, np.bool_)
    for first, last in unicode_data().unassigned.tolist():
        found[first : last + 1] = True
    return found


class Located(NamedTuple):
    """A text after `unified`, with the place of each of its code points in the original text.

    Attributes:
        text: in UTF-8.
        begins, ends: uint32, in code points of the original text. Characters of which NFC makes others have the places
            of all of them.
    """

    text: bytes | memoryview
    begins: NDArray[np.uint32]
    ends: NDArray[np.uint32]


def located(text: bytes | memoryview, settings: SigningSettings) -> Located | None:
    """A text in UTF-8 as `unified` makes it by `ignorable` and `nfc`; None if it stays as it is."""
    marks = np.zeros(1, np.uint8)
    every = _marked(np.frombuffer(text, np.uint8), np.array([len(text)]), settings, marks)
    if not every & (INVISIBLE | FORM):
        return None
    data, plain = unicode_data(), bytes(text).decode("utf-8", "surrogatepass")
    points = _points(plain)
    records = data.records_of(points)
    kept = np.flatnonzero(~(settings.ignorable & (data.flags[records] & IGNORABLE != 0)))
    records, begins = records[kept], kept.astype(np.uint32)
    ends = begins + np.uint32(1)
    plain = points[kept].tobytes().decode("utf-32-le", "surrogatepass")
    if every & FORM:
        plain, begins, ends = _composed(plain, data.flags[records], data.combining[records] != 0, begins, ends)
    return Located(plain.encode("utf-8", "surrogatepass"), begins, ends)


def _composed(
    text: str, flags: NDArray[np.uint16], marks: NDArray[np.bool_], begins: NDArray[np.uint32], ends: NDArray[np.uint32]
) -> tuple[str, NDArray[np.uint32], NDArray[np.uint32]]:
    """The text in NFC, piece by piece, with the places of its code points. A piece ends before a character that cannot
    compose with what is before it."""
    alone = (flags & np.uint16(COMPOSES) == 0) & ~marks
    alone[:1] = True
    starts = np.flatnonzero(alone)
    stops = np.append(starts[1:], len(text))
    touched = (stops - starts > 1) | (flags[starts] & np.uint16(NOT_NFC) != 0)
    parts, firsts, lasts, place = list[str](), list[NDArray[np.uint32]](), list[NDArray[np.uint32]](), 0
    for start, stop in zip(starts[touched].tolist(), stops[touched].tolist(), strict=True):
        piece = normalised(text[start:stop], NFC)
        if piece != text[start:stop]:
            parts += text[place:start], piece
            firsts += begins[place:start], np.full(len(piece), begins[start])
            lasts += ends[place:start], np.full(len(piece), ends[stop - 1])
            place = stop
    firsts, lasts = [*firsts, begins[place:]], [*lasts, ends[place:]]
    return "".join([*parts, text[place:]]), np.concatenate(firsts), np.concatenate(lasts)


def _points(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
