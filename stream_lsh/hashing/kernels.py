"""The one way to compile: numba without the GIL, cached where a cache can be written."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numba
import numpy as np
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

config: Any = numba.config  # has its settings only when it is run
ROOMS = ("hashing", "documents", "text", "families", "index", "evaluation")
"""Where kernels are. Numba looks only at the file that a kernel stands in, not at those whose kernels it calls."""


def _version() -> str:
    """A hash of all sources that may have kernels."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for room in ROOMS:
        for path in sorted((package / room).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_folder() -> Path | None:
    """The user's cache folder; a temporary one where the home is read-only; None where nothing can be written."""
    version = _version()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    for temporary in (False, True):
        try:
            if temporary:
                folder = Path(tempfile.gettempdir()) / f"stream-lsh-{os.getuid()}-{version}"
            else:
                folder = Path(home).expanduser() / "stream-lsh" / f"numba-{version}"
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            # A foreign folder under /tmp could feed us machine code: use only what is ours.
            if folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK):
                return folder
        except (OSError, RuntimeError):
            continue
    return None


def cold() -> bool:
    """Whether nothing is compiled yet, so that the first documents have to wait for it."""
    return FOLDER is None or next(FOLDER.rglob("*.nbi"), None) is None


FOLDER = _cache_folder() if "NUMBA_CACHE_DIR" not in os.environ else Path(os.environ["NUMBA_CACHE_DIR"])
"""Where compiled kernels are kept; None if nowhere."""
F = TypeVar("F", bound=Callable[..., Any])
_PATIENCE = 100  # reads that may fail in a row before it is no accident


def njit(function: F | None = None, *, allocates: bool = False, **options: Any) -> Any:
    """`numba.njit` with `nogil` and, where a folder can be written, a cache there.

    allocates: the kernel makes arrays, or returns them. The others do not count references, which would take half of
    the time of those that get structs of arrays, and half of the time to compile them.
    The cache's folder is numba's for the moment of this call only: whoever imported numba before keeps his own.
    """
    if function is None:
        return partial(njit, allocates=allocates, **options)
    before = config.CACHE_DIR
    config.CACHE_DIR = str(FOLDER or before)
    try:
        # Nobody calls a kernel as a C function: no code for that.
        mine = {"nogil": True, "cache": FOLDER is not None, "_nrt": allocates, "no_cfunc_wrapper": True}
        return numba.njit(**{**mine, **options})(function)
    finally:
        config.CACHE_DIR = before


def _loads(bits: int) -> Any:
    """A function that loads an unsigned number of so many bits from an address (`array.ctypes.data` and so on).

    A kernel that gets a varying number of arrays takes a table of addresses: a tuple of arrays would be copied at every
    call, and a typed list compiled at every start. The caller keeps the arrays alive.
    """

    @intrinsic
    def load(typing: Any, address: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.IntType(bits)
            return builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=bits // 8)

        return getattr(types, f"uint{bits}")(types.int64), code

    return load


word_at, half_at = _loads(64), _loads(32)


_pread: Any = numba.types.ExternalFunction(
    "pread",
    numba.types.intp(numba.types.int32, numba.types.uintp, numba.types.uintp, numba.types.int64),
)


@njit
def read_at(file, address, size, position):  # type: ignore[no-untyped-def]
    """Read `size` bytes of a file (a descriptor) at a position to an address (`array.ctypes.data`).

    A read that a signal interrupts, or that gives less than was asked for, is gone on with.

    Raises:
        OSError: the file has become shorter, or the disk fails.
    """
    done = np.int64(0)
    failures = np.int64(0)
    while done < size:
        got = _pread(np.int32(file), np.uintp(address + done), np.uintp(size - done), np.int64(position + done))
        if got > 0:
            done += got
        else:
            # Why it fails errno knows, which has another name on each system: a signal goes by, a broken disk does not.
            failures += 1
            if got == 0 or failures == _PATIENCE:
                raise OSError("a file of the index cannot be read as far as it was written")
