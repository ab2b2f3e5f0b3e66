"""The worked examples of Mining of Massive Datasets, chapter 3, as its lecture decks print them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.models import amplify as families
from support.models import distances
from support.models.minhash import (
    UniversalHash,
    agreement,
    as_bag,
    character_shingles,
    jaccard,
    minhash_by_permutation,
    minhash_one_pass,
)

from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signer
from stream_lsh.text.settings import SigningSettings

INF = math.inf


def sign_characters(texts: list[str], k: int, bag: bool = False) -> list[set[int]]:
    """The engine's shingle hashes of texts taken as they are."""
    settings = SigningSettings(
        kind="chars", k=k, continuous_k=1, bag=bag, lower=False, space=False, punctuation=False, markup=False,
        nfkc=False, tokens="unicode", signature_size=4, bands=1, rows=4,
    )  # fmt: skip
    data = [text.encode() for text in texts]
    signed = Signer(settings).sign(b"".join(data), np.cumsum([len(part) for part in data]), want_shingles=True)
    return [
        set(signed.shingles[start:end].tolist())
        for start, end in zip(signed.offsets[:-1], signed.offsets[1:], strict=True)
    ]


def columns_of(rows: list[str]) -> list[set[int]]:
    return [{number for number, row in enumerate(rows) if row[column] == "1"} for column in range(len(rows[0]))]


# Shingles


def test_set_and_bag_of_abcab() -> None:
    shingles = character_shingles("abcab", 2)
    assert set(shingles) == {"ab", "bc", "ca"}
    assert sorted(shingles) == ["ab", "ab", "bc", "ca"]
    assert as_bag(shingles) == {("ab", 0), ("bc", 0), ("ca", 0), ("ab", 1)}
    assert [len(hashes) for hashes in sign_characters(["abcab"], 2)] == [3]
    assert [len(hashes) for hashes in sign_characters(["abcab"], 2, bag=True)] == [4]


def test_a_changed_word_touches_only_shingles_within_k_minus_1() -> None:
    which, that = "The dog which chased the cat", "The dog that chased the cat"
    first, second = set(character_shingles(which, 3)), set(character_shingles(that, 3))
    assert first - second == {"g w", " wh", "whi", "hic", "ich", "ch ", "h c"}
    hashed = sign_characters([which, that], 3)
    assert len(hashed[0] - hashed[1]) == 7
    assert len(hashed[0] & hashed[1]) == len(first & second)


@pytest.mark.parametrize(("k", "similarity"), [(1, 0.6), (5, 0.25), (9, 0.0)])
def test_editorial_and_factorial(k: int, similarity: float) -> None:
    first, second = "editorial", "factorial"
    assert jaccard(set(character_shingles(first, k)), set(character_shingles(second, k))) == pytest.approx(similarity)
    assert jaccard(*sign_characters([first, second], k)) == pytest.approx(similarity)


# Jaccard and minhash


def test_collision_probability_of_a_permutation_is_the_similarity() -> None:
    from itertools import permutations

    columns = columns_of(["11", "10", "01", "11", "00"])
    agreeing = [len(set(minhash_by_permutation(columns, order))) == 1 for order in permutations(range(5))]
    assert sum(agreeing) / len(agreeing) == jaccard(*columns) == 0.5


def test_minhash_by_permutation() -> None:
    columns = columns_of(["1010", "1001", "0101", "0101", "0101", "1010", "1010"])
    permutations = [(2, 3, 7, 6, 1, 5, 4), (4, 2, 1, 3, 6, 7, 5), (3, 4, 7, 2, 6, 1, 5)]
    signature = [minhash_by_permutation(columns, permutation) for permutation in permutations]
    assert signature == [[2, 1, 2, 1], [2, 1, 4, 1], [1, 2, 1, 2]]
    pairs = [(0, 2), (1, 3), (0, 1), (2, 3)]
    assert [jaccard(columns[i], columns[j]) for i, j in pairs] == [0.75, 0.75, 0, 0]
    estimates = [agreement([row[i] for row in signature], [row[j] for row in signature]) for i, j in pairs]
    assert estimates == pytest.approx([2 / 3, 1, 0, 0])


