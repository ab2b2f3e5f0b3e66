"""The address of a service. Imports little, so that the service listens as soon as it is started."""

from __future__ import annotations

import ipaddress
import socket
import ssl
from dataclasses import dataclass, replace
from pathlib import Path

from stream_lsh.errors import OutputError, UsageError


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


def tls(address: Address) -> ssl.SSLContext:
    """The TLS context. Raises UsageError if a file is unreadable or the two do not match."""
    assert address.certificate is not None and address.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(address.certificate, address.key)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"--tls-certificate {address.certificate}, --tls-key {address.key}: {error.strerror or error}"
        ) from None
    return context


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
