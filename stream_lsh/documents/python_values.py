"""Conversion of Python values, including NumPy's, to those that JSON has."""

from __future__ import annotations

from collections.abc import Sequence, Set


def unboxed(value: object) -> object:
    """The Python value of a NumPy scalar or of an array without dimensions. NumPy times and all other values are
    returned unchanged."""
    if type(value).__module__ != "numpy":
        return value
    import numpy as np  # here, because it is slow, and a caller with such a value has imported it

    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value[()]
    times = (np.datetime64, np.timedelta64)  # some of them would become integers
    return value.item() if isinstance(value, np.generic) and not isinstance(value, times) else value


def elements_of(value: object) -> Sequence[object] | None:
    """The elements of a list, a tuple, a set, or an array of one dimension; None for anything else, including texts and
    bytes."""
    if isinstance(value, Sequence):
        return None if isinstance(value, (str, bytes, bytearray, memoryview)) else value
    if isinstance(value, Set):
        return list(value)
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 0) == 1:
        elements: list[object] = value.tolist()  # type: ignore[attr-defined]
        return elements
    return None
