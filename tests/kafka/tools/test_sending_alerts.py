"""Alerts of the topic go to a receiver, each at least once, whichever process is asked to stop in between."""

import asyncio
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from support.kafka import stages
from support.kafka.brokers import Make
from support.receivers import receiving
from support.schema_registry import schema_registry

from stream_lsh.cli import main
from stream_lsh.embedded.sending import Courier
from stream_lsh.embedded.webhook import Webhook
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.registry.encoding import Encoder, avro_schema
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.sending import SendStage


@pytest.fixture
async def settings(make: Make) -> KafkaSettings:
    return await make(groups=True, partitions=1)


def alert(number: int) -> bytes:
    return b'{"key":"%032x","rule":"r"}' % number


def keys(*numbers: int) -> list[str]:
    return [f"{number:032x}" for number in numbers]


def tell(settings: KafkaSettings, *values: bytes) -> None:
    asyncio.run(stages.send(settings, Topics.of(settings).alerts, values))


def send(settings: KafkaSettings, folder: Path, url: str, *words: str) -> Result:
    of = ["--bootstrap-servers", settings.bootstrap_servers, "--topic-prefix", settings.topic_prefix]
    dead = str(folder / "dead")
    return CliRunner().invoke(
        main, ["alerts", "send", "--url", url, "--until-end", "--attempts", "2", "--dead-letters", dead, *of, *words]
    )


def test_what_is_sent_is_done_with_for_its_receiver(settings: KafkaSettings, tmp_path: Path) -> None:
    """A sender that is asked to stop does not wait for its receiver."""
    tell(settings, alert(0), alert(1), b"foreign", alert(2))
    with receiving(lambda n: {1: 500, 3: 400}.get(n, 204)) as receiver:
        first = send(settings, tmp_path, receiver.url)
        assert first.exit_code == 0, first.output
        assert receiver.keys == keys(0, 1, 1, 2)  # what failed is tried again, what is refused is not
        assert "again in 1 s" in first.output and "offset 2, is no alert" in first.output
        assert "2 alerts sent" in first.output and "1 dead letter" in first.output
        (letter,) = [json.loads(line) for line in (tmp_path / "dead").read_text().splitlines()]
        assert (letter["key"], letter["reason"], letter["alert"]["rule"]) == (keys(2)[0], "status 400", "r")
        tell(settings, alert(3))
        assert send(settings, tmp_path, receiver.url).exit_code == 0
        assert receiver.keys[4:] == keys(3)
        assert send(settings, tmp_path, receiver.url, "--receiver", "another").exit_code == 0
        assert receiver.keys[5:] == keys(0, 1, 2, 3)

        tell(settings, alert(4), alert(5))
        asyncio.run(stages.delete_before(settings, Topics.of(settings).alerts, 6))
        lost = send(settings, tmp_path, receiver.url)
        assert lost.exit_code != 0 and "1 alerts from offset 5 on were deleted before they were sent" in lost.output
        assert send(settings, tmp_path, receiver.url, "--receiver", "third").exit_code == 0
        assert receiver.keys[9:] == keys(5)
        nowhere = send(settings, tmp_path, receiver.url, "--topic-prefix", "nowhere")
        assert nowhere.exit_code and "does not have the topic nowhere.alerts" in " ".join(nowhere.output.split())

    tell(settings, alert(6))
    with receiving(lambda n: 503 if n else 204) as receiver:
        courier = Courier(Webhook(receiver.url, None, 60), tmp_path / "stopped", 100, [].append)

        class Sender(SendStage):
            def __init__(self, settings: KafkaSettings, probe: Probe) -> None:
                super().__init__(settings, probe, "desk", courier)

        async def asked_to_stop() -> None:
            async with stages.running(Sender, settings, Probe("send")):
                await stages.until(lambda: len(receiver.got) > 2, "it is tried again")

        asyncio.run(asked_to_stop())
        tried = len(receiver.got)
        assert receiver.keys == keys(5, *[6] * (tried - 1)) and not (tmp_path / "stopped").exists()
        receiver.answer = lambda _: 204
        assert send(settings, tmp_path, receiver.url, "--receiver", "desk").exit_code == 0
        assert receiver.keys[tried:] == keys(6)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--position", "p"], "--receiver for those on Kafka"),
        (["alerts", "--receiver", "desk"], "--position is for a file"),
        (["--receiver", "a b"], "up to 40 letters"),
    ],
)
def test_what_does_not_go_together_is_said(tmp_path: Path, words: list[str], said: str) -> None:
    (tmp_path / "alerts").write_bytes(b"")
    files = [str(tmp_path / word) if word in ("p", "alerts") else word for word in words]
    result = send(KafkaSettings(bootstrap_servers="127.0.0.1:1"), tmp_path, "http://127.0.0.1:9", *files)
    assert result.exit_code and said in " ".join(result.output.split()), result.output


def test_alerts_in_avro_are_sent_as_json(settings: KafkaSettings, tmp_path: Path) -> None:
    """Without the registry nothing is passed over."""
    line = alert(9)[:-1] + b',"kind":"share","time":1,"seq":2,"id":3,"source":null,"group":null}'
    tell(settings, Encoder("alert", 5)(line), alert(1))
    with receiving(lambda _: 204) as receiver, schema_registry() as registry:
        registry.schemas[5] = {"schema": json.dumps(avro_schema("alert"))}
        without = send(settings, tmp_path, receiver.url)
        assert without.exit_code and "schema 5 and cannot be decoded: set registry_url" in " ".join(
            without.output.split()
        )
        sent = send(settings, tmp_path, receiver.url, "-X", f"registry_url={registry.url}")
        assert sent.exit_code == 0, sent.output
    assert receiver.keys == keys(9, 1)
