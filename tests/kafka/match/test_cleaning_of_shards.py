"""Erasing with several shards."""

from pathlib import Path

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray
from support.kafka import match_play
from support.kafka.cleaning_play import Changelog, Owner
from support.kafka.pipe import BLOCK, of_shard
from support.kafka.replica_play import UPDATES, settings_of

from stream_lsh.documents.document import Document
from stream_lsh.index.batch import owners
from stream_lsh.index.rows.layout import ERASED, FLAGS, REPRESENTATIVE
from stream_lsh.kafka.match import cleaning

SETTINGS = settings_of(**UPDATES, shards=2, decision_lag=2 * BLOCK)
TEXT = "a b c d e f g h i j"


@pytest.fixture(autouse=True)
def small(short_memory: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots have many records; answers are kept for five frames."""
    monkeypatch.setattr(cleaning, "RECORD_ROWS", 40)
    monkeypatch.setattr(cleaning, "LOOK_SECONDS", 0)


def ids_in(shard: int, n: int) -> list[str]:
    """Long ids of documents that a shard stores, so that those of a block fill a file of their own."""
    ids = [f"name-{number:080}-" for number in range(6 * n)]
    shards = owners([orjson.dumps(id) for id in ids], 2).tolist()
    return [id for id, owner in zip(ids, shards, strict=True) if owner == shard][:n]


def others(first: int, blocks: int) -> list[Document]:
    """Documents with words of their own, which fill blocks."""
    return [Document(f"other-{i}", f"{i} " * 9, time=10**6 + i) for i in range(first, first + blocks * BLOCK)]


def representatives_of(owner: Owner) -> NDArray[np.int64]:
    """The flags of the representative rows."""
    shard = owner.replica.shard
    flags = shard.stored.at(np.arange(shard.count))[:, FLAGS].astype(np.int64)
    return flags[flags & REPRESENTATIVE != 0]


def test_representative_rows_that_were_not_chosen_are_erased(tmp_path: Path) -> None:
    """An older document of the other shard was. And those whose documents are deleted while they are provisional."""
    (kept, second), (copy, third) = ids_in(0, 2), ids_in(1, 2)
    documents = [Document(id, TEXT, time=1 + i) for i, id in enumerate((kept, second, copy))]
    alone = [Document(id, f"{TEXT} k l m n o p q r s t", time=10 + i) for i, id in enumerate((f"{kept}-", third))]
    documents += [*alone, *others(0, 3)]
    documents += [Document(each.id, time=10**5, deleted=True) for each in (documents[0], alone[0])]
    documents += [*others(1000, 2), Document(third, time=10**7, deleted=True), *others(2000, 5)]
    data, wanted = of_shard(SETTINGS, match_play.frames(SETTINGS, documents, 16), tmp_path, documents)
    log = Changelog()
    owner = Owner(SETTINGS, tmp_path / "owner", log, shard=1)
    assert [owner.match(frame) for frame in data] == wanted
    owner.cycle()
    representatives = representatives_of(owner)
    assert len(representatives) == 2 and (representatives & ERASED != 0).all()
    owner.replica.close()
