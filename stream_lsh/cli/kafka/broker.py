"""`stream-lsh kafka broker`: a real Apache Kafka to try out."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command
from stream_lsh.cli.options import FOLDER, option
from stream_lsh.errors import BrokerError
from stream_lsh.kafka.tools.broker import KafkaBroker
from stream_lsh.kafka.tools.libraries import VERSIONS, check_version, fetched, libraries

DEFAULT_PORT = 9092
EXAMPLES = """
stream-lsh kafka broker
stream-lsh kafka broker --data kafka-data
stream-lsh kafka broker --version 3.9.1 --port 19092
"""


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Run an Apache Kafka on this machine for trying out: one node without replicas, on 127.0.0.1 only.

It needs Java (17 for Kafka 4, 11 for Kafka 3.9), and Maven for the first download. The jars (46 MB) are kept in the
user's cache folder. It runs until Ctrl-C or SIGTERM.""",
    params=[
        option(
            "Broker", "--version X.Y.Z", f"version of Kafka; tested versions are {' and '.join(VERSIONS)}",
            default=VERSIONS[0], show_default=True,
        ),
        option(
            "Broker", "--port N", "port to listen on", click.IntRange(1, 65535), default=DEFAULT_PORT, show_default=True
        ),
        option(
            "Broker", "--data DIR", "folder of its data and its log, made if missing; default: a temporary folder",
            FOLDER,
        ),
    ],
)  # fmt: skip
def broker(version: str, port: int, data: Path | None) -> None:
    check_version(version)
    with ExitStack() as stack:
        folder = data.absolute() if data is not None else None
        if folder is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-lsh-kafka-")))
        if not fetched(version):
            complain(f"fetching Kafka {version} with Maven, 46 MB, the first time only")
            libraries(version)
        complain(f"starting Kafka {version}")
        kafka = stack.enter_context(KafkaBroker(folder, version, port))
        click.echo(ready(kafka, temporary=data is None))
        code = kafka.wait()
        raise BrokerError(f"Kafka ended by itself, with code {code}; its log is {kafka.log}.")


def ready(kafka: KafkaBroker, *, temporary: bool) -> str:
    """What to say when it answers: the address, and the next commands to try."""
    server = "" if kafka.port == DEFAULT_PORT else f" --bootstrap-servers {kafka.bootstrap}"
    return "\n".join(
        [
            f"Kafka {kafka.version} answers at {kafka.bootstrap}; its data is in {kafka.folder}"
            + (", and is deleted at the end" if temporary else ""),
            "In other terminals:",
            f"  stream-lsh kafka topics create{server}",
            f"  stream-lsh kafka worker{server}",
            f"  stream-lsh kafka produce feed.jsonl{server}",
            f"  stream-lsh kafka tail verdicts --from-beginning{server}",
            "Ctrl-C stops it.",
        ]
    )
