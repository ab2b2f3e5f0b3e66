"""Statistical tests of the fast signature, each with the probability that it fails by chance.

The inputs are sets of consecutive numbers written in decimal: as little random as real tokens are, so that the hashing
is tested too. Everything is deterministic: what passes once passes always, until the hashing changes.

Bounds are Z = 4.9 standard deviations: an honest estimator leaves them on one side or the other with a probability of
1e-6 (normal approximation). Some 150 comparisons: a change of seeds makes any of them fail by chance with about 1.5e-4.
"""

import math

import numpy as np
import pytest
from support.long_form import rotating
from support.models.signing import make_settings

from stream_lsh.families.bands import band_keys, key_of_band
from stream_lsh.families.signer import Signed, Signer
from stream_lsh.families.tuning import component_bytes, probability
from stream_lsh.index.batch import as_words

K = 128
Z = 4.9


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
    """Each with P <= 1e-6: the mean, and the variance if it is that of K independent minhashes, s(1-s)/K."""
    estimates = agreements(sign_sets(pairs_with(common, first, second, count)))
    similarity = common / (common + first + second)
    binomial = similarity * (1 - similarity) / K
    assert abs(estimates.mean() - similarity) < Z * math.sqrt(binomial / count)
    # The factor that a sample variance stays below with P = 1 - 1e-6: chi-square by Wilson and Hilferty (1931).
    step = 2 / (9 * (count - 1))
    assert estimates.var(ddof=1) < binomial * float((1 - step + 4.75 * math.sqrt(step)) ** 3)


@pytest.mark.parametrize("size", [1, 2, 10, 100])
def test_disjoint_sets_never_agree(size: int) -> None:
    """One against one above all; of 2000 pairs * 128 components P = 6e-5 a size: one is allowed, 2e-9."""
    signed = sign_sets(pairs_with(0, size, size, 2000))
    assert int((signed.signatures[0::2] == signed.signatures[1::2]).sum()) <= 1


@pytest.mark.parametrize("size", [1, 3, 10, 40, 200])
def test_components_are_independent_enough(size: int) -> None:
    """No more often together than independent ones (s = 1/3): covariances at most Z deviations above 0, P <= 1e-6."""
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


# The banding curve 1-(1-s^r)^b: the signature is a little steeper.


def candidates(common: int, alone: int, count: int, size: int, bands: int, rows: int) -> float:
    """The share of pairs that meet in a band."""
    signed = sign_sets(pairs_with(common, alone, alone, count), rows, bands, size)
    keys = band_keys(signed.signatures, bands, rows)
    return float((keys[0::2] == keys[1::2]).any(axis=1).mean())


@pytest.mark.parametrize(
    ("common", "alone", "count", "size", "bands", "rows"),
    [
        (40, 5, 20_000, 128, 18, 5), (20, 10, 20_000, 156, 52, 3), *rotating([
            (8, 1, 20_000, 128, 18, 5), (160, 20, 10_000, 128, 18, 5), (1600, 200, 800, 128, 18, 5),
            (40, 5, 20_000, 128, 20, 5), (100, 50, 10_000, 156, 52, 3),
        ], 2),
    ],
)  # fmt: skip
def test_what_is_at_the_threshold_is_found_as_often_as_the_curve_says(
    common: int, alone: int, count: int, size: int, bands: int, rows: int
) -> None:
    """At s = 0.8 and 0.5 misses are at most the Poisson quantile of 1 - 5e-7 (Wilson and Hilferty) of the curve's."""
    missed = (1 - candidates(common, alone, count, size, bands, rows)) * count
    expected = (1 - probability(common / (common + 2 * alone), bands, rows)) * count
    # The smallest n with P(Poisson(mean) > n) < 5e-7.
    n, term, total = 0, math.exp(-expected), math.exp(-expected)
    while 1 - total >= 5e-7:
        n += 1
        term *= expected / n
        total += term
    assert missed <= n


@pytest.mark.parametrize(
    ("common", "alone", "count", "size", "bands", "rows"),
    [
        (60, 70, 10_000, 128, 18, 5), *rotating([
            (10, 45, 20_000, 156, 52, 3), (6, 7, 20_000, 128, 18, 5), (600, 700, 1000, 128, 18, 5),
            (20, 40, 20_000, 128, 18, 5), (60, 70, 10_000, 128, 20, 5),
        ], 2),
    ],
)  # fmt: skip
def test_there_are_no_more_false_candidates_than_the_curve_says(
    common: int, alone: int, count: int, size: int, bands: int, rows: int
) -> None:
    """At s = 0.3, 0.2 and 0.1 at most the curve's share (8 and 16 bits agree by accident, too); P <= 5e-7 each."""
    similarity, values = common / (common + 2 * alone), 1 << 8 * component_bytes(rows)
    expected = probability(similarity + (1 - similarity) / values, bands, rows)
    found = candidates(common, alone, count, size, bands, rows)
    assert found < expected + Z * math.sqrt(expected * (1 - expected) / count)


def test_keys_come_from_the_stored_components_alone() -> None:
    """Rows read back give the same keys; another component changes its band only."""
    signed = sign_sets([range(3)], 5, 10, 64)
    keys = band_keys(signed.signatures, 10, 5)
    changed = signed.signatures.copy()
    changed[0, 12] ^= 1
    different = (band_keys(changed, 10, 5) != keys)[0]
    assert different.tolist() == [band == 2 for band in range(10)]
    assert np.array_equal(band_keys(signed.signatures.astype(np.uint32), 10, 5), keys)
    assert not (band_keys(signed.signatures, 10, 5, 1) == keys).any()


@pytest.mark.parametrize(("kind", "rows"), [(np.uint8, 5), (np.uint16, 3), (np.uint32, 2)])
def test_a_key_of_a_row_is_that_of_its_signature(kind: type[np.unsignedinteger], rows: int) -> None:
    """Rows have signatures as words, in which components of 8, 16 and 32 bits stand one after the other."""
    signatures = np.random.default_rng(1).integers(0, 1 << 8 * np.dtype(kind).itemsize, (20, 61), kind)
    expected, words = band_keys(signatures, 12, rows, np.uint64(77)), as_words(signatures)
    size, bits = words.shape[1], np.int64(8 * np.dtype(kind).itemsize)
    for i in range(20):
        found = [key_of_band(words.reshape(-1), i * size, k, np.int64(rows), bits, np.uint64(77)) for k in range(12)]
        assert found == expected[i].tolist()
