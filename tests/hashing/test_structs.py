"""Structs: what kernels and Python see of each other's numbers and arrays, and what is refused."""

import gc
from typing import Any

import numpy as np
import pytest

from stream_lsh.hashing.kernels import njit
from stream_lsh.hashing.structs import (
    Bytes,
    Flag,
    Flags,
    Halves,
    Number,
    Numbers,
    Numbers2,
    Real,
    Reals,
    Struct,
    Unsigned,
    Words,
    Words2,
)


class Everything(Struct):
    words: Words
    words2: Words2
    halves: Halves
    octets: Bytes
    flags: Flags
    numbers: Numbers
    numbers2: Numbers2
    reals: Reals
    number: Number
    unsigned: Unsigned
    real: Real
    flag: Flag


ARRAYS: dict[str, Any] = {
    "words": np.array([1, 2**64 - 1], np.uint64), "words2": np.arange(6, dtype=np.uint64).reshape(2, 3),
    "halves": np.array([2**32 - 1], np.uint32), "octets": np.array([255, 1, 2], np.uint8),
    "flags": np.array([True, False]), "numbers": np.array([-(2**63), 5]),
    "numbers2": np.arange(8).reshape(4, 2), "reals": np.array([0.5, -1e300]),
}  # fmt: skip
NUMBERS: dict[str, Any] = {"number": -(2**63), "unsigned": np.uint64(2**64 - 1), "real": 0.1, "flag": True}


def everything(**changes: Any) -> Everything:
    return Everything(**{**{name: value.copy() for name, value in ARRAYS.items()}, **NUMBERS, **changes})


@njit
def _read(s, out):  # type: ignore[no-untyped-def]
    out[0] = s.words[1] == np.uint64(0xFFFFFFFFFFFFFFFF) and len(s.words) == 2
    out[1] = s.words2[1, 2] == 5 and s.words2.shape[0] == 2 and s.words2.shape[1] == 3
    out[2] = s.halves[0] == np.uint32(0xFFFFFFFF)
    out[3] = s.octets[0] == 255 and len(s.octets) == 3
    out[4] = s.flags[0] and not s.flags[1]
    out[5] = s.numbers[0] == np.int64(-(2**63)) and s.numbers[1] == 5
    out[6] = s.numbers2[3, 1] == 7 and s.numbers2.shape[0] == 4
    out[7] = s.reals[1] == -1e300
    out[8] = s.number == np.int64(-(2**63))
    out[9] = s.unsigned == np.uint64(0xFFFFFFFFFFFFFFFF)
    out[10] = s.real == 0.1
    out[11] = s.flag != 0


@njit
def _write(s):  # type: ignore[no-untyped-def]
    s.number = np.int64(1) << np.int64(40)
    s.unsigned = s.unsigned - np.uint64(1)
    s.real = s.real * 2
    s.flag = False
    s.words[0] = np.uint64(1) << np.uint64(63)
    s.words2[0, 1] = np.uint64(77)
    s.reals[0] = 0.25


def test_a_kernel_sees_what_was_put_in() -> None:
    out = np.zeros(12, np.bool_)
    _read(everything(), out)
    assert out.all(), np.flatnonzero(~out)


def test_python_sees_what_a_kernel_has_left() -> None:
    s = everything()
    _write(s)
    assert (s.number, s.unsigned, s.real, s.flag) == (2**40, 2**64 - 2, 0.2, 0)
    assert (s.words[0], s.words2[0, 1], s.reals[0]) == (2**63, 77, 0.25)


def test_a_replacement_shares_arrays_and_not_numbers() -> None:
    s = everything()
    other = s.replaced(number=3, octets=np.zeros(1, np.uint8))
    _write(other)
    assert s.number == NUMBERS["number"] and other.number == 2**40
    assert s.words[0] == 2**63 and len(s.octets) == 3
    assert type(other) is Everything


def test_a_new_array_takes_the_place_of_the_old_one() -> None:
    """Also for kernels, and it is kept alive."""
    s = everything()
    s.words = np.full(1000, 2**64 - 1, np.uint64)
    s.words2 = np.full((3, 5), 9, np.uint64)
    gc.collect()
    np.full((3, 1000), 1, np.uint64)  # what would overwrite memory that was given back
    out = np.zeros(12, np.bool_)
    _read(s, out)
    assert not out[0] and not out[1]  # their lengths are others
    assert s.words[999] == 2**64 - 1 and s.words2[2, 4] == 9


@pytest.mark.parametrize(
    ("name", "value", "kind"),
    [
        ("words", np.zeros(2, np.int64), r"uint64\[1\]"),
        ("words", np.zeros((2, 2), np.uint64), r"uint64\[1\]"),
        ("words", np.zeros(8, np.uint64)[::2], r"uint64\[1\]"),
        ("words2", np.zeros(2, np.uint64), r"uint64\[2\]"),
        ("words2", np.zeros((4, 4), np.uint64)[:, :2], r"uint64\[2\]"),
        ("words2", np.zeros((4, 4), np.uint64).T[:3], r"uint64\[2\]"),
        ("halves", np.zeros(2, np.uint64), r"uint32\[1\]"),
        ("octets", np.zeros(2, np.bool_), r"uint8\[1\]"),
        ("flags", np.zeros(2, np.uint8), r"bool\[1\]"),
        ("numbers", np.zeros(2, np.int32), r"int64\[1\]"),
        ("reals", np.zeros(2, np.float32), r"float64\[1\]"),
        ("words", np.zeros(2, ">u8"), r"uint64\[1\]"),
    ],
)
def test_an_array_of_another_kind_is_refused(name: str, value: Any, kind: str) -> None:
    """At the beginning and later: a kernel would read what is not there."""
    with pytest.raises(TypeError, match=rf"Everything\.{name} must be a contiguous {kind}"):
        everything(**{name: value})
    s = everything()
    with pytest.raises(TypeError, match=rf"Everything\.{name} must be a contiguous {kind}"):
        setattr(s, name, value)
    assert getattr(s, name) is not value


@pytest.mark.parametrize(("name", "value"), [("number", 2**63), ("number", -(2**63) - 1), ("unsigned", 2**64)])
def test_a_number_that_does_not_fit_is_refused(name: str, value: int) -> None:
    with pytest.raises((OverflowError, ValueError)):
        everything(**{name: value})


def test_all_fields_and_no_others() -> None:
    with pytest.raises(TypeError, match="Everything needs octets, real"):
        Everything(**{name: value for name, value in {**ARRAYS, **NUMBERS}.items() if name not in ("octets", "real")})
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = everything().nothing
