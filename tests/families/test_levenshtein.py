"""Short texts and sets with weights: distances, keys, signatures (MMDS 3.1.1, 3.5.5, 3.9; Ioffe 2010)."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from support.models.distances import edit_distance, levenshtein_distance, weighted_jaccard

from stream_lsh.documents.refused import Refused
from stream_lsh.documents.weights import MOST_ELEMENTS, weights_text
from stream_lsh.families.distances import edits, similarity
from stream_lsh.families.family import signer_of
from stream_lsh.families.levenshtein import searches
from stream_lsh.families.measure import COUNT_BITS, MOST_EDITS, lookups
from stream_lsh.families.signer import Signed
from stream_lsh.families.weights import logarithms, tables
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


WEIGHTS = st.floats(1e-9, 1e15) | st.integers(1, 5)
SETS = st.dictionaries(st.sampled_from([*"abcdefgh", "\ud800", "é 漢"]), WEIGHTS, min_size=1)
LARGE: dict[str, Any] = {"signature_size": 4096, "bands": 2, "rows": 16}
"""Many components, of 32 bits: none is the same by accident."""


def signed_sets(sets: list[Any], scopes: NDArray[np.uint64] | None = None, **more: Any) -> Signed:
    settings = Settings(measure="weighted-jaccard", **{"threshold": 0.3, **more})
    texts = [weights_text(one, "", b"").encode("utf-8", "surrogatepass") for one in sets]
    return signer_of(settings.signing).sign(
        b"".join(texts), np.cumsum(list(map(len, texts))), scopes, want_shingles=True
    )


@given(SETS, SETS)
def test_similarity_is_the_smaller_weights_by_the_larger(one: dict[str, float], other: dict[str, float]) -> None:
    made = signed_sets([one, other])
    first, second = np.split(made.shingles, made.offsets[1:-1])
    found = similarity("weighted-jaccard", first, second, 0)
    assert found == pytest.approx(weighted_jaccard(one, other), rel=1e-9)
    assert found == similarity("weighted-jaccard", second, first, 0)
    assert similarity("weighted-jaccard", first, first, 0) == 1.0
    assert made.sizes.tolist() == [len(one), len(other)]


def test_with_weights_of_one_it_is_that_of_sets() -> None:
    """Example 3.1 of MMDS: 3 in common of 8."""
    made = signed_sets([[*"abcde"], [*"cdefgh"]])
    assert similarity("weighted-jaccard", *np.split(made.shingles, made.offsets[1:-1]), 0) == 3 / 8


@pytest.mark.parametrize("seed", range(8))
def test_components_are_the_same_as_often_as_sets_are_similar(seed: int) -> None:
    """Within five standard deviations; one such test in 200,000 fails by chance, had the seeds not been fixed."""
    chance = np.random.default_rng(seed)
    one = {str(k): float(np.exp(chance.normal() * (1 + seed % 3))) for k in range(chance.integers(1, 30))}
    other = {k: w * float(chance.choice([1, 1, chance.uniform(0.3, 3)])) for k, w in one.items()}
    other |= {f"x{k}": float(chance.random()) for k in range(chance.integers(1, 20))}
    expected = weighted_jaccard(one, other)
    made = signed_sets([one, other], **LARGE)
    found = (made.signatures[0] == made.signatures[1]).mean()
    assert abs(found - expected) < 5 * math.sqrt(expected * (1 - expected) / 4096)


def test_a_signature_follows_from_the_weights_alone() -> None:
    """Not from the order, nor from the machine: indexes depend on these numbers."""
    made = signed_sets([{"bread": 1, "milk": 2.5, "é": 0.001}, {"é": 1e-3, "milk": 2.5, "bread": 1.0, "none": 0}])
    assert (made.signatures[0] == made.signatures[1]).all()
    assert (made.fingerprints[0] == made.fingerprints[1]).all()
    assert made.signatures[0, :4].tolist() == [2289885769, 634582067, 833055496, 4154597889]
    scaled = signed_sets([{"a": 1}, {"a": 1000}], **LARGE).signatures
    assert (scaled[0] == scaled[1]).mean() < 0.01


def test_logarithms_and_quantiles() -> None:
    numbers = np.exp(np.random.default_rng(0).uniform(-20, 34, 10_000))
    assert np.abs(logarithms(numbers) - np.log(numbers)).max() < 1e-14
    assert logarithms(np.array([1.0, 2.0, 0.5])).tolist() == [0.0, math.log(2), -math.log(2)]
    gammas, logs = tables()
    assert (np.diff(gammas) > 0).all()
    assert gammas.mean() == pytest.approx(2, abs=1e-3)
    assert gammas.var() == pytest.approx(2, abs=2e-2)
    assert np.abs(np.exp(logs) - gammas).max() < 1e-4


def test_scopes_set_sets_apart() -> None:
    made = signed_sets([{"a": 1, "b": 2}] * 3, np.array([5, 5, 6], np.uint64), **LARGE)
    assert (made.signatures[0] == made.signatures[1]).all()
    assert (made.signatures[0] == made.signatures[2]).mean() < 0.01


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 2.0, "a": 1}, '{"a":1,"b":2}'),
        (["b", "a", "b", 7], '{"7":1,"a":1,"b":2}'),
        ({"é": 0.5, "gone": 0}, '{"é":0.5}'),
        ({"a": np.float64(0.25)}, '{"a":0.25}'),
    ],
)
def test_the_text_of_a_set(value: Any, text: str) -> None:
    assert weights_text(value, "", b"") == text


@pytest.mark.parametrize(
    ("value", "reason", "detail"),
    [
        ("a,b", "wrong_type", "is a string, not an object of weights or a list"),
        (None, "wrong_type", "is null, not an object"),
        ({}, "empty", "has no element with a weight above 0"),
        ([], "empty", "has no element"),
        ({"a": 0}, "empty", "has no element"),
        ({"a": -1}, "bad_weight", "has the weight -1; weights are 0, or from 1e-09 to 1e"),
        ({"a": float("nan")}, "bad_weight", "has the weight nan"),
        ({"a": 10**400}, "bad_weight", "has the weight inf"),
        ({"a": 1e-10}, "bad_weight", "has the weight 1e-10"),
        ({"a": "1"}, "wrong_type", "has a string as a weight, not a number"),
        ({"a": True}, "wrong_type", "has a boolean as a weight"),
        ([1.5], "wrong_type", "holds a floating-point number; only strings and integers can be elements"),
        (range(MOST_ELEMENTS + 1), "too_large", "has 65537 elements, more than 65536"),
    ],
)
def test_what_is_no_set_is_refused(value: Any, reason: str, detail: str) -> None:
    with pytest.raises(Refused) as refused:
        weights_text(value, 'the field "set"', b"1")
    assert refused.value.reason == reason
    assert f'the field "set" {detail}' in refused.value.detail


def test_bands_for_low_thresholds() -> None:
    for threshold, bands, rows in ((0.2, 170, 2), (0.3, 74, 2), (0.5, 52, 3), (0.8, 38, 8)):
        found = Settings(measure="weighted-jaccard", threshold=threshold).banding
        assert (found.bands, found.rows) == (bands, rows)
        assert found.probability(threshold) >= 0.999


def test_more_is_read_and_compared_unless_something_else_is_given() -> None:
    usual, given = (
        Settings(measure="weighted-jaccard"),
        Settings(measure="weighted-jaccard", max_bucket_rows=64, max_candidates=32),
    )
    assert (usual.max_bucket_rows, usual.max_candidates) == (1024, 128)
    assert (given.max_bucket_rows, given.max_candidates) == (64, 32)
    assert Settings().where_not_given(measure="weighted-jaccard").max_candidates == 128
    assert usual.of_index(given.answers, "the index").max_candidates == 32
    assert Settings.load(defaults={"max_candidates": 1000}, measure="weighted-jaccard").max_candidates == 1000
