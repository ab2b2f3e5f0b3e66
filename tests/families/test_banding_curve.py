"""The banding curve 1-(1-s^r)^b, measured: the signature is a little steeper.

Bounds are Z = 4.9 standard deviations of a binomial count: an honest one leaves them with P = 1e-6, on one side with
5e-7. Everything is seeded: what passes once passes always.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.long_form import rotating
from support.models.amplify import amplify

from stream_lsh.families.bands import band_keys, key_of_band
from stream_lsh.families.signer import Signer
from stream_lsh.families.tuning import component_bytes
from stream_lsh.index.batch import as_words
from stream_lsh.text.settings import SigningSettings

Z = 4.9


def candidates(keys: np.ndarray) -> np.ndarray:
    """Whether the neighbours 2i and 2i + 1 meet in any band."""
    return np.asarray((keys[0::2] == keys[1::2]).any(axis=1))


def fast_signer(size: int, bands: int, rows: int) -> Signer:
    settings = SigningSettings(
        kind="set", k=1, continuous_k=1, bag=False, lower=False, space=False, punctuation=False, markup=False,
        nfkc=False, tokens="unicode", signature_size=size, bands=bands, rows=rows,
    )  # fmt: skip
    return Signer(settings)


def fast_rate(common: int, alone: int, count: int, size: int, bands: int, rows: int) -> float:
    """The share of candidates among `count` pairs of sets of consecutive numbers."""
    parts = []
    width = common + 2 * alone
    for number in range(count):
        shared = "".join(f"{x}\x1f" for x in range(number * width, number * width + common))
        for half in (0, 1):
            start = number * width + common + half * alone
            parts.append((shared + "\x1f".join(map(str, range(start, start + alone)))).encode())
    ends = np.cumsum([len(part) for part in parts])
    signed = fast_signer(size, bands, rows).sign(b"".join(parts), ends, want_shingles=False)
    return float(candidates(band_keys(signed.signatures, bands, rows)).mean())


@pytest.mark.parametrize(
    ("common", "alone", "count", "size", "bands", "rows"),
    [
        (40, 5, 20_000, 128, 18, 5), (20, 10, 20_000, 156, 52, 3), *rotating([
            (8, 1, 20_000, 128, 18, 5), (160, 20, 10_000, 128, 18, 5), (1600, 200, 800, 128, 18, 5),
            (40, 5, 20_000, 128, 20, 5), (100, 50, 10_000, 156, 52, 3),
        ], 2),
    ],
)  # fmt: skip
def test_fast_signature_is_found_at_the_threshold(
    common: int, alone: int, count: int, size: int, bands: int, rows: int
) -> None:
    """Misses at s = 0.8 (18 x 5, 20 x 5) and 0.5 (52 x 3) are no more than the curve's; P <= 5e-7 a comparison.

    Some 10 misses are expected: the bound is the Poisson quantile of 1 - 5e-7, by Wilson and Hilferty.
    """
    missed = (1 - fast_rate(common, alone, count, size, bands, rows)) * count
    expected = (1 - amplify(common / (common + 2 * alone), bands, rows)) * count
    assert missed <= poisson_bound(expected)


def poisson_bound(mean: float) -> int:
    """The smallest n with P(Poisson(mean) > n) < 5e-7."""
    n, term, total = 0, math.exp(-mean), math.exp(-mean)
    while 1 - total >= 5e-7:
        n += 1
        term *= mean / n
        total += term
    return n


@pytest.mark.parametrize(
    ("common", "alone", "count", "size", "bands", "rows"),
    [
        (60, 70, 10_000, 128, 18, 5), (10, 45, 20_000, 156, 52, 3), *rotating([
            (6, 7, 20_000, 128, 18, 5), (600, 700, 1000, 128, 18, 5), (20, 40, 20_000, 128, 18, 5),
            (60, 70, 10_000, 128, 20, 5),
        ], 2),
    ],
)  # fmt: skip
def test_fast_signature_makes_no_more_false_candidates(
    common: int, alone: int, count: int, size: int, bands: int, rows: int
) -> None:
    """s = 0.3 and 0.2 (18 x 5, 20 x 5), 0.1 (52 x 3): at most the curve's share; one-sided, P <= 5e-7 a comparison.

    Components of 8 or 16 bits agree by accident too.
    """
    similarity, values = common / (common + 2 * alone), 1 << 8 * component_bytes(rows)
    expected = amplify(similarity + (1 - similarity) / values, bands, rows)
    found = fast_rate(common, alone, count, size, bands, rows)
    assert found < expected + Z * math.sqrt(expected * (1 - expected) / count)


def test_keys_come_from_the_stored_components_alone() -> None:
    """Rows read back give the same keys; another component changes its band only."""
    signer = fast_signer(64, 10, 5)
    signed = signer.sign(b"a\x1fb\x1fc", np.array([5]), want_shingles=False)
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
