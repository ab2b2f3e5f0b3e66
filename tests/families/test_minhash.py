"""The readable reference: what it promises, and that the fast signature agrees with it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.models.minhash import (
    PRIME,
    UniversalHash,
    agreement,
    as_bag,
    character_shingles,
    jaccard,
    minhash,
    minhash_by_permutation,
    minhash_one_pass,
    universal_hashes,
    word_shingles,
)
from support.models.signing import make_settings, sign

numbers = st.sets(st.integers(0, 20), min_size=1)


@given(numbers, numbers)
def test_one_pass_is_the_minimum_over_the_elements(first: set[int], second: set[int]) -> None:
    hashes = universal_hashes(8, seed=1, n=23)
    matrix = [[int(row in first), int(row in second)] for row in range(21)]
    *_, last = minhash_one_pass(matrix, hashes)
    assert [row[0] for row in last] == minhash(first, hashes)
    assert [row[1] for row in last] == minhash(second, hashes)


@given(st.sets(st.integers(0, 6), min_size=1), st.permutations(range(7)))
def test_a_permutation_is_a_hash_without_collisions(column: set[int], order: list[int]) -> None:
    assert minhash_by_permutation([column], order) == [min(order[row] for row in column)]


def test_universal_hashing_is_linear_modulo_a_prime() -> None:
    assert UniversalHash(a=3, b=4, p=11, n=5)(9) == (3 * 9 + 4) % 11 % 5
    assert universal_hashes(3, seed=5) == universal_hashes(3, seed=5) != universal_hashes(3, seed=6)
    assert all(0 < h.a < PRIME and 0 <= h.b < PRIME and h.p == PRIME for h in universal_hashes(50, seed=5))


def test_short_texts_are_one_shingle() -> None:
    assert character_shingles("ab", 3) == ["ab"]
    assert word_shingles(["a", "b"], 3) == [("a", "b")]
    assert word_shingles(["a", "b", "c", "d"], 3) == [("a", "b", "c"), ("b", "c", "d")]


def test_jaccard_of_bags_counts_minima_and_maxima() -> None:
    assert jaccard(as_bag("aab"), as_bag("abb")) == 2 / 4
    assert jaccard(as_bag("aab"), as_bag("aab")) == 1
    assert jaccard(set(), set()) == 0


def test_reference_and_engine_estimate_the_same() -> None:
    """Both within 4.9 / sqrt(4 K) of the true Jaccard: each fails by chance with P <= 1e-6 at K = 1024."""
    words = [f"word{number}" for number in range(300)]
    texts = [" ".join(words[:200]), " ".join(words[50:260])]
    shingles = [set(word_shingles(text.split(), 3)) for text in texts]
    truth = jaccard(*shingles)
    place = {shingle: number for number, shingle in enumerate(sorted(shingles[0] | shingles[1]))}
    hashes = universal_hashes(1024, seed=3)
    reference = [minhash({place[shingle] for shingle in one}, hashes) for one in shingles]
    signed = sign(texts, make_settings(signature_size=1024))
    bound = 4.9 / math.sqrt(4 * 1024)
    assert agreement(*reference) == pytest.approx(truth, abs=bound)
    assert agreement(*signed.signatures.tolist()) == pytest.approx(truth, abs=bound)
