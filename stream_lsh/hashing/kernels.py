"""Decorators that make kernels: numba without the GIL, compiled as a whole, cached on disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numba
import numpy as np

from stream_lsh.hashing.compiler import FarKernel, Kernel

# A kernel is never called as a C function.
_OPTIONS = {"nopython": True, "nogil": True, "boundscheck": None, "no_cfunc_wrapper": True}
F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE = 100  # failed reads in a row from which it is an error


def njit(function: F | None = None, *, allocates: bool = False, **options: Any) -> Any:
    """`numba.njit` with `nogil`, with our compiler and cache (`compiler`, `cache`).

    Args:
        allocates: the kernel creates or returns arrays. Other kernels do not count references, which would take half of
            the run time of kernels with structs of arrays, and half of the time to compile them.
    """
    if function is None:
        return partial(njit, allocates=allocates, **options)
    return Kernel(function, _OPTIONS | {"_nrt": allocates} | options)


def far(signature: Any) -> Callable[[F], Any]:
    """A kernel that is compiled only where settings need it, and apart from its callers (`FarKernel`). `load` has to be
    called before them."""
    return lambda function: FarKernel(function, _OPTIONS | {"_nrt": False}, signature)


_pread: Any = numba.types.ExternalFunction(
    "pread", numba.types.intp(numba.types.int32, numba.types.uintp, numba.types.uintp, numba.types.int64)
)


@njit
def read_at(file, address, size, position):  # type: ignore[no-untyped-def]
    """Read `size` bytes of a file (a descriptor) at a position to an address (`array.ctypes.data`).

    A read that is interrupted by a signal or returns fewer bytes is continued.

    Raises:
        OSError: the file has been truncated, or the disk fails.
    """
    done = np.int64(0)
    failures = np.int64(0)
    while done < size:
        got = _pread(np.int32(file), np.uintp(address + done), np.uintp(size - done), np.int64(position + done))
        if got > 0:
            done += got
        else:
            # The cause is in errno, which has another name on each system: a signal is temporary, a failing disk is
            # not.
            failures += 1
            if got == 0 or failures == _PATIENCE:
                raise OSError("a file of the index cannot be read as far as it was written")
