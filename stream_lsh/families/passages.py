"""Evidence of `containment`: the shares that two texts have in common, and the passages with their places in both."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.sampled import SampledSigner
from stream_lsh.hashing.bits import SEED_MIX, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.text.settings import SigningSettings
from stream_lsh.text.tokens import Placed, Placing

MOST = 10
"""Most passages listed for a match."""
LARGE_BYTES = 1 << 16
"""Size from which a text is recognised by its address in memory: that of a book, which many posts quote."""
KEPT_BYTES = 256 << 20
"""Most memory for cached texts; a book of 10 MB takes some 60 MB."""
_PLACES = 16  # places of a few words in a text that are compared
_WORK = 2  # most comparisons, as a multiple of these places: bounds texts that repeat one word
_RUNS = 64  # runs that there is room for at first
_NONE = np.uint32(0xFFFFFFFF)


class _Text(NamedTuple):
    """A text prepared for comparison.

    Attributes:
        heads, nexts: hash table of the places where `least` tokens in a row begin.
        shingles: uint64[s], ascending.
        whole: keeps the text's memory, and with it its address.
    """

    tokens: Placed
    heads: NDArray[np.uint32]
    nexts: NDArray[np.uint32]
    shingles: NDArray[np.uint64]
    whole: bytes | memoryview

    @property
    def octets(self) -> int:
        arrays = (*self.tokens, self.heads, self.nexts, self.shingles)
        return sum(array.nbytes for array in arrays) + len(self.whole)


class Passages:
    """Shares and passages of matches; `families.family.Explains`. For one thread."""

    of_texts = True

    def __init__(self, settings: SigningSettings) -> None:
        self._least = settings.passage
        self._placed = Placing(replace(settings, kind="words", tokens="unicode"))
        self._signer = SampledSigner(settings)
        self._kept: OrderedDict[object, _Text] = OrderedDict()
        self._octets = 0

    def __call__(
        self, text: bytes, others: Sequence[bytes | memoryview], own: NDArray[np.uint64] | None = None
    ) -> list[bytes]:
        """Shares and passages, as members of a JSON object. `own` is not used."""
        new = self._read(text)
        return [self._member(new, self._text(other)) for other in others]

    def between(self, text: bytes, other: bytes) -> NDArray[np.int64]:
        """The passages that two texts have in common, int64[p, 5]: tokens, then begin and end in each text, in code
        points. The longest first. They do not overlap in the first text."""
        return self._passages(self._read(text), self._read(other))

    def _member(self, new: _Text, old: _Text) -> bytes:
        one, two = (new, old) if len(new.shingles) <= len(old.shingles) else (old, new)
        at = np.minimum(np.searchsorted(two.shingles, one.shingles), max(0, len(two.shingles) - 1))
        shared = int((two.shingles[at] == one.shingles).sum()) if len(two.shingles) else 0
        shares = shared / max(1, len(new.shingles)), shared / max(1, len(old.shingles))
        found = self._passages(new, old)
        listed = b",".join(
            b'{"words":%d,"newer":[%d,%d],"older":[%d,%d]}' % tuple(passage) for passage in found[:MOST].tolist()
        )
        more = b',"more_passages":%d' % (len(found) - MOST) if len(found) > MOST else b""
        inside, contains = (repr(share).encode() for share in shares)
        return b',"contained_in":%b,"contains":%b,"passages":[%b]%b' % (inside, contains, listed, more)

    def _passages(self, new: _Text, old: _Text) -> NDArray[np.int64]:
        swapped = len(new.tokens.hashes) > len(old.tokens.hashes)
        small, large = (old, new) if swapped else (new, old)
        runs = _runs(small.tokens.hashes, large.tokens.hashes, large.heads, large.nexts, self._least)
        if swapped:
            runs = runs[:, [0, 2, 1]]
        order = np.lexsort((runs[:, 2], runs[:, 1], -runs[:, 0]))
        kept = _apart(runs[order], len(new.tokens.hashes), self._least)
        kept = kept[np.lexsort((kept[:, 1], -kept[:, 0]))]
        columns: list[NDArray[Any]] = [kept[:, 0]]
        for side, tokens in ((1, new.tokens), (2, old.tokens)):
            columns += [tokens.begins[kept[:, side]], tokens.ends[kept[:, side] + kept[:, 0] - 1]]
        return np.stack([column.astype(np.int64) for column in columns], axis=1)

    def _text(self, text: bytes | memoryview) -> _Text:
        """An older text from the cache, large ones by their address."""
        text = text if len(text) >= LARGE_BYTES else bytes(text)
        key: object = text
        if len(text) >= LARGE_BYTES:
            key = np.frombuffer(text, np.uint8).ctypes.data, len(text)
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            return found
        self._kept[key] = found = self._read(text)
        self._octets += found.octets
        while self._octets > KEPT_BYTES and len(self._kept) > 1:
            self._octets -= self._kept.popitem(last=False)[1].octets
        return found

    def _read(self, text: bytes | memoryview) -> _Text:
        tokens = self._placed(text)
        shingles, _ = self._signer.shingle(bytes(text), np.array([len(text)]))
        heads = np.full(_slots(len(tokens.hashes)), _NONE)
        nexts = np.empty(len(tokens.hashes), np.uint32)
        _enter(tokens.hashes, self._least, heads, nexts)
        return _Text(tokens, heads, nexts, np.sort(shingles), text)


def _slots(tokens: int) -> int:
    return 1 << max(4, tokens.bit_length())


@njit
def _hash_of(hashes, at, least, slots):  # type: ignore[no-untyped-def]
    """Slot of the tokens hashes[at:at + least]."""
    state = SEED_MIX
    for k in range(at, at + least):
        state = fold_multiply(state ^ hashes[k], SEED_MIX)
    return np.int64(state & np.uint64(slots - 1))


@njit
def _enter(hashes, least, heads, nexts):  # type: ignore[no-untyped-def]
    """Enter the places where `least` tokens in a row begin, so that the first ones are found first."""
    for at in range(len(hashes) - least, -1, -1):
        slot = _hash_of(hashes, at, least, len(heads))
        nexts[at] = heads[slot]
        heads[slot] = np.uint32(at)


def _runs(
    small: NDArray[np.uint64],
    large: NDArray[np.uint64],
    heads: NDArray[np.uint32],
    nexts: NDArray[np.uint32],
    least: int,
) -> NDArray[np.int64]:
    """Maximal runs of tokens that two texts have in common: int64[r, 3], tokens and begin in both. Of each `least`
    tokens in a row only the first _PLACES places in the larger text are compared."""
    near, out = np.empty((2, _PLACES), np.int64), np.empty((_RUNS, 3), np.int64)
    while (n := _find_runs(small, large, heads, nexts, least, near, out)) > len(out):
        out = np.empty((2 * len(out), 3), np.int64)
    return out[:n]


def _apart(runs: NDArray[np.int64], tokens: int, least: int) -> NDArray[np.int64]:
    """Parts of runs (longest first) that do not overlap in the first text: of each run the longest part that is left,
    if it has `least` tokens; int64[p, 3]."""
    out = np.empty((len(runs), 3), np.int64)
    return out[: _part_runs(np.ascontiguousarray(runs), least, np.zeros(tokens, np.bool_), out)]


# These kernels neither create arrays nor assign to parts of them: that takes longer to compile than all else in them.


@njit
def _find_runs(small, large, heads, nexts, least, near, out):  # type: ignore[no-untyped-def]
    """Write the runs to `out`. Returns how many there are; more than there is room for, if there is too little.

    near: int64[2, _PLACES], scratch: the places in the larger text of these `least` tokens, and of those one before.
    """
    n, turn, were = 0, 0, 0
    left = _WORK * _PLACES * least * (len(small) + 1)
    for i in range(len(small) - least + 1):
        at, there, tried = heads[_hash_of(small, i, least, len(heads))], 0, 0
        while at != _NONE and tried < 4 * _PLACES and there < _PLACES and left > 0:
            j = np.int64(at)
            at = nexts[j]
            tried += 1
            same = 0
            while same < least and small[i + same] == large[j + same]:
                same += 1
            left -= same
            if same < least:
                continue
            near[turn, there] = j
            there += 1
            goes_on = False
            for k in range(were):
                goes_on |= near[1 - turn, k] == j - 1
            if goes_on:
                continue
            begin = 0
            while begin < i and begin < j and small[i - begin - 1] == large[j - begin - 1]:
                begin += 1
            while i + same < len(small) and j + same < len(large) and small[i + same] == large[j + same]:
                same += 1
            left -= begin + same
            if n == len(out):
                return n + 1
            out[n, 0], out[n, 1], out[n, 2] = begin + same, i - begin, j - begin
            n += 1
        turn, were = 1 - turn, there
    return n


@njit
def _part_runs(runs, least, taken, out):  # type: ignore[no-untyped-def]
    """Write the parts to `out`. Returns how many there are. taken: bool[tokens], scratch, all false."""
    n = 0
    for k in range(len(runs)):
        size, i, j = runs[k, 0], runs[k, 1], runs[k, 2]
        best, begin, length = 0, i, 0
        for at in range(i, i + size):
            length = 0 if taken[at] else length + 1
            if length > best:
                best, begin = length, at - length + 1
        if best >= least:
            for at in range(begin, begin + best):
                taken[at] = True
            out[n, 0], out[n, 1], out[n, 2] = best, begin, j + begin - i
            n += 1
    return n
