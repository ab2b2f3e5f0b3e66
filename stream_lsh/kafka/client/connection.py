"""Connecting to Kafka: options of all clients, the admin client, and plain words for Kafka's errors."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from aiokafka import errors
from aiokafka.abc import AbstractTokenProvider
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import collect_hosts, create_conn
from aiokafka.protocol.metadata import MetadataRequest

from stream_lsh.errors import BrokerError, UsageError
from stream_lsh.kafka.client import private
from stream_lsh.kafka.settings import KafkaSettings

TOKEN_SECONDS = 2.0
"""How long a token file may be missing or empty: replacing it may take two steps."""

FINAL = (
    errors.SaslAuthenticationFailed, errors.AuthenticationFailedError, errors.AuthenticationMethodNotSupported,
    errors.UnsupportedSaslMechanismError, errors.IllegalSaslStateError, errors.TopicAuthorizationFailedError,
    errors.GroupAuthorizationFailedError, errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailed, errors.InvalidTopicError, errors.InvalidReplicationFactorError,
    errors.InvalidSessionTimeoutError, errors.InvalidTransactionTimeout, errors.PolicyViolationError,
    errors.UnsupportedVersionError, errors.InvalidConfigurationError, ssl.SSLCertVerificationError,
)  # fmt: skip
"""Errors that a retry cannot solve: a setting, a password or a permission must change."""


class NoToken(errors.KafkaError):  # type: ignore[misc]  # aiokafka has no types
    """The token file has no token. aiokafka retries errors of this kind; any other error would end its tasks."""

    retriable = True


class TokenFile(AbstractTokenProvider):  # type: ignore[misc]  # aiokafka has no types
    """The token for OAUTHBEARER. The file is read each time, so that a token can be rotated by replacing it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def _read(self) -> str:
        try:
            text = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not ASCII"
            raise NoToken(f"sasl_oauth_token_file {self._path} cannot be read: {why}.") from None
        if not text:
            raise NoToken(f"sasl_oauth_token_file {self._path} is empty; it has to hold the token.")
        return text

    async def token(self) -> str:
        """The token. Raises NoToken if the file has none for `TOKEN_SECONDS`."""
        end = time.monotonic() + TOKEN_SECONDS
        while True:
            try:
                return self._read()
            except NoToken:
                if time.monotonic() >= end:
                    raise
            await asyncio.sleep(0.1)


def client_options(settings: KafkaSettings) -> dict[str, Any]:
    """Options that every aiokafka client needs to reach the brokers: servers, TLS and login.

    From the first call on, all clients of this process have the mends of `private.mend_clients`.

    Raises:
        UsageError: a certificate, key or token is unusable. The message names the setting.
    """
    private.mend_clients()
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers.split(","),
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        options["ssl_context"] = ssl_context(settings)
    if settings.security_protocol.startswith("SASL_"):
        options["sasl_mechanism"] = settings.sasl_mechanism
        options["sasl_plain_username"] = settings.sasl_username
        password = settings.sasl_password
        options["sasl_plain_password"] = password.get_secret_value() if password is not None else None
        options["sasl_kerberos_service_name"] = settings.sasl_kerberos_service_name
        if settings.sasl_mechanism == "OAUTHBEARER":
            assert settings.sasl_oauth_token_file is not None
            options["sasl_oauth_token_provider"] = _token_file(settings.sasl_oauth_token_file)
        if settings.sasl_mechanism == "GSSAPI":
            _check_gssapi()
    return options


def ssl_context(settings: KafkaSettings) -> ssl.SSLContext:
    """TLS by the settings. Raises UsageError."""
    try:
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ssl_cafile)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"ssl_cafile {settings.ssl_cafile}: {_ssl_reason(error)}; it has to be PEM.") from None
    if not settings.ssl_check_hostname:
        context.check_hostname = False
    if settings.ssl_certfile is not None:
        password = settings.ssl_password.get_secret_value() if settings.ssl_password is not None else ""
        files = f"ssl_certfile {settings.ssl_certfile}"
        if settings.ssl_keyfile is not None:
            files += f" and ssl_keyfile {settings.ssl_keyfile}"
        try:
            # As a function: if no password is given, OpenSSL asks for one on the terminal.
            context.load_cert_chain(settings.ssl_certfile, settings.ssl_keyfile, lambda: password)
        except (OSError, ssl.SSLError) as error:
            hint = "" if password else " (if the key has a password, set ssl_password)"
            raise UsageError(f"{files} cannot be used: {_ssl_reason(error)}{hint}.") from None
    return context


