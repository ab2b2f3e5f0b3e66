"""Which shingles are keys, and how many of them two texts share: arithmetic against throws of dice."""

import math

import numpy as np
import pytest

from stream_lsh import Settings
from stream_lsh.families.containment import needed, probability, sampling_of, slack
from stream_lsh.families.sampled import SampledSigner, sampled


@pytest.mark.parametrize(
    ("share", "shingles", "threshold", "sampling"),
    [(0.8, 32, 0.8, 4), (0.5, 32, 0.5, 2), (0.4, 100, 0.8, 4), (0.7, 300, 0.8, 3), (1.0, 10, 0.9, 8)],
)
def test_probability_is_that_of_throws(share: float, shingles: int, threshold: float, sampling: int) -> None:
    throws, chance = 200_000, np.random.default_rng(1)
    common = round(share * shingles)
    inside = chance.binomial(common, 1 / sampling, throws)
    keys = inside + chance.binomial(shingles - common, 1 / sampling, throws)
    least = np.maximum(1, np.ceil(threshold * keys - slack(threshold, sampling) * np.sqrt(keys) - 1e-9))
    found = float((inside >= least).mean())
    expected = probability(share, shingles, threshold, sampling)
    # Of a share of so many throws the deviation is below five of its standard ones, but once in a million.
    assert abs(found - expected) <= 5 * math.sqrt(max(expected * (1 - expected), 1 / throws) / throws)


def test_every_shingle_as_a_key_is_certain() -> None:
    for threshold in (0.1, 0.5, 0.8, 1.0):
        for shingles in (1, 7, 100):
            common = math.ceil(threshold * shingles - 1e-9)
            assert probability(common / shingles, shingles, threshold, 1) == pytest.approx(1)
            assert needed(shingles, threshold, 1) == max(1, common)
            if common > 1:
                assert probability((common - 1) / shingles, shingles, threshold, 1) == 0


def test_the_sampling_keeps_the_promise() -> None:
    for threshold in (0.3, 0.5, 0.8, 0.95):
        for least in (1, 8, 32, 200):
            chosen = sampling_of(threshold, 0.999, least)
            share = math.ceil(threshold * least - 1e-9) / least
            assert chosen == 1 or probability(share, least, threshold, chosen) >= 0.999 - 1e-9
            assert chosen == 64 or probability(share, least, threshold, chosen + 1) < 0.999
    assert [Settings(measure="containment", threshold=t).sampled for t in (0.5, 0.8)] == [2, 4]


def test_keys_are_a_share_and_the_same_wherever_the_shingle_is() -> None:
    signer = SampledSigner(Settings(measure="containment", shingles="words:3").signing)
    words = [f"w{k}" for k in range(20_000)]
    texts = [" ".join(words).encode(), " ".join(words[100:1000]).encode()]
    shingles, offsets = signer.shingle(b"".join(texts), np.cumsum([len(text) for text in texts]))
    nothing = np.zeros(2, np.uint64)
    keys, starts = sampled(shingles, offsets, nothing, np.uint64(5), 4)
    assert abs(starts[1] - 20_000 / 4) < 5 * math.sqrt(20_000 * 3 / 16)
    assert set(keys[starts[1] :].tolist()) < set(keys[: starts[1]].tolist())
    # Under another secret, and with a scope, there are as many, and all of them are others.
    for secret, scopes in ((6, nothing), (5, np.array([1, 2], np.uint64))):
        others, begins = sampled(shingles, offsets, scopes, np.uint64(secret), 4)
        assert begins.tolist() == starts.tolist()
        assert not {*others.tolist()} & {*keys.tolist()}
    every, _ = sampled(shingles, offsets, nothing, np.uint64(5), 1)
    assert len(every) == len(shingles)
