"""The settings of the documents topics, and of each of several: the tables `[documents.TOPIC]`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from itertools import permutations
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from stream_lsh.documents.fields import LINE_ID
from stream_lsh.errors import UsageError
from stream_lsh.settings.errors import unknown
from stream_lsh.settings.model import Settings

OF_TOPIC = (
    "document_format", "key_is_id", "id_prefix", "envelope", "id_field", "text_field", "time_field", "deleted_field",
    "source_field", "set_field", "vector_field", "bits_field", "match_within", "rank_field",
)  # fmt: skip
"""The settings that each of several documents topics may have for itself."""
IN_ALL = ("time_field", "source_field", "set_field", "rank_field")
"""Those of them that either all topics have, or none."""
INTEGER = re.compile(rb"0|-?[1-9][0-9]*")
"""An id without its prefix that is an integer in JSON keys."""

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class TopicSettings(Settings):
    """Settings of the engine, and those by which the records of documents topics become documents."""

    topic_prefix: str = Field(
        default="stream-lsh", description="first part of the names of topics, consumer groups and transactional ids"
    )
    documents_topic: str | None = Field(default=None, description="topic of the documents (default: PREFIX.documents)")
    documents: dict[str, dict[str, Any]] = Field(
        default={},
        description="several documents topics: a TOML table for each, with the settings that differ there "
        "(default: one topic)",
    )
    id_prefix: str = Field(
        default="", pattern=r"^[A-Za-z0-9._:/-]{0,250}$",
        description="text before each id of a documents topic (default: none; of several topics TOPIC:)",
    )  # fmt: skip
    document_format: Literal["json", "text", "registry"] = Field(
        default="json",
        description="what a record is: json, an object as value; text, the text as value and the id as key; registry, "
        "Avro, JSON or Protobuf with a schema of a Schema Registry",
    )
    key_is_id: Literal["json", "string"] | None = Field(
        default=None,
        description="how the key of a tombstone gives the id that it deletes: as JSON (json), or as text (string) "
        "(default: a tombstone is a dead letter)",
    )

    @field_validator("documents_topic")
    @classmethod
    def _topic(cls, value: str | None) -> str | None:
        if value is not None and (not _TOPIC.fullmatch(value) or value.strip(".") == ""):
            raise ValueError("a topic's name has up to 249 letters, digits, dots, underscores and hyphens")
        return value

    @field_validator("documents", mode="before")
    @classmethod
    def _tables(cls, value: object) -> object:
        if not isinstance(value, dict) or not all(isinstance(table, dict) for table in value.values()):
            raise ValueError("give a table [documents.TOPIC] for each topic in the settings file")
        return value

    @model_validator(mode="after")
    def _readable(self) -> Self:
        if self.key_is_id is not None and not self.updates:
            raise ValueError(
                "key_is_id is for indexes whose documents change; give on_conflict = 'update' too, or leave it out"
            )
        if self.key_is_id is not None and self.id_field == LINE_ID:
            raise ValueError(f"key_is_id needs the ids of an id_field; with {LINE_ID!r} no key is one")
        if self.key_is_id is not None and self.envelope == "debezium":
            raise ValueError(
                "key_is_id is not used with envelope = 'debezium', whose events name the id; leave key_is_id out"
            )
        if self.key_is_id == "json" and self.document_format == "text":
            raise ValueError("key_is_id = 'json': with document_format = 'text' the key is plain: give 'string'")
        if self.document_format == "text":
            if self.item is not None:
                raise ValueError(
                    f"measure = {self.measure} needs document_format = 'json'; the values of 'text' are texts, not "
                    f"{self.item.plural}"
                )
            for name in (
                "envelope", "set_field", "time_field", "match_within", "deleted_field", "source_field", "rank_field"
            ):  # fmt: skip
                if getattr(self, name):
                    raise ValueError(
                        f"{name} = {getattr(self, name)!r} needs document_format = 'json'; the values of 'text' have "
                        "no fields"
                    )
        return self

    @property
    def by_topic(self) -> dict[str, Self]:
        """The settings of each documents topic, as those of a pipeline that has only this one; in the order that
        numbers the topics."""
        return self._of_tables or {self.documents_topic or f"{self.topic_prefix}.documents": self}

    @cached_property
    def _of_tables(self) -> dict[str, Self]:
        given = {name: getattr(self, name) for name in self.model_fields_set - {"documents", "documents_topic"}}
        return {topic: self._of_topic(topic, table, given) for topic, table in self.documents.items()}

    def _of_topic(self, topic: str, table: Mapping[str, Any], given: Mapping[str, Any]) -> Self:
        for name in table.keys() - {*OF_TOPIC}:
            if isinstance(table[name], dict):
                raise ValueError(
                    f'[documents.{topic}.{name}]: a name with dots is quoted: [documents."{topic}.{name}"]'
                )
            raise ValueError(f"[documents.{topic}]: {unknown(name, OF_TOPIC, None, 'setting of one topic')}")
        values = {"id_prefix": f"{topic}:", **given, **table, "documents_topic": topic}
        if values.get("id_field") == LINE_ID and "id_prefix" not in table:
            del values["id_prefix"]
        try:
            found = type(self)(**values)
        except UsageError as error:
            raise ValueError(f"[documents.{topic}]: {error}") from None
        for name in IN_ALL:
            if (getattr(found, name) is None) != (getattr(self, name) is None):
                raise ValueError(
                    f"[documents.{topic}]: {name} is set, and not for the pipeline: set it above the tables, too"
                )
        if found.match_within != self.match_within and {len(found.match_within), len(self.match_within)} != {1}:
            raise ValueError(
                f"[documents.{topic}]: match_within is another one than for the pipeline: a topic may have another "
                "name for one field, not for several"
            )
        return found

    @property
    def one_topic(self) -> Self:
        """The settings of the documents topic that a command writes to.

        Raises:
            UsageError: there are several, and documents_topic names none of them.
        """
        if self.documents_topic is None and len(self.by_topic) > 1:
            raise UsageError(
                f"the pipeline has the documents topics {', '.join(self.by_topic)}: name one with --documents-topic"
            )
        return self.by_topic[self.documents_topic or next(iter(self.by_topic))]

    def prefixed(self, id: bytes) -> bytes:
        """An id (JSON text) with `id_prefix`. An integer becomes a text by it."""
        if not self.id_prefix or id == b"null":
            return id
        return b'"%b%b"' % (self.id_prefix.encode(), id[1:-1] if id[:1] == b'"' else id)

    @cached_property
    def _by_prefix(self) -> list[Self]:
        """The settings of each documents topic, those with the longest prefix first."""
        return sorted(self.by_topic.values(), key=lambda topic: -len(topic.id_prefix))

    def of_id(self, id: bytes) -> tuple[Self, bytes]:
        """The settings of the topic that an id (JSON text) is from by its prefix, and the id as the document has it.
        With `key_is_id` = json, digits are an integer."""
        for topic in self._by_prefix:
            prefix = topic.id_prefix
            if not prefix:
                return topic, id
            if id.startswith(b'"%b' % prefix.encode()):
                inside = id[1 + len(prefix) : -1]
                return topic, inside if topic.key_is_id == "json" and INTEGER.fullmatch(inside) else b'"%b"' % inside
        return self, id

    def _check_prefixes(self) -> None:
        """Check that an id says by its prefix how its topic is read. Raises ValueError, also if a topic's settings are
        impossible."""
        for (one, its), (other, others) in permutations(self.by_topic.items(), 2):
            first, second = its.id_prefix, others.id_prefix
            if first and first != second and second.startswith(first):
                raise ValueError(
                    f"[documents.{one}] has the id_prefix {first!r} and [documents.{other}] {second!r}, so different "
                    "ids would become one: let neither begin with the other"
                )
            if first == second and its.key_is_id != others.key_is_id:
                raise ValueError(
                    f"[documents.{one}] and [documents.{other}] have the same id_prefix and another key_is_id: give "
                    "both the same"
                )