def _ssl_reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return error.strerror or str(error)


def _token_file(path: Path) -> TokenFile:
    try:
        path.stat()
    except OSError as error:
        raise UsageError(f"sasl_oauth_token_file {path} cannot be read: {error.strerror}.") from None
    return TokenFile(path)


def _check_gssapi() -> None:
    try:
        import gssapi  # noqa: F401
    except (ImportError, OSError):
        raise UsageError("sasl_mechanism = GSSAPI needs the package gssapi: pip install gssapi.") from None


@asynccontextmanager
async def admin(settings: KafkaSettings, *, timeout_ms: int = 30_000) -> AsyncIterator[AIOKafkaAdminClient]:
    """A connected admin client.

    Raises:
        KafkaError, OSError: no broker is usable. This is the true cause; aiokafka reports only a failed connection.
        UsageError: see `client_options`.
    """
    client = AIOKafkaAdminClient(**client_options(settings), request_timeout_ms=timeout_ms)
    try:
        try:
            await client.start()
        except errors.KafkaConnectionError as error:
            raise await cause(error, settings) from None
        if not private.names_brokers(client):
            if settings.sasl_mechanism == "OAUTHBEARER":
                # This is how a broker refuses a token: aiokafka takes the refusal for a login step and continues.
                raise errors.SaslAuthenticationFailed("it names no brokers to a client that should be logged in")
            raise errors.KafkaConnectionError("it has only just started, and lists no brokers yet")
        yield client
    finally:
        await client.close()


async def cause(error: BaseException, settings: KafkaSettings, timeout: float = 10) -> BaseException:
    """Why no connection was made. aiokafka only logs a refused login or certificate, and raises "Unable to bootstrap".

    Args:
        error: what aiokafka raised. Anything but a KafkaConnectionError is returned unchanged.
        timeout: seconds for each attempt to connect.
    """
    if not isinstance(error, errors.KafkaConnectionError):
        return error
    options = client_options(settings)
    found: list[BaseException] = []
    for host, port, _ in collect_hosts(options.pop("bootstrap_servers")):
        try:
            async with asyncio.timeout(timeout):
                connection = await create_conn(host, port, **options)
                try:
                    await connection.send(MetadataRequest([]))
                finally:
                    connection.close()
        except (OSError, errors.KafkaError, TimeoutError) as reason:
            found.append(reason)
    # A refused login is more informative than a broker that is down.
    return next((reason for reason in found if isinstance(reason, FINAL)), found[0] if found else error)


@contextmanager
def explained(settings: KafkaSettings) -> Iterator[None]:
    """Turn errors of Kafka into a BrokerError in plain words. (`cause` must be called inside; `admin` does so.)"""
    try:
        yield
    except (errors.KafkaError, OSError, TimeoutError) as error:
        raise explain(error, settings) from error


def explain(error: BaseException, settings: KafkaSettings) -> BrokerError:
    """The meaning of an error of Kafka, and the remedy."""
    return BrokerError(_message(error, settings))


