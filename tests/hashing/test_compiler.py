"""How kernels are compiled: whole, with what they call; and apart, where they are called by their address."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numba import types

from stream_lsh.hashing.kernels import far, njit


@njit
def third(number):  # type: ignore[no-untyped-def]
    if number < 0:
        raise ValueError("below zero")
    return number // 3


@njit
def thirds(numbers, out):  # type: ignore[no-untyped-def]
    for i in range(len(numbers)):
        out[i] = third(numbers[i]) + third(numbers[i])
    return third(numbers[0])


@far(types.int64(types.int64))
def doubled(number):  # type: ignore[no-untyped-def]
    return 2 * third(number)


@far(types.int64(types.int64))
def never_loaded(number):  # type: ignore[no-untyped-def]
    return number


@far(types.float64(types.int64))
def of_another_type(number):  # type: ignore[no-untyped-def]
    return number


@njit
def calling(number):  # type: ignore[no-untyped-def]
    return doubled(number) + 1


@njit
def calling_too_early(number):  # type: ignore[no-untyped-def]
    return never_loaded(number)


def test_a_kernel_has_what_it_calls_in_it() -> None:
    out = np.zeros(3, np.int64)
    assert thirds(np.array([3, 6, 10]), out) == 1
    assert out.tolist() == [2, 4, 6]
    assert not third.overloads, "it is no kernel of its own until Python calls it"
    assert third(9) == 3
    assert len(third.overloads) == 1


def test_numbers_in_a_call_make_no_parts_of_their_own() -> None:
    @njit
    def times(number, factor):  # type: ignore[no-untyped-def]
        return number * factor

    @njit
    def some(number):  # type: ignore[no-untyped-def]
        return times(number, 2) + times(number, 3) + times(number, number)

    assert some(4) == 36
    assert len(times._parts) == 1


def test_an_error_is_raised_from_what_is_called() -> None:
    with pytest.raises(ValueError, match="below zero"):
        thirds(np.array([-1]), np.zeros(1, np.int64))


def test_a_far_kernel_is_called_by_its_address() -> None:
    doubled.load()
    assert calling(9) == 7
    assert doubled(9) == 6


def test_an_error_is_raised_from_a_far_kernel() -> None:
    doubled.load()
    with pytest.raises(ValueError, match="below zero"):
        calling(-1)


def test_a_far_kernel_that_is_not_loaded_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="never_loaded is not loaded"):
        calling_too_early(1)


def test_a_far_kernel_returns_what_it_says() -> None:
    with pytest.raises(TypeError, match="of_another_type returns int64"):
        of_another_type.load()


SEVERAL = """
import sys
from numba import types
from stream_lsh.hashing.kernels import far, njit

@njit
def inner(number):
    return number + 1

@far(types.int64(types.int64))
def apart(number):
    return inner(number) * 2

@njit
def outer(number):
    return apart(number) + inner(number)

apart.load()
print(outer(3), sum(outer.stats.cache_hits.values()), sum(apart.stats.cache_hits.values()))
"""


def test_only_what_is_called_from_outside_is_kept_and_it_works_when_it_is_loaded(tmp_path: Path) -> None:
    program, cache = tmp_path / "program.py", tmp_path / "cache"
    program.write_text(SEVERAL)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    found = [
        subprocess.run([sys.executable, program], env=environment, check=True, capture_output=True, text=True).stdout
        for _ in range(2)
    ]
    assert found == ["12 0 0\n", "12 1 1\n"]
    assert {path.name.partition("-")[0] for path in cache.rglob("*.nbc")} == {"program.outer", "program.apart"}