def test_minhash_in_one_pass() -> None:
    matrix = [[int(bit) for bit in row] for row in ("1001", "0010", "0101", "1011", "0010")]
    hashes = [UniversalHash(1, 1, 5, 5), UniversalHash(3, 1, 5, 5)]
    states = list(minhash_one_pass(matrix, hashes))
    assert states == [
        [[1, INF, INF, 1], [1, INF, INF, 1]],
        [[1, INF, 2, 1], [1, INF, 4, 1]],
        [[1, 3, 2, 1], [1, 2, 4, 1]],
        [[1, 3, 2, 1], [0, 2, 0, 0]],
        [[1, 3, 0, 1], [0, 2, 0, 0]],
    ]
    first, fourth = ([row[column] for row in states[-1]] for column in (0, 3))
    assert agreement(first, fourth) == 1.0
    columns = columns_of(["1001", "0010", "0101", "1011", "0010"])
    assert jaccard(columns[0], columns[3]) == pytest.approx(2 / 3)


# Banding


def test_one_band_and_all_of_them() -> None:
    assert families.amplify_and(0.8, 5) == pytest.approx(0.328, abs=0.0005)
    # The deck cuts digits off: 0.000356 is its 0.00035, so 99.9644 % its 99.965 %, and 4.749 % its 4.74 %.
    assert 1 - families.amplify(0.8, 20, 5) == pytest.approx(0.00035, abs=0.00001)
    assert 100 * families.amplify(0.8, 20, 5) == pytest.approx(99.965, abs=0.001)
    assert families.amplify_and(0.3, 5) == pytest.approx(0.00243)
    assert 100 * families.amplify(0.3, 20, 5) == pytest.approx(4.74, abs=0.01)


def test_threshold_and_size() -> None:
    assert families.curve_threshold(20, 5) == pytest.approx(0.549, abs=0.0005)
    assert band_keys(np.zeros((1, 50), dtype=np.uint32), bands=10, rows=5).shape == (1, 10)
    with pytest.raises(ValueError, match="do not fit"):
        band_keys(np.zeros((1, 49), dtype=np.uint32), bands=10, rows=5)
    for similarity in (0.3, 0.8):  # fewer bands: fewer false positives, more false negatives
        assert families.amplify(similarity, 15, 5) < families.amplify(similarity, 20, 5)
    assert 100_000 * 100 * np.dtype(np.uint32).itemsize == 40_000_000


# Distances


def test_distances() -> None:
    assert distances.jaccard_distance({1, 2, 3, 4}, {2, 3, 5, 7}) == pytest.approx(1 - 2 / 6)
    assert distances.euclidean_distance((2, 7), (6, 4)) == 5
    assert distances.cosine_distance((1, 2, -1), (2, 1, 1)) == pytest.approx(60)
    assert distances.cosine_distance((1, 0), (-1, 0)) == pytest.approx(180)
    assert distances.edit_distance("abcde", "acfdeg") == 3
    assert distances.longest_common_subsequence("abcde", "acfdeg") == 4
    assert distances.hamming_distance("10101", "11110") == 3


def test_amplified_family() -> None:
    family = families.minhash_family(0.2, 0.6).amplified(bands=4, rows=4)
    assert (family.d1, family.d2) == (0.2, 0.6)
    assert family.p1 == pytest.approx(0.8785, abs=0.00005)  # MMDS example 3.18
    assert family.p2 == pytest.approx(0.0985, abs=0.00005)
    assert families.hyperplane_family(60, 90).p1 == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="d1 < d2"):
        families.Family(0.6, 0.2, 0.8, 0.4)
