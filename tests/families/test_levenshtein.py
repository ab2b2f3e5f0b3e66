"""Short texts: their distance, the keys of their pieces, how often they have which characters (MMDS 3.5.5, 3.9)."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.models.distances import edit_distance, levenshtein_distance

from stream_lsh.families.distances import edits
from stream_lsh.families.family import signer_of
from stream_lsh.families.levenshtein import searches
from stream_lsh.families.measure import COUNT_BITS, MOST_EDITS, lookups
from stream_lsh.families.signer import Signed
from stream_lsh.index.rows.keys import Hashes
from stream_lsh.index.rows.layout import HEAD_WORDS
from stream_lsh.settings.model import Settings

TEXTS = st.text("ab漢 é", max_size=14)


def signed(texts: list[str], distance: int, scopes: NDArray[np.uint64] | None = None, **more: Any) -> Signed:
    settings = Settings(measure="levenshtein", max_distance=distance, **more)
    raw = [text.encode() for text in texts]
    ends = np.cumsum([len(one) for one in raw])
    return signer_of(settings.signing).sign(b"".join(raw), ends, scopes, want_shingles=True)


def distance_of(one: str, other: str, most: int) -> int:
    first, second = (np.array([ord(x) for x in text], np.uint64) for text in (one, other))
    scratch = np.full((2 * most + 3, 2), 7, np.uint64)
    return int(edits(first, 0, len(first), second, 0, len(second), most, scratch))


def test_the_distance_replaces_where_that_of_the_book_deletes_and_inserts() -> None:
    """Example 3.14 of MMDS: abcde and acfdeg are 3 apart; delete b, insert f, insert g."""
    assert edit_distance("abcde", "acfdeg") == 3 == distance_of("abcde", "acfdeg", 3)
    assert edit_distance("abc", "axc") == 2
    assert distance_of("abc", "axc", 3) == 1
    assert distance_of("kitten", "sitting", 8) == 3
    assert distance_of("", "abc", 3) == distance_of("abc", "", 3) == 3
    assert distance_of("abcd", "", 3) == 4


@given(TEXTS, TEXTS, st.integers(0, MOST_EDITS))
def test_the_distance_is_that_of_dynamic_programming(one: str, other: str, most: int) -> None:
    assert distance_of(one, other, most) == min(levenshtein_distance(one, other), most + 1)


@given(TEXTS, TEXTS, st.integers(0, 5))
def test_texts_within_the_distance_have_a_key_in_common(one: str, other: str, distance: int) -> None:
    """And agree in how often they have which characters, but for two at each edit."""
    made = signed([one, other], distance, normalize="none")
    apart = levenshtein_distance(one, other)
    if not made.sizes.all():
        return  # nothing but blanks
    bits = np.unpackbits(made.signatures[:, : COUNT_BITS // 8], axis=1)
    assert int((bits[0] != bits[1]).sum()) <= 2 * apart
    if apart <= distance:
        settings = Settings(measure="levenshtein", max_distance=distance, normalize="none")
        keys, starts = Hashes(settings.signing, bytes(16)).keys(made.signatures, made.fingerprints, made.fingerprints)
        assert np.diff(starts).tolist() == [lookups(distance) + 2] * 2
        for older, newer in ((0, 1), (1, 0)):
            posted = keys[starts[older] : starts[older] + distance + 1]
            assert np.isin(posted, keys[starts[newer] : starts[newer + 1] - 2]).any()


def test_how_many_keys_there_are() -> None:
    """Sum over the lengths of floor((d^2 - l^2) / 2) + d + 1 (Li and others, theorem 4)."""
    for distance in range(MOST_EDITS + 1):
        lengths = range(-distance, distance + 1)
        assert lookups(distance) == sum((distance**2 - longer**2) // 2 + distance + 1 for longer in lengths)
        table = searches(distance)
        assert len({*map(tuple, table.tolist())}) == len(table) == lookups(distance)
        assert table[: distance + 1, 1:].tolist() == [[0, 0]] * (distance + 1)
    assert COUNT_BITS == 64 * HEAD_WORDS  # candidates are ranked by all of them, and by nothing else


def test_unrelated_texts_share_no_keys() -> None:
    rng = np.random.default_rng(1)
    texts = ["".join(map(chr, rng.integers(97, 123, 40))) for _ in range(200)]
    made = signed(texts, 3)
    pieces = made.signatures[:, COUNT_BITS // 8 :].copy().view("<u4")
    assert len(np.unique(pieces)) == pieces.size
    apart = [(made.signatures[0] ^ other)[: COUNT_BITS // 8] for other in made.signatures[1:]]
    assert min(int(np.unpackbits(bits).sum()) for bits in apart) > 2 * 3


def test_characters_not_bytes_are_compared_and_as_they_are_normalised() -> None:
    made = signed(["Größe  漢字", "größe 漢字", "\U0001f642é", " "], 2)
    assert made.sizes.tolist() == [8, 8, 2, 0]
    assert (made.signatures[0] == made.signatures[1]).all()
    assert (made.fingerprints[0] == made.fingerprints[1]).all()
    assert not made.signatures[3].any()
    words = [chr(point) for point in made.shingles[made.offsets[2] : made.offsets[3]].tolist()]
    assert words == ["\U0001f642", "é"]
    assert signed(["ﬁne"], 2, normalize="nfkc").sizes.tolist() == [4]


def test_scopes_set_texts_apart() -> None:
    made = signed(["one title"] * 3, 2, np.array([5, 5, 6], np.uint64))
    assert (made.signatures[0] == made.signatures[1]).all()
    pieces = made.signatures[:, COUNT_BITS // 8 :].copy().view("<u4")
    assert not np.isin(pieces[0], pieces[2]).any()
    assert np.unpackbits(made.signatures[0, :128] ^ made.signatures[2, :128]).sum() > 300
