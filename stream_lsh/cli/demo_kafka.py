"""`stream-lsh demo --kafka`: the whole pipeline with one command."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stream_lsh.cli.extra import require_for_children, require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.embedded.signals import Signals, interruption

if TYPE_CHECKING:
    from stream_lsh.kafka.tools.broker import KafkaBroker

PREFIX = "stream-lsh-demo"  # of topics on a broker that is given, with a number of its own
STILL = 10.0  # seconds between two lines that say that something still goes on


def run_on_kafka(
    folder: Path, documents: int, seed: int, rate: int, port: int, pairs: int, servers: str | None,
    *, kept: bool, quiet: bool,
) -> None:  # fmt: skip
    """Run it until Ctrl-C or SIGTERM, and show a summary.

    Args:
        folder: of all that is written. servers: brokers that run; without them one is started.

    Raises:
        StreamLshError: something is missing, or has ended by itself.
        KeyboardInterrupt: a signal came before Kafka was there, or a second one.
    """
    began = time.monotonic()
    folder = folder.absolute()  # Kafka works in a folder of its own

    def seconds() -> float:
        return time.monotonic() - began

    def say(text: str) -> None:
        if not quiet:
            complain(f"{seconds():5.1f} s  {text}")

    say(f"a pipeline on Kafka in {folder}" + ("" if kept else ", which is deleted at the end"))
    require_for_children()
    require_kafka()
    from stream_lsh.serve.address import Address, listen

    listening, address = listen(Address(port=port))  # an address that is taken ends it here
    listening.close()
    # Here, because they take long.
    from stream_lsh.demo import on_kafka
    from stream_lsh.demo.findings import Findings

    given = on_kafka.connection() | ({} if servers is None else {"bootstrap_servers": servers})
    findings = Findings(pairs)
    with ExitStack() as stack:
        broker = None
        if "bootstrap_servers" in given:
            given["topic_prefix"] = f"{PREFIX}-{uuid.uuid4().hex[:6]}"
            say(f"Kafka at {given['bootstrap_servers']} is used")
        else:
            from stream_lsh.kafka.tools.broker import KafkaBroker

            broker = KafkaBroker(folder / "kafka", brief=True)
            _start(broker, say)
            stack.callback(broker.stop)
            given = {"bootstrap_servers": broker.bootstrap}
        settings = on_kafka.settings_in(folder, given)
        demo = on_kafka.Demo(
            folder, settings, broker, documents, seed, rate, address.port, kept, findings, seconds, click.echo, say
        )  # fmt: skip
        with Signals() as signals:
            signals.run(demo.run)
        if not quiet:
            click.echo(findings.summary(seconds()))
        if kept:
            if broker is not None:
                say(f"to go on: stream-lsh kafka broker --data {broker.folder} --port {broker.port}")
            say(f"to go on: stream-lsh kafka worker --config {folder / 'settings.toml'}")
        if demo.killed:
            if broker is not None:
                broker.kill()
            raise interruption(signals.came[1])


def _start(broker: KafkaBroker, say: Callable[[str], None]) -> None:
    """Start Kafka, and say how that goes.

    Raises:
        BrokerError: it cannot be fetched or started.
    """
    from stream_lsh.kafka.tools.libraries import fetched, java, libraries

    java(broker.version)
    if not fetched(broker.version):
        with _patiently(f"fetching Kafka {broker.version} with Maven, 46 MB, the first time only", say):
            libraries(broker.version)
    with _patiently(f"Kafka {broker.version} starts", say):
        broker.start()
    say(f"Kafka answers at {broker.bootstrap}")


@contextmanager
def _patiently(what: str, say: Callable[[str], None]) -> Iterator[None]:
    """Say what happens, and again and again that it still does."""
    say(what)
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(STILL):
            say(f"still: {what}")

    thread = threading.Thread(target=repeat, name="patience", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