def _message(error: BaseException, settings: KafkaSettings) -> str:
    where = f"Kafka at {settings.bootstrap_servers}"
    user = f"user {settings.sasl_username!r}" if settings.sasl_username else "this client"
    detail = _detail(error)
    match error:
        case NoToken():
            return str(error.args[0])
        case errors.SaslAuthenticationFailed() | errors.AuthenticationFailedError():
            return (
                f"{where} refuses the login of {user} by {settings.sasl_mechanism}{detail}. Check {_login(settings)}."
            )
        case errors.UnsupportedSaslMechanismError() | errors.AuthenticationMethodNotSupported():
            return f"{where} does not take sasl_mechanism = {settings.sasl_mechanism}{detail}."
        case errors.IllegalSaslStateError():
            return f"{where} expects no login on this port{detail}. Check security_protocol."
        case ssl.SSLCertVerificationError():
            return (
                f"the certificate of {where} is not trusted: {error.verify_message.rstrip('.')}. "
                "Set ssl_cafile to the certificate of its authority, or ssl_check_hostname = false if only the name "
                "differs."
            )
        case ssl.SSLError():
            return (
                f"no TLS connection to {where}: {_ssl_reason(error)}. Check security_protocol, the port and, "
                "if the broker asks for a certificate, ssl_certfile."
            )
        case socket.gaierror():
            return f"the host name of {where} is not known ({error.strerror}). Check bootstrap_servers."
        case errors.TopicAuthorizationFailedError():
            return f"{where} does not allow {user} to use a topic{detail}. Give it the permission (ACL)."
        case errors.GroupAuthorizationFailedError():
            return f"{where} does not allow {user} the consumer groups {settings.topic_prefix}.*{detail} (ACL)."
        case errors.TransactionalIdAuthorizationFailed():
            return f"{where} does not allow {user} the transactional ids {settings.topic_prefix}.*{detail} (ACL)."
        case errors.ClusterAuthorizationFailedError():
            return f"{where} does not allow {user} what was asked of the cluster{detail} (ACL)."
        case errors.UnknownTopicOrPartitionError():
            return f"{where} has not all the topics or partitions{detail}. `stream-lsh kafka topics create` makes them."
        case errors.InvalidReplicationFactorError():
            wanted = settings.replication_factor or "the broker's default"
            return f"{where} cannot keep so many copies of a topic (replication_factor = {wanted}){detail}."
        case errors.InvalidSessionTimeoutError():
            return (
                f"{where} does not take session_timeout_ms = {settings.session_timeout_ms}; it has to be between its "
                "group.min.session.timeout.ms and group.max.session.timeout.ms (6,000 and 1,800,000 by default)."
            )
        case errors.InvalidTransactionTimeout():
            return (
                f"{where} does not take transaction_timeout_ms = {settings.transaction_timeout_ms}; its "
                "transaction.max.timeout.ms is smaller."
            )
        case errors.MessageSizeTooLargeError() | errors.RecordTooLargeError() | errors.RecordListTooLargeError():
            return (
                f"a record is larger than the max.message.bytes of its topic{detail}; `stream-lsh kafka topics show` "
                "lists the limits of the topics."
            )
        case errors.NotEnoughReplicasError() | errors.NotEnoughReplicasAfterAppendError():
            return (
                f"{where} has fewer copies of a topic in step than its min.insync.replicas; brokers are down{detail}."
            )
        case errors.NodeNotReadyError():
            return f"a broker of {where} cannot be reached{detail}; it is down, or has only just started."
        case errors.KafkaStorageError():
            return f"{where} cannot use its disk{detail}; see the broker's log."
        case errors.UnsupportedVersionError() | errors.IncompatibleBrokerVersion():
            return f"{where} is too old{detail}; Kafka 3.9 or newer is needed."
        case errors.InvalidTopicError() | errors.PolicyViolationError() | errors.InvalidConfigurationError():
            return f"{where} refuses a topic{detail}."
        case OSError() | TimeoutError() | errors.KafkaConnectionError() | errors.KafkaTimeoutError():
            return (
                f"no answer from {where}{detail}. Is it running, and are bootstrap_servers and security_protocol "
                "right? `stream-lsh kafka broker` starts one to try out."
            )
    return f"{where}{detail or f': {type(error).__name__}'}."


def _login(settings: KafkaSettings) -> str:
    if settings.sasl_mechanism == "OAUTHBEARER":
        return "sasl_oauth_token_file"
    return "the Kerberos ticket" if settings.sasl_mechanism == "GSSAPI" else "sasl_username and sasl_password"


def _detail(error: BaseException) -> str:
    """` (text from the broker or the system)`, or an empty text."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        text = os.strerror(error.errno)  # asyncio's own text repeats the address
    else:
        text = str(error)
    # aiokafka puts the class and its number before the text; some errors have no text.
    name = type(error).__name__
    text = text.rpartition(f"{name}: ")[2].strip().rstrip(".")
    return "" if not text or text.endswith(name) else f" ({text})"
