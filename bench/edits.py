"""Many million documents out of 120,000 posts, by a deterministic edit: `python -m bench.edits --documents 300000`.

Segment 0 are the posts themselves. Segment g is all of them again, in the same order, with

- the letters a-z of every word that is not one of the 64 most frequent exchanged by an alphabet of the segment's own
  (capitals like small letters), and its digits by digits of the segment's own; so "lichen" is "qvsbor" wherever it
  stands in segment 7, and another word in each other segment;
- CJK characters exchanged within their block of 64, likewise, and the rest of the characters left alone;
- `~g` at the end of the id, and times fifty times as dense, which go on where the segment before ended: six million
  documents in the time of the posts. (So the times of segment 0 are not those of the posts; all else is.)

A word becomes another word of the same length, equal words stay equal and different ones different (but for a rare
accident with one of the 64). So the lengths, the frequencies of words and the near-duplicates inside a segment are
those of the posts: the truth file holds for the first 40,000 posts of each. Between segments only the frequent words
are common, which leaves a post and its copies as similar as posts that share phrases ("one of the", "this is a").

Words are runs of characters for which `str.isalnum` holds, and _, which is what \\w is in Python. An edit is a table of
256 bytes under a mask that is computed once, so that a segment costs little more than copying it.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import orjson
from numpy.typing import NDArray

from bench import report
from bench.corpora import corpus, unpack
from bench.progress import Pace
from stream_lsh.hashing.kernels import njit

FREQUENT = 64
COUNTED = 20_000  # posts in which the frequent words are counted
EVERY = 100_000  # documents between two entries of the index of a made file
HOUR = 3_600_000
DENSITY = 50
EXAMPLE = "python -m bench.edits --documents 300000 --work made"
KEEP, EXCHANGE = 0, 1
Bytes = NDArray[np.uint8]


@dataclass(frozen=True)
class Template:
    """The posts, ready to be written with other words.

    `rest`: of each document all behind the time, with its line end; `mask`: uint8, as long: is the byte exchanged?
    `ids`: the ids without quotes, one after the other; `rest_ends`, `id_ends`: where each ends; `times`: ms since 1970.
    """

    rest: Bytes
    mask: Bytes
    rest_ends: NDArray[np.int64]
    ids: Bytes
    id_ends: NDArray[np.int64]
    times: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.times)

    def times_of(self, segment: int) -> NDArray[np.int64]:
        """The times of a segment, ms since 1970."""
        first = int(self.times.min())
        span = int(self.times.max()) - first + HOUR
        moved: NDArray[np.int64] = first + (self.times - first + segment * span) // DENSITY
        return moved


def frequent_words(lines: Iterator[bytes], number: int = FREQUENT) -> list[str]:
    """The most frequent words of ASCII letters, in small letters; among equals in the order of the alphabet."""
    counts: Counter[str] = Counter()
    for line in lines:
        document = orjson.loads(line)
        counts.update(re.findall(r"\w+", (document["title"] + " " + document["text"]).lower()))
    words = [(-count, word) for word, count in counts.items() if word.isascii() and word.isalpha()]
    return [word for _, word in sorted(words)[:number]]


def template(lines: Iterator[bytes], frequent: list[str]) -> Template:
    """Read posts (id, ts, source, title, text) and find the bytes that an edit exchanges."""
    rests, ids, times, spans = [], [], [], []
    end = 0
    for line in lines:
        document = orjson.loads(line)
        title, text = orjson.dumps(document["title"]), orjson.dumps(document["text"])
        head = b',"source":' + orjson.dumps(document["source"]) + b',"title":'
        middle = b',"text":'
        rest = b"".join((head, title, middle, text, b"}\n"))
        start = end + len(head)
        spans.append((start, start + len(title), start + len(title) + len(middle), end + len(rest) - 2))
        end += len(rest)
        rests.append(rest)
        ids.append(orjson.dumps(document["id"])[1:-1])
        times.append(document["ts"])
    joined = np.frombuffer(b"".join(rests), np.uint8)
    mask = np.zeros(len(joined), np.uint8)
    _mark(joined, np.array(spans, np.int64).reshape(-1, 4), _word_characters(), _hashes(frequent), mask)
    return Template(
        joined, mask, _ends(rests), np.frombuffer(b"".join(ids), np.uint8), _ends(ids), np.array(times, np.int64)
    )


def read_template(posts: Path) -> Template:
    """The template of a file of posts, with the words that are frequent in it."""
    with posts.open("rb") as lines:
        frequent = frequent_words(islice(lines, COUNTED))
    with posts.open("rb") as lines:
        return template(lines, frequent)


def exchange(segment: int) -> Bytes:
    """The table of a segment, uint8[256]: letters to letters, digits to digits, last bytes of CJK characters.

    Segment 0 changes nothing. The order is that of SHA-256, so that no library's random numbers are part of it.
    """
    made = np.arange(256, dtype=np.uint8)
    if segment:
        for first, size in ((ord("a"), 26), (ord("0"), 10), (0x80, 64)):
            made[first : first + size] = first + np.array(_shuffled(f"{segment}:{first}", size), np.uint8)
        made[ord("A") : ord("Z") + 1] = made[ord("a") : ord("z") + 1] - 32
    return made


def blocks(
    made: Template, documents: int, size: int = 10_000, *, again: int | None = None
) -> Iterator[tuple[bytes, NDArray[np.int64]]]:
    """The first so many documents: lines of up to `size` documents, and where each of them ends in it. again: after so
    many segments the words of the first come again, under other ids."""
    room = np.empty(0, np.uint8)
    written = 0
    for segment in range(-(-documents // len(made))):
        table = exchange(segment if again is None else segment % again)
        suffix = b"~%d" % segment if segment else b""
        for first in range(0, len(made), size):
            last = min(first + size, len(made), first + documents - written)
            if last <= first:
                return
            needed = int(made.rest_ends[last - 1] - (made.rest_ends[first - 1] if first else 0)) + (last - first) * 200
            needed += int(made.id_ends[last - 1])
            if len(room) < needed:
                room = np.empty(needed, np.uint8)
            ends = np.empty(last - first, np.int64)
            _write(
                made.rest, made.mask, made.rest_ends, made.ids, made.id_ends, made.times_of(segment),
                table, np.frombuffer(suffix, np.uint8), first, ends, room,
            )  # fmt: skip
            written += last - first
            yield room[: ends[-1]].tobytes(), ends


def make(posts: Path, target: Path, documents: int) -> dict[str, int | list[int]]:
    """Write a file of edited posts, and beside it `<name>.index`: where every 100,000th document ends.

    Returns:
        The index: "documents", "bytes", "every", and "offsets", byte offsets after each `every` documents.
    """
    index = target.with_suffix(".index")
    if target.exists() and index.exists():
        found: dict[str, int | list[int]] = orjson.loads(index.read_bytes())
        if found["documents"] == documents and found["bytes"] == target.stat().st_size:
            return found
    source = read_template(posts)
    offsets: list[int] = []
    total = count = 0
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    with unfinished.open("wb") as out, Pace("made", documents) as pace:
        for data, ends in blocks(source, documents):
            for position in range(EVERY - count % EVERY, len(ends) + 1, EVERY):
                offsets.append(total + int(ends[position - 1]))
            out.write(data)
            total += len(data)
            count += len(ends)
            pace(count)
    unfinished.replace(target)
    made: dict[str, int | list[int]] = {"documents": count, "bytes": total, "every": EVERY, "offsets": offsets}
    index.write_bytes(orjson.dumps(made))
    return made


def _shuffled(name: str, size: int) -> list[int]:
    return sorted(range(size), key=lambda i: hashlib.sha256(f"{name}:{i}".encode()).digest())


def _ends(parts: list[bytes]) -> NDArray[np.int64]:
    return np.cumsum([len(part) for part in parts], dtype=np.int64)


def _word_characters() -> NDArray[np.bool_]:
    found = [chr(code).isalnum() or code == ord("_") for code in range(0x110000)]
    return np.array(found, np.bool_)


def _hashes(words: list[str]) -> NDArray[np.uint64]:
    """FNV-1a of each word, sorted; computed as the kernel does."""
    found = []
    for word in words:
        value = 0xCBF29CE484222325
        for byte in word.encode():
            value = ((value ^ byte) * 0x100000001B3) & (2**64 - 1)
        found.append(value)
    return np.array(sorted(found), np.uint64)


@njit
def _mark(
    text: Bytes, spans: NDArray[np.int64], is_word: NDArray[np.bool_], frequent: NDArray[np.uint64], mask: Bytes
) -> None:
    """Set `mask` where a byte is exchanged: ASCII letters, digits (not in frequent words), last bytes of CJK."""
    for document in range(len(spans)):
        for part in range(2):
            # Without the quotes of the JSON string.
            position, stop = spans[document, 2 * part] + 1, spans[document, 2 * part + 1] - 1
            start = np.int64(-1)
            value = np.uint64(0)
            while position <= stop:
                width, code = 1, np.int64(0)
                if position < stop:
                    byte = np.int64(text[position])
                    if byte == 92:  # an escape: \n, \", \u0007; none of them is of a word
                        width = 6 if text[position + 1] == 117 else 2
                    elif byte < 128:
                        code = byte
                    elif byte < 0xE0:
                        width, code = 2, (byte & 31) << 6 | (text[position + 1] & 63)
                    elif byte < 0xF0:
                        width = 3
                        code = (byte & 15) << 12 | np.int64(text[position + 1] & 63) << 6 | (text[position + 2] & 63)
                    else:
                        width = 4
                        code = (byte & 7) << 18 | np.int64(text[position + 1] & 63) << 12
                        code |= np.int64(text[position + 2] & 63) << 6 | (text[position + 3] & 63)
                if code and is_word[code]:
                    if start < 0:
                        start, value = position, np.uint64(0xCBF29CE484222325)
                    small = np.uint64(code + 32 if 65 <= code <= 90 else code)
                    value = (value ^ small) * np.uint64(0x100000001B3)
                    if 0x4E00 <= code < 0x9FC0:
                        mask[position + 2] = 1
                elif start >= 0:
                    place = np.searchsorted(frequent, value)
                    if place == len(frequent) or frequent[place] != value:
                        for i in range(start, position):
                            byte = text[i]
                            if 48 <= byte <= 57 or 65 <= byte <= 90 or 97 <= byte <= 122:
                                mask[i] = 1
                    start = np.int64(-1)
                position += width


@njit
def _write(
    rest: Bytes, mask: Bytes, rest_ends: NDArray[np.int64], ids: Bytes, id_ends: NDArray[np.int64],
    times: NDArray[np.int64], table: Bytes, suffix: Bytes, first: int, ends: NDArray[np.int64], out: Bytes,
) -> None:  # fmt: skip
    """Write documents from `first` on as JSON lines into `out`; `ends`: where each ends."""
    at = 0
    for i in range(len(ends)):
        document = first + i
        for byte in b'{"id":"':
            out[at] = byte
            at += 1
        for j in range(id_ends[document - 1] if document else 0, id_ends[document]):
            out[at] = ids[j]
            at += 1
        for j in range(len(suffix)):
            out[at] = suffix[j]
            at += 1
        for byte in b'","ts":':
            out[at] = byte
            at += 1
        time, digits = times[document], 1
        while time >= 10:
            time //= 10
            digits += 1
        time = times[document]
        for j in range(digits):
            out[at + digits - 1 - j] = 48 + time % 10
            time //= 10
        at += digits
        begin = rest_ends[document - 1] if document else 0
        for j in range(begin, rest_ends[document]):
            byte = rest[j]
            out[at + j - begin] = table[byte] if mask[j] else byte
        at += rest_ends[document] - begin
        ends[i] = at


def main() -> None:
    parser = report.parser("edits", "Make a large file of documents from the posts.", EXAMPLE)
    parser.add_argument("--documents", type=int, default=5_000_000, help="how many (%(default)s)")
    parser.add_argument("--print", action="store_true", help="write them to standard output, for a pipe")
    given = parser.parse_args()
    if given.print:
        for data, _ in blocks(read_template(unpack(corpus("posts-120k"), given.data, given.work)), given.documents):
            sys.stdout.buffer.write(data)
        return
    target = given.work / f"edited-{given.documents}.jsonl"
    made = make(unpack(corpus("posts-120k"), given.data, given.work), target, given.documents)
    print(f"{target.name}: {made['documents']:,} documents, {made['bytes']:,} bytes, in {given.work}")


if __name__ == "__main__":
    main()
