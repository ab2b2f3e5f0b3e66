"""Statistical tests of the fast signature, each with the probability that it fails by chance.

The inputs are sets of consecutive numbers written in decimal: as little random as real tokens are, so that the hashing
is tested too. Everything is deterministic: what passes once passes always, until the hashing changes.

Bounds are Z = 4.9 standard deviations: an honest estimator leaves them on one side or the other with a probability of
1e-6 (normal approximation). Some 150 comparisons: a change of seeds makes any of them fail by chance with about 1.5e-4.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.long_form import rotating
from support.models.signing import make_settings

from stream_lsh.families.bands import band_keys
from stream_lsh.families.signer import Signed, Signer

K = 128
Z = 4.9


def upper_variance(degrees: int) -> float:
    """The factor that a sample variance stays below with P = 1 - 1e-6: chi-square by Wilson and Hilferty (1931)."""
    step = 2 / (9 * degrees)
    return float((1 - step + 4.75 * math.sqrt(step)) ** 3)


def sign_sets(sets: list[range | list[int]], rows: int = 1, bands: int = 1, size: int = K) -> Signed:
    """rows = 1 or 2 keep 32 bits a component, so that chance agreement (2e-10) is no matter."""
    data = ["\x1f".join(map(str, one)).encode() for one in sets]
    settings = make_settings("set", rows=rows, bands=bands, signature_size=size)
    return Signer(settings).sign(b"".join(data), np.cumsum([len(one) for one in data]), want_shingles=False)


def pairs_with(common: int, first: int, second: int, count: int, start: int = 0) -> list[list[int] | range]:
    """2 * count sets of fresh numbers: each pair has `common` numbers in both, `first` and `second` in one only."""
    sets: list[list[int] | range] = []
    width = common + first + second
    for number in range(count):
        base = start + number * width
        sets.append(range(base, base + common + first))
        sets.append([*range(base, base + common), *range(base + common + first, base + width)])
    return sets


def agreements(signed: Signed) -> np.ndarray:
    """The share of equal components of each pair of neighbours."""
    return np.asarray((signed.signatures[0::2] == signed.signatures[1::2]).mean(axis=1))


@pytest.mark.parametrize(
    ("common", "first", "second", "count"),
    [
        (1, 0, 1, 3000), (1, 1, 1, 3000), (2, 1, 0, 3000), (10, 10, 10, 3000), (20, 80, 0, 2000), (64, 32, 32, 2000),
        (300, 350, 350, 600), *rotating([
            (1, 0, 4, 3000), (1, 0, 9, 3000), (5, 2, 3, 3000), (8, 1, 1, 3000), (30, 5, 5, 2000), (100, 14, 14, 2000),
            (128, 64, 64, 1500), (160, 20, 20, 1500), (60, 70, 70, 1500), (240, 30, 30, 1000), (800, 100, 100, 600),
            (100, 0, 900, 600), (5000, 2500, 2500, 120), (8000, 1000, 1000, 120), (2000, 4000, 4000, 120),
        ], 4),
    ],
)  # fmt: skip
def test_unbiased_and_no_wider_than_minhash(common: int, first: int, second: int, count: int) -> None:
    """Mean: fails by chance with P <= 1e-6. Variance: P <= 1e-6 if it is that of K independent minhashes, s(1-s)/K.

    The mean of `count` estimates has a standard deviation of at most sqrt(s(1-s) / (K count)).
    """
    estimates = agreements(sign_sets(pairs_with(common, first, second, count)))
    similarity = common / (common + first + second)
    binomial = similarity * (1 - similarity) / K
    assert abs(estimates.mean() - similarity) < Z * math.sqrt(binomial / count)
    assert estimates.var(ddof=1) < binomial * upper_variance(count - 1)


@pytest.mark.parametrize("size", [1, 2, 10, 100])
def test_disjoint_sets_never_agree(size: int) -> None:
    """One against one above all: without the second half of the rounds, tiny sets agree by accident.

    2000 pairs * 128 components of 32 bits: a false alarm has P = 6e-5 for each size; allowed is one: 2e-9.
    """
    signed = sign_sets(pairs_with(0, size, size, 2000))
    assert int((signed.signatures[0::2] == signed.signatures[1::2]).sum()) <= 1


@pytest.mark.parametrize("size", [1, 2, 10, 100])
def test_equal_sets_always_agree(size: int) -> None:
    """Certain: the order of the elements does not matter."""
    forward = [list(range(number, number + size)) for number in range(50)]
    sets = [one for numbers in forward for one in (numbers, numbers[::-1])]
    assert bool((agreements(sign_sets(sets)) == 1).all())


@pytest.mark.parametrize("size", [1, 3, 10, 40, 200])
def test_components_are_independent_enough(size: int) -> None:
    """Neighbouring and distant components agree together no more often than independent ones would (s = 1/3).

    Covariances of agreement at component i and j, averaged over the pairs of a distance: at most Z standard deviations
    above 0, P <= 1e-6 a distance, 8 distances. Below 0 is welcome: that is what makes the variance small.
    """
    signed = sign_sets(pairs_with(size, size, size, 4000))
    equal = (signed.signatures[0::2] == signed.signatures[1::2]) - 1 / 3
    for distance in (1, 2, 3, 4, 8, 16, 32, 64):
        products = (equal[:, :-distance] * equal[:, distance:]).mean(axis=1)
        assert products.mean() < Z * products.std() / math.sqrt(len(products))


@pytest.mark.parametrize("size", [1, 5, 100, 1000])
def test_truncated_components_are_uniform(size: int) -> None:
    """Each bit of the stored 16 is set in half of the components: Z sd, 16 bits, P <= 1.6e-5 (sets are disjoint)."""
    count = 500
    signed = sign_sets([range(number * size, number * size + size) for number in range(count)], rows=3)
    assert signed.signatures.dtype == np.uint16
    total = signed.signatures.size
    for bit in range(16):
        ones = int((signed.signatures >> np.uint16(bit) & np.uint16(1)).sum())
        assert abs(ones - total / 2) < Z * math.sqrt(total / 4)


def test_corrected_estimate_of_16_bits_is_unbiased() -> None:
    """(agree - 2^-16) / (1 - 2^-16); P <= 1e-6."""
    count, similarity = 2000, 0.25
    data = sign_sets(pairs_with(50, 75, 75, count), rows=3)
    estimates = (agreements(data) - 2**-16) / (1 - 2**-16)
    assert abs(estimates.mean() - similarity) < Z * math.sqrt(similarity * (1 - similarity) / K / count)


def test_shingle_hashes_and_keys_are_uniform_in_every_bit() -> None:
    """And any two bits are independent: 64 + 2016 comparisons each at 6 sd (2e-9): P <= 1e-5 in all."""
    settings = make_settings("set", bands=18, rows=5)
    data = "\x1f".join(map(str, range(60_000))).encode()
    signed = Signer(settings).sign(data, np.array([len(data)]), want_shingles=True)
    numbers = [str(number).encode() for number in range(4_000)]
    ends = np.cumsum([len(number) for number in numbers])
    keys = band_keys(Signer(settings).sign(b"".join(numbers), ends, want_shingles=False).signatures, 18, 5)
    for values in (signed.shingles, keys.ravel()):
        bits = np.unpackbits(values.view(np.uint8)).reshape(-1, 64).astype(np.float64) * 2 - 1
        correlation = bits.T @ bits / len(bits)
        assert np.abs(bits.mean(axis=0)).max() < 6 / math.sqrt(len(bits))
        assert np.abs(correlation - np.eye(64)).max() < 6 / math.sqrt(len(bits))


def test_band_keys_of_different_bands_never_meet() -> None:
    """4,000 keys of 3 components of 16 bits in each of 18 bands: a collision by chance has P = 5e-7."""
    numbers = [str(number).encode() for number in range(4_000)]
    ends = np.cumsum([len(number) for number in numbers])
    signed = Signer(make_settings("set", rows=3)).sign(b"".join(numbers), ends, want_shingles=False)
    keys = band_keys(signed.signatures, 18, 3)
    assert len(np.unique(keys)) == keys.size


def test_no_collisions_of_similar_shingles() -> None:
    """270,000 word shingles of a small vocabulary, in all orders: a collision by chance has P = 2e-9."""
    words = [f"{letter}{number}" for letter in "ab" for number in range(10)] + ["a", "b", "aa", "ab", "ba", "bb"]
    texts = [f"{x} {y} {z}" for x in words for y in words for z in words]
    texts += [f"{x}0 {y}1 {z}" for x in range(500) for y in range(500) for z in "c"]
    data = [text.encode() for text in texts]
    settings = make_settings(signature_size=2, bands=1, rows=2)
    signed = Signer(settings).sign(b"".join(data), np.cumsum([len(one) for one in data]), want_shingles=True)
    assert bool((signed.sizes == 1).all())
    assert len(np.unique(signed.shingles)) == len(set(texts))
