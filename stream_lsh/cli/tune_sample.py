"""The documents that `stream-lsh tune` draws from its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from stream_lsh.cli.limit import excluded
from stream_lsh.settings.model import Settings
from stream_lsh.wording import count

if TYPE_CHECKING:
    from stream_lsh.evaluation.sample import Sample

SAMPLE_BYTES = 32 * 2**20


def draw(
    settings: Settings, inputs: tuple[str, ...], documents: int, limit: int | None, rejected: Counter[str]
) -> Sample:
    """So many documents of the inputs at most, drawn evenly. rejected: gets the reasons of those that are left out."""
    from stream_lsh.evaluation.reading import read_batches, texts_of
    from stream_lsh.evaluation.sample import draw

    def texts() -> Iterator[bytes]:
        number = 0
        for batch in read_batches(settings, inputs):
            rejected.update(rejection.reason for rejection in batch.rejected.values())
            for _, text in texts_of(batch):
                if number == limit:
                    return
                number += 1
                yield text

    return draw(texts(), documents, SAMPLE_BYTES)


def described(settings: Settings, drawn: Sample, rejected: Counter[str], pairs: int | None = None) -> Iterator[str]:
    """What a sample is. pairs: that are compared, as if all could match."""
    yield ""
    compared = "" if pairs is None else f", {count(pairs, 'pair')}"
    yield f"Sample: {count(len(drawn), 'document')} of {drawn.seen:,}{compared}"
    yield from (f"  {line}" for line in excluded(rejected))
    if settings.match_within and pairs is not None:
        yield f"  all pairs are compared: fewer can match within {', '.join(settings.match_within)}"
    if pairs == 0:
        yield "  Too few documents to measure false candidates."
