"""A table at an address as an output: a file in the index folder while a run writes it, then an object in the store.

The object is replaced as a whole when a run has ended, so it never has a part of one. What was put there stands beside
the file: a process that is killed puts the same bytes there again when it runs again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from stream_lsh.embedded.remote import is_remote, path_of, store_of, version_of
from stream_lsh.embedded.tables import table_suffix
from stream_lsh.errors import OutputError, UsageError
from stream_lsh.index.store.files import replace_file

FOLDER = "outputs"  # in the index folder, with a folder for each address
_BEGUN = "begun"  # instead of a version: it is not known whether the object is ours


class Published:
    """A table that goes to an address.

    Args:
        folder: of the index. overwrite: replace an object that this index has not put there.

    Attributes:
        path: the file that a run writes.

    Raises:
        UsageError: its store cannot be used. OutputError: it cannot be reached, or another object is there.
    """

    def __init__(self, address: str, folder: Path, *, overwrite: bool) -> None:
        self._address = address
        self._store, self._place = store_of(address)
        own = folder / FOLDER / hashlib.sha256(address.encode()).hexdigest()[:16]
        with self._failing():
            own.mkdir(parents=True, exist_ok=True)
        self.path = own / (PurePosixPath(path_of(address)).name or "table")
        self._note = own / "published.json"
        known, there = self._known(), self._version()
        if there not in (None, known.get("version")) and known.get("version") != _BEGUN and not overwrite:
            raise OutputError(
                f"{address} is there already, and this index has not put it there: remove it, choose another name, or "
                "add --overwrite to replace it."
            )

    def put(self) -> None:
        """Put the file there, unless it is there already.

        Raises:
            OutputError: it cannot be put there.
        """
        known, version = self._known(), self._version()
        with self._failing(), self.path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if known.get("sha256") == digest and version is not None and version == known.get("version"):
            return
        self._write(digest, _BEGUN)
        with self._failing():
            options = {"method": "put"} if "http" in self._store.protocol else {}
            self._store.put_file(str(self.path), self._place, **options)
        self._write(digest, self._version())

    def _version(self) -> str | None:
        """The version of the object, None if there is none."""
        with self._failing():
            self._store.invalidate_cache()
            try:
                return version_of(self._store.info(self._place))
            except FileNotFoundError:
                return None

    def _known(self) -> dict[str, Any]:
        """What was put there: the version of the object, and the hash of the file."""
        try:
            return dict(json.loads(self._note.read_bytes()))
        except FileNotFoundError:
            return {}

    def _write(self, digest: str, version: str | None) -> None:
        note = {"address": self._address, "sha256": digest, "version": version}
        with self._failing():
            replace_file(self._note, json.dumps(note).encode())

    @contextmanager
    def _failing(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:  # stores have errors of their own
            raise OutputError(
                f"cannot write {self._address}: {type(error).__name__}: {error}. Run the same command again: its rows "
                "are kept."
            ) from None


def published(outputs: Mapping[str, str], folder: Path, *, overwrite: bool) -> dict[str, Published]:
    """The outputs at addresses, by name.

    Raises:
        UsageError: an output cannot have an address. Also as `Published`.
    """
    found = {}
    for name, path in outputs.items():
        if is_remote(path):
            if name != "unique" or table_suffix(path) is None:
                raise UsageError(
                    f"--{name.replace('_', '-')} {path}: only a table of --unique can have an address; name a file "
                    "of this machine"
                )
            found[name] = Published(path, folder, overwrite=overwrite)
    return found
