"""The headers that outputs have: kind and version of a record's schema, and the attributes of a CloudEvent."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wire.source import Headers

SCHEMA_VERSION = b"1"
"""Version of the schemas of outputs: it rises when a field changes its meaning or is gone, not when one is added."""
VERDICT, PAIR, GROUP, ALERT = "verdict", "pair", "group", "alert"
"""Kinds of outputs, as `stream-lsh schema` names them."""


def verdict_headers(label: str) -> Headers:
    """What each verdict of a kind has."""
    return [("kind", label.encode()), ("schema-version", SCHEMA_VERSION)]


class EventHeaders:
    """The headers of outputs that are CloudEvents in binary mode; none without the setting `cloudevents_source`.

    Args:
        output: VERDICT, PAIR, GROUP or ALERT.
    """

    def __init__(self, settings: KafkaSettings, output: str) -> None:
        self.used = settings.cloudevents_source is not None
        schemas = settings.cloudevents_schemas
        self._same: Headers = [
            ("content-type", b"application/json"), ("ce_specversion", b"1.0"),
            ("ce_type", f"stream-lsh.{output}".encode()), ("ce_source", (settings.cloudevents_source or "").encode()),
            *([("ce_dataschema", f"{schemas.rstrip('/')}/{output}.json".encode())] if schemas is not None else ()),
        ]  # fmt: skip

    def of(self, id: bytes, time: int | None) -> Headers:
        """The headers of an output.

        Args:
            id: unique among the outputs of the pipeline, and the same in every repeat.
            time: ms since 1970.
        """
        if not self.used:
            return []
        when = [] if time is None else [("ce_time", rfc3339(time))]
        return [*self._same, ("ce_id", id), *when]

    def of_value(self, value: bytes | None) -> Headers:
        """The headers of an event of a group, or of an alert; none of a tombstone."""
        if not self.used or value is None:
            return []
        found = json.loads(value)  # ids may have lone surrogates
        id = found["key"] if "key" in found else f"{found['group']}:{found['version']}"
        return self.of(id.encode(), found.get("time"))


def rfc3339(time: int) -> bytes:
    """A time in ms since 1970, as CloudEvents have it."""
    return datetime.fromtimestamp(time / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z").encode()
