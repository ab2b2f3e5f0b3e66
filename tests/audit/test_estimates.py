"""Intervals: against known values, and how often they hold the truth."""

import random

import pytest

from stream_lsh.audit.estimates import Estimate, stratified, wilson


def test_wilson_has_its_known_values() -> None:
    # Newcombe, Statistics in Medicine 17 (1998), table I: 81/263, 15/148, 0/20, 1/29
    for hits, n, low, high in (
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ):
        assert wilson(hits, n)[1:] == pytest.approx((low, high), abs=1e-4)
    assert wilson(0, 0) == Estimate(None, 0, 1)


def test_a_stratum_without_labels_widens_the_interval() -> None:
    assert stratified([0, 0], [wilson(0, 0)] * 2) == Estimate(None, 0, 1)
    one = wilson(3, 20)
    assert stratified([50, 0], [one, wilson(0, 0)]) == pytest.approx(one)
    half = stratified([50, 50], [one, wilson(0, 0)])
    assert (
        half.share is None and half.low == pytest.approx(one.low / 2) and half.high == pytest.approx(one.high / 2 + 0.5)
    )


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    chance, sizes, shares = random.Random(5), [1000, 3000, 500], [0.3, 0.05, 0.6]
    true = sum(size * share for size, share in zip(sizes, shares, strict=True)) / sum(sizes)
    held = 0
    for _ in range(1000):
        parts = [wilson(sum(chance.random() < share for _ in range(30)), 30) for share in shares]
        found = stratified(sizes, parts)
        held += found.low <= true <= found.high
    assert 930 <= held <= 990
