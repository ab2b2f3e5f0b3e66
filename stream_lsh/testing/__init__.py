"""The pipeline on Kafka in memory, without a broker, for tests of your own consumers. It needs the extra `kafka`."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec("aiokafka") is None:
    raise ModuleNotFoundError(
        "stream_lsh.testing needs the package aiokafka, which is not installed: pip install 'stream-lsh[kafka]'"
    )

from stream_lsh.testing.log import Consumer, Record
from stream_lsh.testing.pipeline import Pipeline

__all__ = ["Consumer", "Pipeline", "Record"]
