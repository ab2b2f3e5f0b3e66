"""The broker of the tests: $STREAM_LSH_TEST_BROKER, else Docker, else Java and Maven, else they are skipped.

STREAM_LSH_TEST_KAFKA_VERSION chooses the version of the latter two. With CI set a missing broker is a failure.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest
from kafka_helpers import VERSION, DockerBroker, ForeignBroker, docker_answers, missing

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.broker import KafkaBroker


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaBroker | DockerBroker | ForeignBroker]:
    """A running broker: `.bootstrap`, and unless it is a foreign one `.kill()` and `.restart()`."""
    foreign = os.environ.get("STREAM_LSH_TEST_BROKER")
    if foreign:
        yield ForeignBroker(foreign)
        return
    local: KafkaBroker | DockerBroker
    local = DockerBroker(VERSION) if docker_answers() else KafkaBroker(tmp_path_factory.mktemp("kafka"), VERSION)
    try:
        local.start()
    except BrokerError as error:
        missing(f"no Kafka for the tests (no STREAM_LSH_TEST_BROKER, no Docker): {error}")
    try:
        yield local
    finally:
        local.stop()


@pytest.fixture
def prefix() -> str:
    """A topic prefix of this test alone."""
    return f"t-{uuid.uuid4().hex[:12]}"
