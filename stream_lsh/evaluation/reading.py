"""Inputs of `tune` and `evaluate`: the documents that the engine would take, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from stream_lsh.documents.columns import Columns, Fields, Position
from stream_lsh.embedded.feed import open_input
from stream_lsh.embedded.lines import Batch
from stream_lsh.settings.model import Settings


def fields_of(settings: Settings, label_field: str | None = None) -> Fields:
    """The part of the settings that parsing needs; labels are read as sources. Event times count for stories only."""
    time = settings.time_field if settings.measure == "tf-idf" else None
    own = settings.document_fields
    return replace(own, time_field=time, source_field=label_field, deleted_field=None, timed=False)


def read_batches(settings: Settings, inputs: Sequence[str], label_field: str | None = None) -> Iterator[Batch]:
    """The documents of all inputs, one input after the other; with a `label_field`, their labels as sources.

    Raises:
        InputError: an input cannot be read; all are looked at before the first is read.
    """
    opened = [open_input(name, fields_of(settings, label_field)) for name in inputs]
    for source in opened:
        source.check()
    for source in opened:
        yield from source.batches(Position())


def texts_of(columns: Columns) -> Iterator[tuple[int, bytes]]:
    """(place, UTF-8 text) of the documents that are not rejected."""
    start = 0
    for place, end in enumerate(columns.ends.tolist()):
        if place not in columns.rejected:
            yield place, columns.texts[start:end]
        start = end
