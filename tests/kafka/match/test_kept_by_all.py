"""Several shards that keep answer as the embedded engine does, whoever begins again, and wherever."""

import json
import random
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from support.feeds import ranked
from support.kafka.pipe import BLOCK, Pipe
from support.kafka.replica_play import (
    UPDATES,
    WINDOW,
    feed_of,
    frames,
    oracle,
    settings_of,
)
from support.long_form import rotating

from stream_lsh.documents.document import Document
from stream_lsh.kafka.tools.restored import documents as restored
from stream_lsh.settings.model import Settings
from stream_lsh.wire.changes import Change
from stream_lsh.wire.decisions import Decisions


def played(settings: Settings, log: list[bytes], folder: Path, seed: int, often: float = 0.8) -> Pipe:
    """All of a log through all of them; often: how probable trouble is behind a frame. Without a seed there is none."""
    chance, pipe = random.Random(seed), Pipe(settings, log, folder)
    for number, sequenced in enumerate(pipe.log):
        pipe.step(sequenced)
        if seed and number > 3 and chance.random() < often:
            pipe.trouble(chance)
    pipe.close()
    return pipe


def cases(quick: tuple[Any, ...], seeds: Iterable[int], varied: Iterable[dict[str, Any]], share: int) -> list[Any]:
    """Settings, seed and documents."""
    return [quick, *rotating(((given, seed, 1500) for given, seed in product(varied, seeds)), share)]


KEPT = [{"shards": shards, "segment_documents": size} for shards in (2, 5) for size in (None, 47)]
CHANGED = [{**UPDATES, "shards": shards} for shards in (2, 3, 5)]
KEEP: list[dict[str, Any]] = [
    {"keep": "longest"}, {"keep": "newest"}, {"keep": "best", "rank_field": "rank"},
    {"keep_per": "source", "source_field": "source"},
    {"keep": "best", "rank_field": "rank", "keep_per": "source", "source_field": "source"},
]  # fmt: skip
KEEPING = [
    {**keep, **given, "shards": shards}
    for keep, given, shards in product(KEEP, ({}, UPDATES, UPDATES | WINDOW), (2, 3))
]
WINDOWED = [{**UPDATES, **WINDOW, "shards": shards} for shards in (2, 3)]


@pytest.mark.parametrize(
    ("given", "seed", "n"),
    [
        *cases((KEPT[1], 1, 300), range(8), KEPT, 3),
        *cases((CHANGED[1], 1, 500), range(6), CHANGED, 2),
        *cases((WINDOWED[0], 2, 250), (0, 2, 3, 4, 5), WINDOWED, 1),
        *cases((KEEPING[9], 1, 500), range(1, 4), KEEPING, 2),
    ],
)
def test_as_embedded_whoever_begins_again(
    request: pytest.FixtureRequest, tmp_path: Path, given: dict[str, Any], seed: int, n: int
) -> None:
    """New representatives are found where all answers meet; the shards hear of them with the block after the next."""
    settings = settings_of(**{**given, "decision_lag": 2 * BLOCK})
    if settings.window is not None:
        request.getfixturevalue("short_memory")
    documents = ranked(feed_of(settings, n), random.Random(seed))
    log = frames(settings, documents, seed if settings.window is None else 0)
    pipe = played(settings, log, tmp_path, seed, often=0.5 if settings.window else 0.8)
    assert b"\n".join(pipe.said) == oracle(settings, log, tmp_path / "oracle", documents)
    assert pipe.runs > n // (100 if settings.window else 75) or not seed
    sent = [Decisions.decode(data, settings) for data in pipe.decided]
    if settings.keep != "first":
        superseded = b"".join(pipe.said).count(b',"supersedes":')
        assert sum(len(decisions.superseded) for decisions in sent) == superseded
        assert superseded > n // 50 or settings.keep == "longest"
        return
    if settings.keep_per is not None:
        return
    if not settings.updates:
        assert sum(len(decisions.names) for decisions in sent) > n // 5
        return
    assert b"".join(pipe.said).count(b',"new_representatives":[') > n // 400
    if settings.window is None:
        assert (
            sum(len(d.deleted) for d in sent) > n // 30
            and sum(int((d.representatives.kind == 0).sum()) for d in sent) > 1
        )
        check_restored(settings, pipe.changes, documents)


def check_restored(settings: Settings, changes: list[list[bytes]], documents: Sequence[Document]) -> None:
    """As `reindex --from-changelog` reads them, the changes of all shards have the documents that they store."""
    for each in zip(*changes, strict=True):
        found, source = restored([Change.decode(data, settings) for data in each], settings)
        there = [documents[offset] for offset in source.offsets.tolist()]
        assert found.ids == [json.dumps(document.id).encode() for document in there]
        stored = [i for i in range(len(there)) if i not in found.rejected and i not in found.deleted]
        assert found.texts == "".join([there[i].text or "" for i in stored]).encode()
