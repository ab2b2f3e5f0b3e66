"""Bearer tokens and their permissions. A file has the hashes of the tokens:

    [newsroom]
    sha256 = "2f1a..."
    permissions = ["read", "write"]
    expires = 2027-01-31T00:00:00Z

Tokens are long and random, so a hash without salt and stretching is sufficient.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import string
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Literal, get_args

from stream_lsh.documents.times import milliseconds
from stream_lsh.errors import UsageError
from stream_lsh.serve.address import version
from stream_lsh.settings.errors import unknown
from stream_lsh.settings.sources import read_toml
from stream_lsh.wording import count

Permission = Literal["read", "write", "delete"]
PERMISSIONS: tuple[Permission, ...] = get_args(Permission)
_LOG = logging.getLogger("stream_lsh.serve")
_REQUIRED = {"sha256", "permissions"}
_KEYS = {*_REQUIRED, "expires"}
_HEX = frozenset(string.hexdigits.lower())
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Token:
    """What a file says of a token. expires: seconds since 1970; None = never."""

    name: str
    sha256: str
    permissions: frozenset[Permission]
    expires: float | None = None

    def expired(self, now: float) -> bool:
        return self.expires is not None and now >= self.expires


def check_name(name: str) -> str:
    """The name of a token, which log lines have.

    Raises:
        UsageError: it has other characters, or too many.
    """
    if _NAME.fullmatch(name) is None:
        raise UsageError(
            f"{name[:80]!r} cannot be the name of a token: use up to 64 letters, digits, dots, underscores and hyphens"
        )
    return name


def read_tokens(path: Path) -> tuple[Token, ...]:
    """The tokens in a file.

    Raises:
        UsageError: the file is unreadable or invalid.
    """
    if path.exists() and not path.is_file():  # reading a named pipe would wait for its writer
        raise UsageError(f"tokens file {path} is no regular file; name the file that stream-lsh serve token add writes")
    return tuple(_token(path, name, table) for name, table in read_toml(path, "tokens file").items())


def _token(path: Path, name: str, table: object) -> Token:
    where = f"tokens file {path}: [{name[:80]}]"
    try:
        check_name(name)
    except UsageError as error:
        raise UsageError(f"{where}: {error}") from None
    if not isinstance(table, Mapping) or not _REQUIRED <= table.keys() <= _KEYS:
        other = sorted(table.keys() - _KEYS) if isinstance(table, Mapping) else ()
        found = f": {unknown(other[0], _KEYS, None, 'key')}" if other else ""
        raise UsageError(f"{where} must have sha256, permissions and perhaps expires, and nothing else{found}")
    digest, permissions, expires = table["sha256"], table["permissions"], table.get("expires")
    if not isinstance(digest, str) or len(digest) != 64 or not _HEX.issuperset(digest.lower()):
        raise UsageError(f"{where}: sha256 must be the 64 hexadecimal digits of the token's hash")
    if not isinstance(permissions, list) or not permissions or any(each not in PERMISSIONS for each in permissions):
        raise UsageError(f'{where}: permissions must be a list of "read", "write" and "delete"')
    try:
        if expires is not None and not isinstance(expires, date):  # a datetime is a date
            raise ValueError
        end = None if expires is None else milliseconds(expires) / 1000
    except ValueError:
        raise UsageError(
            f"{where}: expires must be a date or a time without quotes, such as 2027-01-31T00:00:00Z"
        ) from None
    return Token(name, digest.lower(), frozenset(permissions), end)


class Tokens:
    """The current tokens of a file. If the file becomes unreadable or invalid, the previous tokens stay valid.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path = path
        self._clock = clock
        self._version = version(path)  # before reading, so that a change in between is noticed
        self._tokens = read_tokens(path)
        self._streams: set[_Stream] = set()

    def refresh(self) -> None:
        """Read the file again if it has changed."""
        if (seen := version(self._path)) == self._version:
            return
        self._version = seen
        try:
            self._tokens = read_tokens(self._path)
        except UsageError as error:
            _LOG.error("%s; the previous tokens stay valid", error)
        else:
            _LOG.info("tokens file %s was read again: %s", self._path, count(len(self._tokens), "token"))

    def find(self, secret: str) -> Token | None:
        """A token, None if it is invalid or expired. The time taken does not depend on the token."""
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
        found: Token | None = None
        for token in self._tokens:
            if hmac.compare_digest(token.sha256, digest):
                found = token
        return None if found is None or found.expired(self._clock()) else found

    @contextmanager
    def stream(self, token: Token, permission: Permission, end: Callable[[], None]) -> Iterator[None]:
        """An open stream of a token. `end` is called by `end_streams` once the token no longer has the permission."""
        stream = _Stream(token.sha256, permission, end)
        self._streams.add(stream)
        try:
            yield
        finally:
            self._streams.discard(stream)

    def end_streams(self) -> None:
        """End the open streams of revoked and expired tokens."""
        now = self._clock()
        valid = {token.sha256: token.permissions for token in self._tokens if not token.expired(now)}
        for stream in list(self._streams):
            if stream.permission not in valid.get(stream.sha256, ()):
                stream.end()


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    """An open stream, and what it needs."""

    sha256: str
    permission: Permission
    end: Callable[[], None]
