"""The one way to compile: numba without the GIL, cached where a cache can be written."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar


def _version() -> str:
    """A hash of all sources with kernels. Numba looks only at the file a kernel stands in, not at those it calls."""
    package = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source:
            digest.update(source)
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
    return _folder is None or next(_folder.rglob("*.nbi"), None) is None


_folder = _cache_folder() if "NUMBA_CACHE_DIR" not in os.environ else Path(os.environ["NUMBA_CACHE_DIR"])
if _folder is not None:
    os.environ["NUMBA_CACHE_DIR"] = str(_folder)

import numba  # noqa: E402  (reads NUMBA_CACHE_DIR when it is imported)
import numpy as np  # noqa: E402
from numba.core import cgutils  # noqa: E402
from numba.extending import intrinsic  # noqa: E402

F = TypeVar("F", bound=Callable[..., Any])


def njit(function: F | None = None, **options: Any) -> Any:
    """`numba.njit` with `nogil` and, where a folder can be written, `cache`."""
    settings = {"nogil": True, "cache": _folder is not None, **options}
    return numba.njit(**settings) if function is None else numba.njit(**settings)(function)


@intrinsic
def _at(typing: Any, address: Any) -> Any:
    """An address as a pointer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return numba.types.voidptr(numba.types.int64), code


_carray: Any = numba.carray  # type: ignore[attr-defined]
_pointer: Any = _at


_pread: Any = numba.types.ExternalFunction(
    "pread",
    numba.types.intp(numba.types.int32, numba.types.uintp, numba.types.uintp, numba.types.int64),
)


@njit
def read_at(file, address, size, position):  # type: ignore[no-untyped-def]
    """Read `size` bytes of a file (a descriptor) at a position to an address (`array.ctypes.data`).

    Raises:
        OSError: the file has become shorter, or the disk fails.
    """
    if _pread(np.int32(file), np.uintp(address), np.uintp(size), np.int64(position)) != size:
        raise OSError("a file of the index cannot be read as far as it was written")


@njit
def words_at(address, size):  # type: ignore[no-untyped-def]
    """The uint64[size] array at an address (`array.ctypes.data`), which the caller keeps alive.

    A kernel that gets a varying number of arrays takes a table of addresses: a tuple of arrays would be copied
    at every call, and a typed list compiled at every start.
    """
    return _carray(_pointer(address), (size,), np.uint64)


@njit
def halves_at(address, size):  # type: ignore[no-untyped-def]
    """The uint32[size] array at an address; see `words_at`."""
    return _carray(_pointer(address), (size,), np.uint32)
