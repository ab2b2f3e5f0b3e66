"""The outputs as models, from which their JSON Schemas are made: files of the embedded engine, and records on Kafka."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from stream_lsh.serve import schemas
from stream_lsh.serve.schemas import GroupRow, Id, Model, Passage, Source, Verdict


class VerdictLine(Verdict):
    """A verdict in a file or on Kafka."""

    source: Source | None = Field(default=None, description="on Kafka: the document's record")
    time: int | None = Field(default=None, description="on Kafka: event time in ms since 1970")
    detected_at: int | None = Field(default=None, description="on Kafka: when it was signed, in ms since 1970")
    tombstone: bool | None = Field(default=None, description="on Kafka: whether unique has a tombstone")
    new_representative_source: Source | None = None
    new_representative_sources: list[Source] | None = None


class Pair(schemas.Pair):
    """Two similar documents."""

    terms: list[str] | None = None
    contained_in: float | None = None
    contains: float | None = None
    passages: list[Passage] | None = None
    more_passages: int | None = None
    source: Source | None = Field(default=None, description="on Kafka: the record of the newer document")
    detected_at: int | None = Field(default=None, description="on Kafka: when that was signed, in ms since 1970")


class GroupEvent(GroupRow):
    """What has changed a group."""

    event: Literal["created", "joined", "updated", "left", "representative_changed", "ended"]
    seq: int
    id: Id | None


class Alert(Model):
    """A rule applied."""

    key: str = Field(description="hash of the rest")
    rule: str
    kind: Literal["spread", "growth", "share", "copied"]
    time: int | None = Field(description="stream time in ms since 1970")
    seq: int
    id: Id | None
    source: Id | None
    members: int | None = None
    documents: int | None = None
    duplicates: int | None = None
    copied: Id | None = None
    similarity: float | None = None
    group: GroupRow | None


class DeadLetterLine(Model):
    """A rejected document."""

    reason: str
    detail: str | None = None
    input: str | None = None
    line: int | None = None
    offset: int | None = None
    original: str | None = None
    original_base64: str | None = None
    truncated: bool | None = None
    size: int | None = None


OUTPUTS: dict[str, type[Model]] = {
    "verdict": VerdictLine, "pair": Pair, "group": GroupEvent, "alert": Alert, "dead-letter": DeadLetterLine,
}  # fmt: skip
"""By the name of the output."""


def schema_of(output: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an output, with its version."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **OUTPUTS[output].model_json_schema(),
        "version": 1,
    }
