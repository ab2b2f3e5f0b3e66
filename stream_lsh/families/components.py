"""The layout of signatures: components of 1, 8, 16 or 32 bits, and the bits that each key is made of."""

from __future__ import annotations

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_lsh.families.measure import OF_BITS, STORY_TERMS
from stream_lsh.families.tuning import component_bytes
from stream_lsh.text.settings import SigningSettings


class Components(NamedTuple):
    """A signature: `columns` numbers of the type `kind`, which hold components of `bits` bits: K, and those of the
    scope."""

    columns: int
    kind: np.dtype[Any]
    bits: int

    @property
    def octets(self) -> int:
        """Bytes of a signature."""
        return self.columns * self.kind.itemsize

    @property
    def words(self) -> int:
        """64-bit words of a signature, the last one padded with zeros."""
        return -(-self.octets // 8)


def components_of(signing: SigningSettings) -> Components:
    """The layout of the signatures of an index."""
    if signing.measure in OF_BITS or signing.measure == "levenshtein":
        return Components((signing.signature_size + signing.scope_bits) // 8, np.dtype(np.uint8), 1)
    if signing.measure == "tf-idf":
        return Components(STORY_TERMS, np.dtype(np.uint32), 32)
    octets = 1 if signing.measure == "containment" else component_bytes(signing.rows)
    return Components(signing.signature_size, np.dtype(f"u{octets}"), 8 * octets)


def masks_of(signing: SigningSettings) -> NDArray[np.uint64]:
    """The bits of a signature that each key is made of: uint64[b, words]; [0, 0] where keys are bands of numbers, or
    are in the signature."""
    if signing.measure not in OF_BITS:
        return np.zeros((0, 0), np.uint64)
    bits = np.zeros((signing.bands, 64 * components_of(signing).words), np.bool_)
    if signing.measure == "cosine":
        for band in range(signing.bands):
            bits[band, band * signing.rows : (band + 1) * signing.rows] = True
    else:
        blocks = np.arange(signing.dimensions) % (int(signing.max_distance) + signing.rows)  # neighbours are correlated
        choices = combinations(range(int(signing.max_distance) + signing.rows), signing.rows)
        for key, chosen in enumerate(choices):
            bits[key, : signing.dimensions] = np.isin(blocks, chosen)
    bits[:, signing.signature_size : signing.signature_size + signing.scope_bits] = True
    return np.packbits(bits, axis=1, bitorder="little").view("<u8").astype(np.uint64)
