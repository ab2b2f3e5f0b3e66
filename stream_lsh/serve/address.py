"""The address of a service. Imports little, so that the service listens as soon as it is started."""

from __future__ import annotations

import ipaddress
import logging
import socket
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from stream_lsh.errors import OutputError, UsageError

_LOG = logging.getLogger("stream_lsh.serve")


@dataclass(frozen=True, slots=True)
class Address:
    """Host and port; for TLS also the files with certificate and key."""

    host: str = "127.0.0.1"
    port: int = 8765
    certificate: Path | None = None
    key: Path | None = None

    @property
    def url(self) -> str:
        name = f"[{self.host}]" if ":" in self.host else self.host
        return f"http{'' if self.certificate is None else 's'}://{name}:{self.port}"


def listen(address: Address) -> tuple[socket.socket, Address]:
    """An open socket, and the address with its port. Called before an index is opened or created, so that an address in
    use is noticed first.

    Raises:
        OutputError: the address is in use, or not of this machine.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((address.host, address.port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise OutputError(
            f"cannot listen on {address.host} port {address.port}: {error.strerror or error}; give another --host or "
            "--port"
        ) from None
    return listening, replace(address, port=listening.getsockname()[1])


def check_address(address: Address, tokens: bool) -> None:
    """Raise UsageError if other machines could connect without a token, or if a file for TLS is missing."""
    if not tokens and not is_loopback(address.host):
        raise UsageError(
            f"--host {address.host}: without tokens only this machine may reach it (127.0.0.1); give --token-file FILE"
        )
    if (address.certificate is None) != (address.key is None):
        raise UsageError("TLS needs both: --tls-certificate FILE and --tls-key FILE")
    if address.certificate is not None:
        tls(address)


def version(path: Path) -> tuple[int, ...]:
    """What changes whenever a file is written or replaced; empty if it is missing."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino


def tls(address: Address) -> ssl.SSLContext:
    """The TLS context. Raises UsageError if a file is unreadable or the two do not match."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    assert address.certificate is not None and address.key is not None
    try:
        context.load_cert_chain(address.certificate, address.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-certificate {address.certificate}, --tls-key {address.key}: {error.strerror or error}"
        ) from None
    return context


class Certificate:
    """The TLS context of an address. If its files change, they are read again. If they are then
    unreadable or do not match, the previous certificate stays."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._version = self._seen()  # before reading, so that a change in between is noticed
        self._latest = tls(address)
        self.context = tls(address)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLSocket | ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> None:
        """Called for each handshake. Files loaded into a context in use would break handshakes meanwhile."""
        connection.context = self._latest

    def _seen(self) -> tuple[tuple[int, ...], ...]:
        return tuple(version(path) for path in (self._address.certificate, self._address.key) if path is not None)

    def refresh(self) -> None:
        """Read the files again if one has changed."""
        if (seen := self._seen()) == self._version:
            return
        self._version = seen
        try:
            self._latest = tls(self._address)
        except UsageError as error:
            _LOG.error("%s; the previous certificate stays in use", error)
        else:
            _LOG.info("the certificate %s was read again", self._address.certificate)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
