"""All documents of some inputs with their shingles, and the same documents as a file that the engine can read."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from stream_lsh.evaluation.contained import Contained
from stream_lsh.evaluation.exact import Ranked
from stream_lsh.evaluation.items import Items
from stream_lsh.evaluation.lists import Lists
from stream_lsh.evaluation.reading import read_batches, texts_of
from stream_lsh.families.family import signer_of
from stream_lsh.settings.model import Settings

Compared = Ranked | Items | Lists | Contained
"""Documents by position, with the true similarity of any two."""


@dataclass
class Collection:
    """Documents by position: those that the engine compares, each id once.

    Documents that differ in the field of `match_within` share no shingle. The items of other measures are used as they
    are."""

    ids: list[bytes] = field(default_factory=list)  # as JSON text
    scopes: NDArray[np.uint64] = field(default_factory=lambda: np.empty(0, np.uint64))  # hashes, or zeros
    compared: Compared = field(default_factory=lambda: Ranked(np.empty(0, np.int32), np.zeros(1, np.int64), 0))
    rejected: Counter[str] = field(default_factory=Counter)  # documents left out, by reason
    repeated: int = 0  # documents left out because their id was there before: they make no pairs

    def __len__(self) -> int:
        return len(self.ids)

    def name(self, position: int) -> str | int:
        """The id of a document as it was given."""
        value: str | int = json.loads(self.ids[position])
        return value


def collect(
    settings: Settings, inputs: Sequence[str], limit: int | None = None, copy: BinaryIO | None = None
) -> Collection:
    """Read and sign the first `limit` documents of the inputs; 8 bytes a shingle (or a number of a vector) stay in
    memory.

    `copy` gets the same documents as JSON lines for `copied_settings`, so that pipes and parts of a file can be
    evaluated as well. Their ids are the positions. Raises InputError.
    """
    collection = Collection()
    signer = signer_of(settings.signing)
    seen: set[bytes] = set()
    shingles: list[NDArray[np.uint64]] = []
    sizes: list[NDArray[np.int64]] = []
    for batch in read_batches(settings, inputs):
        texts, places = [], []
        for place, text in texts_of(batch):
            if len(seen) + collection.repeated == limit:
                break
            if batch.ids[place] in seen:
                collection.repeated += 1
                continue
            seen.add(batch.ids[place])
            collection.ids.append(batch.ids[place])
            texts.append(text)
            places.append(place)
        full = len(seen) + collection.repeated == limit
        collection.rejected.update(rejection.reason for rejection in batch.rejected.values())
        if texts:
            ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
            signed = signer.sign(b"".join(texts), ends, want_shingles=True)
            hashes = batch.scope_hashes(signer.key)
            scopes = hashes[places] if len(hashes) else np.zeros(len(texts), np.uint64)
            collection.scopes = np.concatenate((collection.scopes, scopes))
            sizes.append(np.diff(signed.offsets))
            apart = settings.measure == "jaccard"
            shingles.append(signed.shingles ^ np.repeat(scopes, sizes[-1]) if apart else signed.shingles)
            if copy is not None:
                new = range(len(collection) - len(texts), len(collection))
                copy.write(b"".join(_line(settings, *item) for item in zip(new, texts, scopes.tolist(), strict=True)))
        if full:
            break
    if settings.dimensions is not None:
        words = np.concatenate([np.empty(0, np.uint64), *shingles]).reshape(len(collection), -1 if shingles else 0)
        collection.compared = Items(settings.measure, settings.dimensions, words, collection.scopes)
    elif shingles:
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(sizes))])
        words = np.concatenate(shingles)
        if settings.measure in ("levenshtein", "weighted-jaccard"):
            collection.compared = Lists(settings.measure == "levenshtein", words, offsets, collection.scopes)
        else:
            collection.compared = Ranked.of(words, offsets)
    if settings.measure == "containment" and isinstance(collection.compared, Ranked):
        collection.compared = Contained(collection.compared)
    return collection


def copied_settings(settings: Settings) -> Settings:
    """The settings that read a copy made by `collect`: all matches of every document, independent of the settings
    given."""
    changes = {
        "id_field": "id",
        "text_field": ("text",),
        "time_field": None,
        "set_field": "set" if settings.set_field is not None else None,
        "vector_field": None,
        "bits_field": None,
        "match_within": ("scope",) if settings.match_within else (),
        "compare_with": "all",
        "max_verified_matches": 0,
        "max_matches": 0,
        "max_document_bytes": 2**30,  # escapes can make a line longer than the original
    }
    return Settings(**{**settings.model_dump(), **changes})


def _line(settings: Settings, position: int, text: bytes, scope: int) -> bytes:
    if settings.item is not None:
        value = text if settings.measure == "weighted-jaccard" else b'"%b"' % text  # it is JSON
        return b'{"id": %d, "scope": %d, "%b": %b}\n' % (position, scope, settings.item.kind.encode(), value)
    plain = text.decode("utf-8", "surrogatepass")
    if settings.set_field is None:
        return b'{"id": %d, "scope": %d, "text": %b}\n' % (position, scope, json.dumps(plain).encode("ascii"))
    # Elements with a separator inside were escaped when they were joined; they stay so, which keeps them different.
    return b'{"id": %d, "scope": %d, "set": %b}\n' % (position, scope, json.dumps(plain.split("\x1f")).encode("ascii"))
