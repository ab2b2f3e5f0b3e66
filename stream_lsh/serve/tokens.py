"""Bearer tokens and their scopes. A file has the hashes of the tokens:

    [newsroom]
    sha256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    scopes = ["read", "write"]

Tokens are long and random, so a hash without salt and stretching is sufficient.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import string
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import unknown
from stream_lsh.settings.sources import read_toml
from stream_lsh.wording import count

Scope = Literal["read", "write"]
_LOG = logging.getLogger("stream_lsh.serve")
_KEYS = {"sha256", "scopes"}
_HEX = frozenset(string.hexdigits.lower())


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a token."""

    name: str
    sha256: str
    scopes: frozenset[Scope]


def read_tokens(path: Path) -> tuple[Holder, ...]:
    """The holders in a file.

    Raises:
        UsageError: the file is unreadable or invalid.
    """
    return tuple(_holder(path, name, table) for name, table in read_toml(path, "tokens file").items())


def _holder(path: Path, name: str, table: object) -> Holder:
    where = f"tokens file {path}: [{name}]"
    if not isinstance(table, Mapping) or table.keys() != _KEYS:
        other = sorted(table.keys() - _KEYS) if isinstance(table, Mapping) else ()
        found = f": {unknown(other[0], _KEYS, None, 'key')}" if other else ""
        raise UsageError(f"{where} must have sha256 and scopes, and nothing else{found}")
    digest, scopes = table["sha256"], table["scopes"]
    if not isinstance(digest, str) or len(digest) != 64 or not _HEX.issuperset(digest.lower()):
        raise UsageError(f"{where}: sha256 must be the 64 hexadecimal digits of the token's hash")
    if not isinstance(scopes, list) or not scopes or any(scope not in get_args(Scope) for scope in scopes):
        raise UsageError(f'{where}: scopes must be a list of "read" and "write"')
    return Holder(name, digest.lower(), frozenset(scopes))


class Tokens:
    """The current tokens of a file. If the file becomes unreadable or invalid, the previous tokens stay valid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._version = self._seen()  # before reading, so that a change in between is noticed
        self._holders = read_tokens(path)

    def _seen(self) -> tuple[int, ...]:
        try:
            found = self._path.stat()
        except OSError:
            return ()
        return found.st_mtime_ns, found.st_size, found.st_ino

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        if (version := self._seen()) == self._version:
            return
        self._version = version
        try:
            self._holders = read_tokens(self._path)
        except UsageError as error:
            _LOG.error("%s; the previous tokens stay valid", error)
        else:
            _LOG.info("tokens file %s was read again: %s", self._path, count(len(self._holders), "holder"))

    def scopes(self, token: str) -> frozenset[Scope] | None:
        """The scopes of a token, None if it is invalid. The time taken does not depend on the token."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).hexdigest()
        found: frozenset[Scope] | None = None
        for holder in self._holders:
            if hmac.compare_digest(holder.sha256, digest):
                found = holder.scopes
        return found
