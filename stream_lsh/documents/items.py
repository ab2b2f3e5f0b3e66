"""Documents that are not texts: vectors and bit vectors, checked and written as a text that represents each.

Equal items have equal texts, so that whatever stores, sends or hashes texts can do so with items. A vector is its
numbers as float32 (little-endian) in base64, a bit vector is hexadecimal.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Set
from dataclasses import dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal

from stream_lsh.documents.python_values import elements_of, unboxed
from stream_lsh.documents.refused import Refused, kind_of
from stream_lsh.documents.weights import weights_text

if TYPE_CHECKING:
    import numpy as np

_HEX = frozenset("0123456789abcdefABCDEF")
_PLAIN = frozenset((int, float))
_MOST_DIGITS = 4000  # of an integer; the JSON reader cuts longer ones


@dataclass(frozen=True)
class Item:
    """What a field has instead of a text.

    Attributes:
        name: of the field.
        kind: numbers, bits, or elements with weights.
        dimensions: number of numbers or bits.
        directed: a vector of zeros is rejected, because it has no direction.
    """

    name: str
    kind: Literal["vector", "bits", "set"]
    dimensions: int
    directed: bool = False

    @property
    def plural(self) -> str:
        """The name for messages, in plural."""
        return {"bits": "bit vectors", "set": "sets"}.get(self.kind, "vectors")

    @property
    def single(self) -> str:
        """The name for messages."""
        return {"bits": "the bit vector", "set": "the set"}.get(self.kind, "the vector")

    def text(self, value: object, what: str, id: bytes) -> str:
        """The text of a value that was parsed from JSON, or is a sequence of numbers.

        Args:
            what: the field, for messages.

        Raises:
            Refused: wrong_type, bad_vector, bad_bits, bad_weight or empty.
        """
        if self.kind == "set":
            return weights_text(value, what, id)
        if self.kind == "bits":
            return _bits(value, self.dimensions, what, id)
        numbers = _numbers(value, self.dimensions, what, id)
        if self.directed and not numbers.any():
            raise Refused("empty", f"{what} is a vector of zeros, which has no direction", id)
        return base64.b64encode(numbers.tobytes()).decode("ascii")


def item_of(measure: str, dimensions: int, vector: str | None, bits: str | None, set: str | None) -> Item | None:
    """What documents of a measure have instead of a text, in fields with these names; None for texts."""
    if measure in ("jaccard", "levenshtein", "containment", "tf-idf"):
        return None
    if measure == "weighted-jaccard":
        return Item(set or "set", "set", 0)
    if measure == "hamming":
        return Item(bits or "bits", "bits", dimensions)
    return Item(vector or "vector", "vector", dimensions, directed=measure == "cosine")


def _numbers(value: object, dimensions: int, what: str, id: bytes) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    import numpy as np  # here, because settings import this module at each start of a command

    if isinstance(value, str):
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Refused("bad_vector", f"{what} is a string, but no base64", id) from None
        if len(raw) != 4 * dimensions:
            raise Refused("bad_vector", f"{what} has {len(raw)} bytes, not 4 for each of {dimensions} numbers", id)
        numbers = np.frombuffer(raw, "<f4").astype(np.float32)
    elif (
        isinstance(value, np.ndarray)
        and type(value).__module__ == "numpy"
        and value.ndim == 1
        and value.dtype.kind in "fiu"
    ):
        _counted(len(value), dimensions, what, id)
        with np.errstate(over="ignore"):
            numbers = value.astype(np.float32)
    elif (elements := elements_of(value)) is not None and not isinstance(value, Set):  # sets have no order
        _counted(len(elements), dimensions, what, id)
        for number in elements if not _PLAIN.issuperset(map(type, elements)) else ():
            if isinstance(number, bool) or not isinstance(number, Real):
                detail = f"{what} holds {kind_of(number)}; only numbers can be elements"
                raise Refused("wrong_type", detail, id, number)
        try:
            with np.errstate(over="ignore"):
                numbers = np.array(elements, np.float64).astype(np.float32)
        except (OverflowError, ValueError):
            raise Refused("bad_vector", f"{what} holds a number that is too large for float32", id) from None
    else:
        raise Refused("wrong_type", f"{what} is {kind_of(value)}, not a list of numbers or their base64", id, value)
    if not np.isfinite(numbers).all():
        raise Refused("bad_vector", f"{what} holds a number that is NaN, infinite, or too large for float32", id)
    return numbers + np.float32(0)  # zero without a sign


def _counted(found: int, dimensions: int, what: str, id: bytes) -> None:
    if found != dimensions:
        raise Refused("bad_vector", f"{what} has {found} numbers, not {dimensions}", id)


def _bits(given: object, dimensions: int, what: str, id: bytes) -> str:
    value = unboxed(given)
    if isinstance(value, (bytes, bytearray)):
        raw = bytes(value)
    elif isinstance(value, Integral) and not isinstance(value, bool):
        value = int(value)
        if abs(value) >= 10**_MOST_DIGITS:
            raise Refused("bad_bits", f"{what} is an integer of more than {_MOST_DIGITS} digits; give hexadecimal", id)
        if not -(1 << (dimensions - 1)) <= value < 1 << dimensions:
            raise Refused("bad_bits", f"{what} is an integer of more than {dimensions} bits", id)
        raw = (value % (1 << dimensions)).to_bytes(dimensions // 8, "big")  # a negative one as databases store it
    elif isinstance(value, str):
        digits = value.removeprefix("0x")
        if digits and _HEX.issuperset(digits):  # even if it could be base64 of the right length
            if len(digits) != dimensions // 4:
                raise Refused(
                    "bad_bits", f"{what} has {len(digits)} hexadecimal digits, not {dimensions // 4}; what consists of "
                    "such digits is never taken for base64", id
                )  # fmt: skip
            return digits.lower()
        try:
            raw = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raw = b""
        if len(raw) != dimensions // 8:
            raise Refused("bad_bits", f"{what} is neither hexadecimal nor base64 of {dimensions} bits", id)
    else:
        raise Refused("wrong_type", f"{what} is {kind_of(value)}, not hexadecimal, base64 or an integer", id, value)
    if len(raw) != dimensions // 8:
        raise Refused("bad_bits", f"{what} has {8 * len(raw)} bits, not {dimensions}", id)
    return raw.hex()


def length_of(kind: Literal["vector", "bits"], dimensions: int) -> int:
    """Bytes of the text of an item."""
    return dimensions // 4 if kind == "bits" else 4 * math.ceil(4 * dimensions / 3)
