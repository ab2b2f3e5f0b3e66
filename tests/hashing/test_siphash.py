"""Keyed hashes: the published vectors, a slow SipHash, and what a key is for."""

import random

import numpy as np
import pytest
from support.models.siphash import siphash

from stream_lsh.hashing.siphash import KEY_BYTES, LAST_ROUNDS, ROUNDS, key_words, siphash128
from stream_lsh.index.rows.keys import KEY_BITS, Hashes, ends_of
from stream_lsh.settings.model import Settings

KEY = bytes(range(16))
VARIANTS = [(ROUNDS, LAST_ROUNDS), (2, 4), (1, 3)]


def hashed(texts: list[bytes], key: bytes = KEY, rounds: int = ROUNDS, last: int = LAST_ROUNDS) -> list[bytes]:
    found = siphash128(b"".join(texts), ends_of(texts), key_words(key), rounds, last)
    return [row.astype("<u8").tobytes() for row in found]


@pytest.mark.parametrize(
    ("size", "expected"), [(0, "a3817f04ba25a8e66df67214c7550293"), (15, "5493e99933b0a8117e08ec0f97cfc3d9")]
)
def test_the_authors_vectors(size: int, expected: str) -> None:
    """Those of SipHash-2-4-128 (vectors.h of the reference implementation), for our code with its rounds too."""
    data = bytes(range(size))
    assert hashed([data], rounds=2, last=4) == [bytes.fromhex(expected)]
    assert siphash(data, KEY, 2, 4) == bytes.fromhex(expected)


@pytest.mark.parametrize(("rounds", "last"), VARIANTS)
def test_many_texts_of_all_lengths_at_once(rounds: int, last: int) -> None:
    chance = random.Random(1)
    texts = [chance.randbytes(size) for size in [*range(70), 255, 256, 257, 1000, 0, 0]]
    chance.shuffle(texts)
    key = chance.randbytes(KEY_BYTES)
    assert hashed(texts, key, rounds, last) == [siphash(text, key, rounds, last) for text in texts]


@pytest.mark.parametrize("size", [0, 8, 15, 17, 32])
def test_a_key_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"a key has 16 bytes, not {size}"):
        key_words(bytes(size))


def test_ids_and_bands_are_hashed_under_the_index_s_key() -> None:
    """Equal ids and signatures give equal keys under one key, and have nothing in common under another."""
    signing = Settings().signing
    ids = [b'"a"', b"1", b'"1"']
    signatures = np.random.default_rng(1).integers(0, 256, (3, signing.signature_size)).astype(np.uint8)
    texts = np.arange(6, dtype=np.uint64).reshape(3, 2) << np.uint64(40)
    found = []
    for key in (KEY, KEY, bytes(16)):
        hashes = Hashes(signing, key)
        hashed_ids = hashes.of_ids(ids)
        assert [row.astype("<u8").tobytes() for row in hashed_ids] == [siphash(id, key, 1, 3) for id in ids]
        keys, starts = hashes.keys(signatures, texts, hashed_ids)
        assert starts.tolist() == [i * (signing.bands + 2) for i in range(4)]
        assert not (keys & np.uint64(2 ** (64 - KEY_BITS) - 1)).any()
        found.append(keys.reshape(3, -1))
    bands = signing.bands
    assert np.array_equal(found[0], found[1])
    assert not set(found[0][:, :bands].flat) & set(found[2][:, :bands].flat)
    assert not set(found[0][:, bands + 1]) & set(found[2][:, bands + 1])
    assert np.array_equal(found[0][:, bands], found[2][:, bands])  # texts come hashed under the key already
