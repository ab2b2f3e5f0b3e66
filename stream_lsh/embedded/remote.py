"""Files of object stores and web servers, by their address: what fsspec opens."""

from __future__ import annotations

import hashlib
import importlib
import io
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from stream_lsh.errors import InputError, UsageError
from stream_lsh.wording import missing_package

T = TypeVar("T")


def is_remote(name: str) -> bool:
    """Whether a name is an address, as `s3://bucket/feed.parquet`."""
    return "://" in name


def path_of(name: str) -> str:
    """The path in an address, without what follows `?` or `#`; another name as it is."""
    return name.partition("?")[0].partition("#")[0] if is_remote(name) else name


class RemoteFile(io.RawIOBase):
    """The bytes of an address. size: how many there are. version: what changes with them, as far as the store says so.

    Raises:
        InputError: there is no such file, or no access. UsageError: the package of the store is missing.
    """

    def __init__(self, name: str) -> None:
        store, path = store_of(name)
        try:
            info = store.info(path)
            # Columns are read side by side: reading ahead would fetch each piece several times.
            self._file = store.open(path, "rb", cache_type="none" if path_of(name).endswith("parquet") else "readahead")
            self.bytes = int(info["size"])
        except (ImportError, ValueError) as error:
            raise UsageError(f"cannot read {name}: {error}") from None
        except FileNotFoundError:
            raise InputError(f"cannot read {name}: there is no such file.") from None
        except Exception as error:
            raise InputError(f"cannot read {name}: {type(error).__name__}: {error}.") from None
        self.version = version_of(info)

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return _failing(lambda: int(self._file.seek(offset, whence)))

    def tell(self) -> int:
        return int(self._file.tell())

    def read(self, size: int = -1) -> bytes:
        return _failing(lambda: bytes(self._file.read(size)))


def store_of(name: str) -> tuple[Any, str]:
    """The store of an address (fsspec), and the path in it.

    Raises:
        UsageError: the package of the store is missing, or there is no such kind of store.
    """
    try:
        core = importlib.import_module("fsspec.core")
    except ModuleNotFoundError:
        raise UsageError(missing_package(name, "fsspec", "remote")) from None
    try:
        store, path = core.url_to_fs(name)
        return store, path
    except (ImportError, ValueError) as error:
        raise UsageError(f"cannot use {name}: {error}") from None
    except Exception as error:
        raise InputError(f"cannot use {name}: {type(error).__name__}: {error}.") from None


def version_of(info: Mapping[str, Any]) -> str:
    """What changes with the bytes of an address, as far as its store says so."""
    known = [str(info[key]) for key in ("ETag", "etag", "mtime", "LastModified", "created") if info.get(key)]
    return hashlib.sha256("\n".join([str(int(info["size"])), *known[:1]]).encode()).hexdigest()


def _failing(work: Callable[[], T]) -> T:
    """Errors of every store as OSError."""
    try:
        return work()
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from None
