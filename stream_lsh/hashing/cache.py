# Numba is hardly typed.
# mypy: disable-error-code="no-untyped-call,assignment,attr-defined"
"""The cache of compiled kernels: a folder named by a hash of the sources, not by their path.

All copies of one version on a machine share it, whatever their folders and environments. An environment can bring
compiled kernels with it, as an image does: in `share/stream-lsh` below its prefix, read only. Two processes never
compile the same kernel at the same time: the second one waits, and loads the result.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import llvmlite  # type: ignore[import-untyped]
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile, _CacheLocator
from numba.core.runtime import rtsys

from stream_lsh.hashing import notice

_PACKAGE = Path(__file__).parents[1]
_PACKAGES = ("hashing", "documents", "text", "families", "index", "evaluation")
"""Packages with kernels. In others, a kernel is an error: a change of its source would leave its machine code."""


def sources() -> list[Path]:
    """All source files that may have kernels."""
    return [path for folder in _PACKAGES for path in sorted((_PACKAGE / folder).rglob("*.py"))]


def _version() -> str:
    """A hash of these files and of the compiler's versions."""
    digest = hashlib.sha256(f"numba {numba.__version__} llvmlite {llvmlite.__version__}".encode())
    for path in sources():
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def _trusted(folder: Path) -> bool:
    """Whether only the user and root can write there: the files are machine code."""
    status = folder.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid in (0, os.getuid()) and not status.st_mode & 0o022


def _made(folder: Path) -> bool:
    """Create a folder if it is missing. Returns whether it can be trusted."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return _trusted(folder)
    except OSError:
        return False


def folders(version: str) -> tuple[Path | None, list[Path]]:
    """The folder for writing kernels, None if there is none, and the folders for reading them.

    These are `NUMBA_CACHE_DIR` or the user's cache folder; the environment's own, if it exists; and a temporary folder,
    where the first cannot be written.
    """
    name, wanted = f"numba-{version}", []
    with suppress(RuntimeError):  # there is no home
        cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stream-lsh"
        wanted.append(Path(os.environ.get("NUMBA_CACHE_DIR") or cache) / name)
    wanted.append(Path(tempfile.gettempdir()) / f"stream-lsh-{os.getuid()}-{version}")
    shipped = Path(sys.prefix) / "share" / "stream-lsh" / name
    readable = [shipped] if shipped.is_dir() and _trusted(shipped) else []
    for folder in wanted:
        if _made(folder):
            readable.append(folder)
            if os.access(folder, os.W_OK):
                return folder, readable
    return None, readable


VERSION = _version()
FOLDER, READ = folders(VERSION)
"""The folder for writing compiled kernels, None if there is none, and the folders for reading them."""


class _Locator(_CacheLocator):
    """Gives numba the name of a kernel's files: the same for the same code, wherever its source is."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        path = Path(file).resolve()
        inside = path.is_relative_to(_PACKAGE)
        if inside and path.relative_to(_PACKAGE).parts[0] not in _PACKAGES:
            raise RuntimeError(f"{path}: a kernel, but its package is not in _PACKAGES")
        self.room = path.parent.name if inside else "elsewhere"
        self._stamp = VERSION if inside else hashlib.sha256(VERSION.encode() + path.read_bytes()).hexdigest()[:16]
        self._line = function.__code__.co_firstlineno

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> _Locator:
        return cls(function, file)

    def get_cache_path(self) -> str:
        return str((FOLDER or Path(os.devnull)) / self.room)

    def get_source_stamp(self) -> str:
        return self._stamp

    def get_disambiguator(self) -> str:
        return f"{self._line}-{self._stamp}"


class _Results(CompileResultCacheImpl):
    _locator_classes = (_Locator,)


class KernelCache(FunctionCache):
    """The compiled code of one function. A file that cannot be read is compiled again; a file that cannot be written is
    skipped."""

    _impl_class = _Results

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        name, locator = self._impl.filename_base, self._impl.locator
        self._files = [
            IndexDataCacheFile(str(folder / locator.room), name, locator.get_source_stamp()) for folder in READ
        ]
        self._lock = None if FOLDER is None else FOLDER / locator.room / f"{name}.lock"

    def has(self, signature: Any, context: Any) -> bool:
        """Whether code for these types and this machine is in the cache."""
        key = self._index_key(signature, context.codegen())
        return any(_has(file, key) for file in self._files)

    @contextmanager
    def alone(self, signature: Any, context: Any) -> Iterator[None]:
        """If there is no code yet, log it, and let one process at a time compile."""
        with ExitStack() as stack:
            if not self.has(signature, context):
                notice.compiling()
                with suppress(OSError):
                    stack.enter_context(self._locked())
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        if self._lock is None:
            yield
            return
        self._lock.parent.mkdir(exist_ok=True, mode=0o700)
        with self._lock.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Machine code for these types, or None. It needs none of numba's own functions, whose import takes a quarter
        of a second."""
        rtsys.initialize(context)
        return self._load_overload(signature, context)

    def _load_overload(self, signature: Any, context: Any) -> Any:
        key = self._index_key(signature, context.codegen())
        for file in self._files:
            if key in _index(file):
                with suppress(Exception):
                    return self._impl.rebuild(context, file.load(key))
        return None

    def _save_overload(self, signature: Any, result: Any) -> None:
        with suppress(OSError):
            if not _index(self._cache_file):  # it may be damaged
                self._impl.locator.ensure_cache_path()
                self._cache_file.flush()
            super()._save_overload(signature, result)


def _index(file: IndexDataCacheFile) -> dict[Any, str]:
    """The index of a kernel's files: machine code by types and machine. Empty if it cannot be read."""
    try:
        return file._load_index()  # type: ignore[no-any-return]
    except Exception:
        return {}


def _has(file: IndexDataCacheFile, key: Any) -> bool:
    """Whether a kernel's files have machine code for these types and this machine. Numba writes the index first."""
    index = _index(file)
    return key in index and Path(file._data_path(index[key])).exists()
