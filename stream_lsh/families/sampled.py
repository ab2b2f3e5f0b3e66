"""Signing for `containment`: the shingles of texts, and their scope in place of a signature."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.containment import SIGNATURE_BYTES
from stream_lsh.families.signer import Signed, Signer, Signs, set_apart
from stream_lsh.hashing.bits import SEED_BAND, SEED_MIX, fold_multiply
from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.siphash import KEY_BYTES
from stream_lsh.text.settings import SigningSettings

SCOPE_BYTES = 8
_SAMPLED = 1 << 16  # range of the bits of a shingle's hash that decide whether it is a key
_LOW = np.uint64(_SAMPLED - 1)


class SampledSigner(Signs):
    """Signs texts whose keys are sampled shingles. Threads may share one.

    A signature has two words: one that is zero without a scope, and the number of the document's keys, which is filled
    in where the index's key is available (`index.batch`).
    """

    def __init__(self, settings: SigningSettings, key: bytes = bytes(KEY_BYTES)) -> None:
        super().__init__(settings, key)
        self._signer = Signer(replace(settings, signature_size=1, bands=1, rows=1), key)

    def _sign(self, texts: bytes, ends: NDArray[np.int64], *, want_shingles: bool, want_signatures: bool) -> Signed:
        signed = self._signer.sign(texts, ends, want_shingles=want_shingles, want_signatures=False)
        return replace(signed, signatures=np.zeros((len(ends), SIGNATURE_BYTES * want_signatures), np.uint8))

    def _set_apart(self, signed: Signed, scopes: NDArray[np.uint64]) -> None:
        set_apart(signed.signatures[:, :SCOPE_BYTES], signed.fingerprints, scopes)
        signed.signatures[signed.sizes == 0] = 0


@njit(allocates=True)
def sampled(shingles, offsets, scopes, secret, sampling):  # type: ignore[no-untyped-def]
    """The keys of n documents: the hashes of one shingle in `sampling`, with the index's secret and each document's
    scope. Which shingles are chosen depends on neither, because verdicts depend on it. Returns uint64[k] and the
    offsets int64[n + 1]."""
    bound, n = np.uint64((_SAMPLED + sampling - 1) // sampling), len(offsets) - 1
    out, starts, there = np.empty(len(shingles), np.uint64), np.empty(n + 1, np.int64), np.int64(0)
    starts[0] = 0
    for i in range(n):
        state = secret ^ SEED_BAND ^ scopes[i]
        for k in range(offsets[i], offsets[i + 1]):
            out[there] = fold_multiply(shingles[k] ^ state, SEED_MIX)
            there += np.int64((shingles[k] & _LOW) < bound)
        starts[i + 1] = there
    return out[:there], starts
