"""TLS and logins against a real broker with certificates made here, and what is said when they do not fit."""

import asyncio
import base64
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, errors
from support.kafka.brokers import VERSION, local_broker
from support.missing import missing

from stream_lsh.errors import BrokerError, UsageError
from stream_lsh.kafka.client import connection
from stream_lsh.kafka.client.connection import FINAL, NoToken, TokenFile, admin, client_options, explain, explained
from stream_lsh.kafka.run.restarts import may_pass
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.broker import KafkaBroker, free_ports
from stream_lsh.kafka.tools.topics import create

PASSWORD, KEY_PASSWORD = "s3cret of the user", "s3cret of the key"


def openssl(*arguments: str, cwd: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem; broker.pem (certificate and key, for localhost); client.pem and client.key (with a password)."""
    if shutil.which("openssl") is None:
        missing("no program openssl to make certificates with")
    folder = tmp_path_factory.mktemp("certificates")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-noenc", "-days", "2", "-subj", "/CN=test authority",
            "-keyout", "ca.key", "-out", "ca.pem", cwd=folder)  # fmt: skip
    (folder / "san").write_text("subjectAltName=DNS:localhost\n")
    for name, subject in (("broker", "/CN=broker"), ("client", "/CN=client")):
        openssl("req", "-newkey", "rsa:2048", "-noenc", "-subj", subject, "-keyout", f"{name}.plain",
                "-out", f"{name}.csr", cwd=folder)  # fmt: skip
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                "-days", "2", "-extfile", "san", "-out", f"{name}.crt", cwd=folder)  # fmt: skip
    (folder / "broker.pem").write_text((folder / "broker.plain").read_text() + (folder / "broker.crt").read_text())
    openssl("pkcs8", "-topk8", "-in", "client.plain", "-passout", f"pass:{KEY_PASSWORD}", "-out", "client.key",
            cwd=folder)  # fmt: skip
    return folder


class SecureBroker(KafkaBroker):
    """A broker with a listener for each kind of connection, and with the user alice for SCRAM."""

    LISTENERS: ClassVar = {
        "TLS": "SSL", "MUTUAL": "SSL", "SCRAM": "SASL_SSL", "LOGIN": "SASL_PLAINTEXT", "TOKEN": "SASL_PLAINTEXT",
    }  # fmt: skip

    def __init__(self, folder: Path, properties: dict[str, str]) -> None:
        plain, control, *ports = free_ports(2 + len(self.LISTENERS))
        self.ports = dict(zip(self.LISTENERS, ports, strict=True))
        clients = [f"PLAINTEXT://127.0.0.1:{plain}", *(f"{n}://127.0.0.1:{port}" for n, port in self.ports.items())]
        kinds = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self.LISTENERS}
        ours = {
            "controller.quorum.voters": f"1@127.0.0.1:{control}",
            "listeners": ",".join([*clients, f"CONTROLLER://127.0.0.1:{control}"]),
            # The host is a name, as in certificates.
            "advertised.listeners": ",".join(clients[:1] + [c.replace("127.0.0.1", "localhost") for c in clients[1:]]),
            "listener.security.protocol.map": ",".join(f"{name}:{kind}" for name, kind in kinds.items()),
        }
        super().__init__(folder, VERSION, plain, properties=ours | properties)

    def _format_command(self, program: str, classes: str, config: Path) -> list[str]:
        users = [f"--add-scram=SCRAM-SHA-{n}=[name=alice,password={PASSWORD}]" for n in (256, 512)]
        return [*super()._format_command(program, classes, config), *users]


@pytest.fixture(scope="module")
def secure(certificates: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    module = "org.apache.kafka.common.security"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates / "ca.pem"),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
        "listener.name.scram.scram-sha-256.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.scram.scram-sha-512.sasl.jaas.config": f"{module}.scram.ScramLoginModule required;",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config":
            f'{module}.plain.PlainLoginModule required user_alice="{PASSWORD}";',
        "listener.name.token.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.token.oauthbearer.sasl.jaas.config":
            f'{module}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";',
    }  # fmt: skip
    local_broker(tmp_path_factory.mktemp("unused"))  # or skip
    with SecureBroker(tmp_path_factory.mktemp("secure"), properties) as broker:
        yield broker


def values(secure: Any, certificates: Path, listener: str, host: str = "localhost", **more: Any) -> dict[str, Any]:
    found = {
        "TLS": {"security_protocol": "SSL"},
        "MUTUAL": {
            "security_protocol": "SSL", "ssl_certfile": certificates / "client.crt",
            "ssl_keyfile": certificates / "client.key", "ssl_password": KEY_PASSWORD,
        },
        "SCRAM": {"security_protocol": "SASL_SSL", "sasl_mechanism": "SCRAM-SHA-256"},
        "LOGIN": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"},
        "TOKEN": {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "OAUTHBEARER"},
    }[listener]  # fmt: skip
    if listener in ("TLS", "MUTUAL", "SCRAM"):
        found["ssl_cafile"] = certificates / "ca.pem"
    if listener in ("SCRAM", "LOGIN"):
        found |= {"sasl_username": "alice", "sasl_password": PASSWORD}
    return {"bootstrap_servers": f"{host}:{secure.ports[listener]}", "partitions": 1} | found | more


def token(valid_for: float = 3600) -> str:
    """An unsigned token, which a broker without further configuration takes."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = time.time()
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': now + valid_for})}."


@pytest.mark.parametrize(
    ("listener", "given"),
    [
        ("TLS", {}),
        ("TLS", {"host": "127.0.0.1", "ssl_check_hostname": False}),
        ("MUTUAL", {}),
        ("SCRAM", {}),
        ("SCRAM", {"sasl_mechanism": "SCRAM-SHA-512"}),
        ("LOGIN", {}),
        ("TOKEN", {}),
    ],
)
async def test_all_clients_get_in(
    secure: Any, certificates: Path, prefix: str, tmp_path: Path, listener: str, given: dict[str, Any]
) -> None:
    more: dict[str, Any] = {"topic_prefix": prefix, **given}
    if listener == "TOKEN":
        (tmp_path / "token").write_text(token() + "\n")
        more["sasl_oauth_token_file"] = tmp_path / "token"
    # Make the topics, send a record in a transaction, read it.
    settings = KafkaSettings(**values(secure, certificates, listener, **more))
    topics = {state.wanted.name for state in await create(settings)}
    topic = f"{settings.topic_prefix}.documents"
    assert topic in topics
    options = client_options(settings)
    async with AIOKafkaProducer(**options, transactional_id=settings.topic_prefix) as producer, producer.transaction():
        await producer.send(topic, b"a record", partition=0)
    async with AIOKafkaConsumer(
        topic, **options, group_id=f"{settings.topic_prefix}.x", auto_offset_reset="earliest"
    ) as consumer:
        record = await asyncio.wait_for(consumer.getone(), 120)
    assert record.value == b"a record"


@pytest.mark.parametrize(
    ("listener", "wrong", "named"),
    [
        ("SCRAM", {"sasl_password": "wrong"}, ["refuses the login of user 'alice'", "sasl_username and sasl_password"]),
        ("LOGIN", {"sasl_password": "wrong"}, ["refuses the login of user 'alice'", "sasl_username and sasl_password"]),
        ("SCRAM", {"sasl_mechanism": "PLAIN"}, ["sasl_mechanism = PLAIN"]),
        ("TLS", {"ssl_cafile": None}, ["not trusted", "ssl_cafile"]),
        ("TLS", {"host": "127.0.0.1"}, ["ssl_check_hostname"]),
        ("TOKEN", {}, ["OAUTHBEARER", "sasl_oauth_token_file"]),
    ],
)
async def test_a_refusal_names_the_settings(
    secure: Any, certificates: Path, tmp_path: Path, listener: str, wrong: dict[str, Any], named: list[str]
) -> None:
    if listener == "TOKEN":
        wrong = {"sasl_oauth_token_file": tmp_path / "token"}
        wrong["sasl_oauth_token_file"].write_text(token(-10))
    # What is said where no connection comes about; the error must be one that is not retried.
    settings = KafkaSettings(**values(secure, certificates, listener, **wrong))
    with pytest.raises(BrokerError) as caught, explained(settings):
        async with admin(settings):
            pass
    assert PASSWORD not in str(caught.value)
    assert isinstance(caught.value.__cause__, FINAL), repr(caught.value.__cause__)
    message = str(caught.value)
    assert all(words in message for words in named) and "wrong" not in message, message


def test_files_that_cannot_be_used_are_named(certificates: Path, tmp_path: Path) -> None:
    def message(**values: Any) -> str:
        with pytest.raises(UsageError) as caught:
            client_options(KafkaSettings(security_protocol="SSL", **values))
        assert KEY_PASSWORD not in str(caught.value)
        return str(caught.value)

    (tmp_path / "empty").touch()
    assert "ssl_cafile" in message(ssl_cafile=tmp_path / "none")
    assert "PEM" in message(ssl_cafile=tmp_path / "empty")
    pair = {"ssl_certfile": certificates / "client.crt", "ssl_keyfile": certificates / "client.key"}
    assert "set ssl_password" in message(**pair)
    assert "ssl_keyfile" in message(**pair, ssl_password="another")
    assert "ssl_keyfile" in message(ssl_certfile=pair["ssl_certfile"], ssl_keyfile=certificates / "ca.key")
    options = client_options(KafkaSettings(security_protocol="SSL", **pair, ssl_password=KEY_PASSWORD))
    assert options["ssl_context"].check_hostname
    login = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_file": tmp_path / "none"}
    with pytest.raises(UsageError, match="sasl_oauth_token_file"):
        client_options(KafkaSettings(security_protocol="SASL_PLAINTEXT", **login))


async def test_a_token_file_that_is_being_replaced_is_waited_for(tmp_path: Path) -> None:
    """Empty or away for a moment: that is no error, and longer it is one that is tried again."""
    path = tmp_path / "token"

    async def replaced() -> str:
        path.touch()
        waiting = asyncio.create_task(TokenFile(path).token())
        await asyncio.sleep(0.2)
        path.unlink()
        await asyncio.sleep(0.2)
        path.write_text("a token\n")
        return await waiting

    assert await replaced() == "a token"


@pytest.mark.parametrize(
    ("content", "why"), [(None, "No such file or directory"), (b" ", "is empty"), ("ü".encode(), "ASCII")]
)
async def test_a_token_file_without_a_token_may_have_one_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, why: str
) -> None:
    monkeypatch.setattr(connection, "TOKEN_SECONDS", 0.0)
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(NoToken) as caught:
        await TokenFile(path).token()
    assert caught.value.retriable and may_pass(caught.value)
    message = str(explain(caught.value, KafkaSettings()))
    assert message.startswith(f"sasl_oauth_token_file {path}") and why in message and message.endswith(".")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errors.TopicAuthorizationFailedError("news.frames"), ["not allow", "news.frames", "ACL"]),
        (errors.GroupAuthorizationFailedError("x"), ["consumer groups stream-lsh.*"]),
        (errors.UnknownTopicOrPartitionError(), ["topics create"]),
        (errors.InvalidSessionTimeoutError(), ["session_timeout_ms = 10000"]),
        (errors.NotEnoughReplicasError(), ["min.insync.replicas"]),
        (errors.NodeNotReadyError("node 2"), ["node 2", "is down"]),
        (errors.KafkaStorageError(), ["disk"]),
        (errors.KafkaTimeoutError(), ["no answer", "127.0.0.1:9092"]),
        (ConnectionRefusedError(111, "x"), ["no answer", "Connection refused", "stream-lsh kafka broker"]),
        (errors.UnknownError("strange"), ["127.0.0.1:9092", "strange"]),
        (errors.CorruptRecordException(), ["CorruptRecordException"]),
    ],
)
def test_errors_in_plain_words(error: BaseException, words: list[str]) -> None:
    message = str(explain(error, KafkaSettings()))
    assert all(word in message for word in words), message
    assert "Error" not in message.replace("stream", "")
    assert message.endswith((".", ")."))
