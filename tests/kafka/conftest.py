"""The broker of the tests: $STREAM_LSH_TEST_BROKER, else Docker, else Java and Maven, else they are skipped.

STREAM_LSH_TEST_KAFKA_VERSION chooses the version of the latter two. With CI set a missing broker is a failure.
What needs a broker is `long`.
"""

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.kafka.brokers import VERSION, Make, making
from support.kafka.proxy import Proxied, proxied_broker
from support.kafka.shared_broker import SharedBroker, shared_broker
from support.missing import missing

from stream_lsh.errors import BrokerError

# Brokers live for minutes here, or seconds: what Java's second compiler would do for them takes longer than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")
ALONE = {"brokers", "narrow", "proxied", "secure"}  # fixtures that start a broker of their own
BROKERS = {"broker", *ALONE}


@pytest.hookimpl(tryfirst=True)  # before pytest selects by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs a broker, and what shares one of its own: that stays in one process, however tests are spread."""
    for item in items:
        needed = BROKERS & set(getattr(item, "fixturenames", ()))
        if needed:
            item.add_marker("long")
            item.add_marker("broker")
        for name in needed & ALONE:
            item.add_marker(pytest.mark.xdist_group(name))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> SharedBroker:
    """The broker that all tests of the run share; a test that stops or kills one takes `proxied`."""
    foreign = os.environ.get("STREAM_LSH_TEST_BROKER")
    if foreign:
        return SharedBroker(foreign)
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    try:
        return SharedBroker(shared_broker(folder / "broker"))
    except BrokerError as error:
        missing(f"no Kafka for the tests (no STREAM_LSH_TEST_BROKER, no Docker): {error}")


@pytest.fixture(scope="session")
def proxied_all_along(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    """What `proxied` shares among tests."""
    local, proxies = proxied_broker(tmp_path_factory.mktemp("proxied"), VERSION, ("FIRST", "SECOND"))
    try:
        local.start()
    except BrokerError as error:
        missing(f"no Kafka from Java and Maven for the tests: {error}")
    try:
        yield Proxied(local, proxies)
    finally:
        for proxy in proxies:
            proxy.close()
        local.stop()


@pytest.fixture
def proxied(proxied_all_along: Proxied) -> Proxied:
    """A running broker behind two proxies, whatever `broker` is: it can be killed, and its connections cut. It works
    again, however the test before has left it."""
    for proxy in proxied_all_along.proxies:
        proxy.refuse(False)
        proxy.thaw()
    proxied_all_along.broker.start()
    return proxied_all_along


@pytest.fixture
def prefix() -> str:
    """A topic prefix of this test alone."""
    return f"t-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make(broker: Any, prefix: str, tmp_path: Path) -> Make:
    """Settings of a pipeline of this test alone, whose topics are there: `await make(shards=2)`."""
    return making(broker, prefix, tmp_path)
