"""Deletions by an operator, sent as records of the documents topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import orjson

from stream_lsh.documents.fields import LINE_ID, id_text
from stream_lsh.documents.refused import Refused
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.produce import Line
from stream_lsh.kafka.topic_settings import INTEGER

TOGETHER = 1000


def check(settings: KafkaSettings) -> None:
    """Check that the settings say how a record deletes an id.

    Raises:
        UsageError: they do not.
    """
    if not settings.plain_documents:
        raise UsageError("the documents topic has events: delete the document where the events are from")
    if settings.key_is_id is None and settings.deleted_field is None:
        raise UsageError(
            "nothing says how records delete: give --key-is-id or --deleted-field, as the workers have it (or --index, "
            "to delete from an index on this machine)"
        )
    if settings.id_field == LINE_ID:
        raise UsageError(f"with id_field = {LINE_ID} the ids are positions in topics: nothing can be deleted by its id")


def lines(settings: KafkaSettings, ids: Iterable[str | int]) -> Iterator[list[Line]]:
    """The records that delete these ids: tombstones, or objects if keys are no ids.

    Raises:
        UsageError: an id is invalid.
    """
    numbered = enumerate(ids, 1)
    while some := list(islice(numbered, TOGETHER)):
        yield [line_of(settings, id, number) for number, id in some]


def line_of(settings: KafkaSettings, id: str | int, number: int) -> Line:
    """The record that deletes an id, as verdicts have it. number: its position in the list of ids.

    Raises:
        UsageError: the id is invalid, or does not begin with `id_prefix`.
    """
    if prefix := settings.id_prefix:
        if not str(id).startswith(prefix):
            raise UsageError(f"{str(id)[:100]!a} does not begin with {prefix}, as all ids of its documents topic do")
        id = str(id).removeprefix(prefix)
        if settings.key_is_id == "json" and INTEGER.fullmatch(id.encode(errors="replace")):
            id = int(id)
    try:
        json = id_text(id)
        plain = str(id).encode()
    except (Refused, UnicodeEncodeError) as error:
        raise UsageError(f"{str(id)[:100]!a}: {error}") from None
    if settings.key_is_id is None:
        assert settings.deleted_field is not None, "`check` has seen to it"
        value = b"{%b:%b,%b:true}" % (orjson.dumps(settings.id_field), json, orjson.dumps(settings.deleted_field))
        return Line(plain, value, "the ids", number)
    if settings.key_is_id == "string" and not isinstance(id, str):
        raise UsageError(f"{id} is a number, and with key_is_id = string ids are text: give it as text")
    return Line(json if settings.key_is_id == "json" else plain, None, "the ids", number)
