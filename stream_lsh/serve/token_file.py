"""Changes of a tokens file. Comments and the order of its tokens stay."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import tomlkit

from stream_lsh.errors import OutputError, UsageError
from stream_lsh.serve.tokens import PERMISSIONS, Permission, Token, check_name, read_tokens
from stream_lsh.serve.whole_file import replace_file

PREFIX = "lsh_"  # by which scanners for secrets can recognise a token
_BYTES = 32


def add_token(path: Path, name: str, permissions: Sequence[Permission], expires: float | None) -> str:
    """Add a new token to a file, which is made if it is missing, and return the token.

    Args:
        expires: seconds since 1970; None = never.

    Raises:
        UsageError: the file has the name already, or is invalid. OutputError: it cannot be written.
    """
    check_name(name)
    with _locked(path):
        document = _read(path)
        if name in document:
            raise UsageError(
                f"tokens file {path} has a token {name}: choose another name, or remove it first (token revoke {name})"
            )
        secret = PREFIX + secrets.token_urlsafe(_BYTES)
        table = tomlkit.table()
        table["sha256"] = hashlib.sha256(secret.encode()).hexdigest()
        table["permissions"] = [each for each in PERMISSIONS if each in permissions]
        if expires is not None:
            table["expires"] = datetime.fromtimestamp(int(expires), UTC)
        document[name] = table
        _write(path, document)
    return secret


def revoke_token(path: Path, name: str) -> Token:
    """Remove a token from a file, and return what the file said of it.

    Raises:
        UsageError: the file has no such token, or is invalid. OutputError: it cannot be written.
    """
    with _locked(path):
        token = next((token for token in read_tokens(path) if token.name == name), None)
        if token is None:
            raise UsageError(f"tokens file {path} has no token {name[:80]!r}: token list shows those that it has")
        document = _read(path)
        del document[name]
        _write(path, document)
    return token


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Only one process changes the files of a folder at a time."""
    try:
        folder = os.open(path.resolve().parent, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _read(path: Path) -> tomlkit.TOMLDocument:
    if not path.exists():
        return tomlkit.document()
    read_tokens(path)  # checks it
    return tomlkit.parse(path.read_bytes().decode("utf-8-sig"))


def _write(path: Path, document: tomlkit.TOMLDocument) -> None:
    replace_file(path, tomlkit.dumps(document).encode(), 0o644)  # it has hashes, and no secrets
