"""The worked examples of Mining of Massive Datasets, chapter 3, as its lecture decks print them."""

import numpy as np
import pytest
from support.models import distances
from support.models.minhash import as_bag, character_shingles, jaccard

from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import probability
from stream_lsh.text.settings import SigningSettings


def sign_characters(texts: list[str], k: int, bag: bool = False) -> list[set[int]]:
    """The engine's shingle hashes of texts taken as they are."""
    settings = SigningSettings(
        kind="chars", k=k, continuous_k=1, bag=bag, lower=False, space=False, punctuation=False, markup=False,
        nfkc=False, nfc=False, ignorable=False, tokens="unicode", signature_size=4, bands=1, rows=4,
    )  # fmt: skip
    data = [text.encode() for text in texts]
    signed = Signer(settings).sign(b"".join(data), np.cumsum([len(part) for part in data]), want_shingles=True)
    return [
        set(signed.shingles[start:end].tolist())
        for start, end in zip(signed.offsets[:-1], signed.offsets[1:], strict=True)
    ]


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


def test_one_band_and_all_of_them() -> None:
    # The deck cuts digits off: 0.000356 is its 0.00035, so 99.9644 % its 99.965 %, and 4.749 % its 4.74 %.
    assert 1 - probability(0.8, 20, 5) == pytest.approx(0.00035, abs=0.00001)
    assert 100 * probability(0.3, 20, 5) == pytest.approx(4.74, abs=0.01)
    assert band_keys(np.zeros((1, 50), dtype=np.uint32), bands=10, rows=5).shape == (1, 10)
    with pytest.raises(ValueError, match="do not fit"):
        band_keys(np.zeros((1, 49), dtype=np.uint32), bands=10, rows=5)


def test_distances() -> None:
    assert distances.euclidean_distance((2, 7), (6, 4)) == 5
    assert distances.cosine_distance((1, 2, -1), (2, 1, 1)) == pytest.approx(60)
    assert distances.cosine_distance((1, 0), (-1, 0)) == pytest.approx(180)
    assert distances.edit_distance("abcde", "acfdeg") == 3
    assert distances.hamming_distance("10101", "11110") == 3
