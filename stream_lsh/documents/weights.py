"""Sets whose elements have weights, and the text that represents one: equal sets have equal texts.

The text is JSON, an object of weights ordered by element: {"bread":1,"milk":2.5}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from numbers import Real

from stream_lsh.documents.python_values import elements_of, unboxed
from stream_lsh.documents.refused import Refused, kind_of

MOST_ELEMENTS = 65_536
LEAST, MOST = 1e-9, 1e15
"""Least and largest weight of an element. Within these bounds sums lose no precision that matters."""


def weights_text(value: object, what: str, id: bytes) -> str:
    """The text of weights by element, or of a list of elements (strings, or integers as decimals), where an element's
    weight is the number of times that it is listed. An element with weight 0 is not in the set.

    Raises:
        Refused: wrong_type, bad_weight, too_large or empty.
    """
    if isinstance(value, Mapping):
        weights = {element_text(element, what, id): _weight(weight, what, id) for element, weight in value.items()}
    elif (elements := elements_of(value)) is not None:
        weights = {}
        for given in elements:
            element = element_text(given, what, id)
            weights[element] = weights.get(element, 0.0) + 1.0
    else:
        raise Refused("wrong_type", f"{what} is {kind_of(value)}, not an object of weights or a list", id, value)
    there = {element: _plain(weights[element]) for element in sorted(weights) if weights[element] > 0}
    if not there:
        raise Refused("empty", f"{what} has no element with a weight above 0", id)
    if len(there) > MOST_ELEMENTS:
        raise Refused("too_large", f"{what} has {len(there)} elements, more than {MOST_ELEMENTS}", id)
    return json.dumps(there, ensure_ascii=False, separators=(",", ":"))


def element_text(given: object, what: str, id: bytes) -> str:
    """An element as a text. Raises Refused: it is no string and no integer."""
    value = given if isinstance(given, str) else unboxed(given)
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if value.bit_length() < 14_000 else "1" * 4300
    if not isinstance(value, str):
        detail = f"{what} holds {kind_of(value)}; only strings and integers can be elements"
        raise Refused("wrong_type", detail, id, value)
    return value


def _weight(given: object, what: str, id: bytes) -> float:
    value = unboxed(given)
    if isinstance(value, bool) or not isinstance(value, Real):
        raise Refused("wrong_type", f"{what} has {kind_of(value)} as a weight, not a number", id, value)
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if weight != 0 and not LEAST <= weight <= MOST:
        raise Refused(
            "bad_weight", f"{what} has the weight {weight:g}; weights are 0, or from {LEAST:g} to {MOST:g}", id
        )
    return weight


def _plain(weight: float) -> int | float:
    """2 instead of 2.0."""
    return int(weight) if weight == int(weight) else weight
