"""Erasing with several shards: what others have of a deleted document leaves their folders and changelogs, too."""

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from numpy.typing import NDArray
from support.contents import contents, unpacked_from
from support.kafka import match_play
from support.kafka.cleaning_play import Changelog, Owner, followed
from support.kafka.pipe import BLOCK, Pipe, of_shard
from support.kafka.replica_play import STEP, UPDATES, WORDS, settings_of
from support.long_form import rotating

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.index.batch import owners
from stream_lsh.index.erasure.queue import places
from stream_lsh.index.rows.layout import ERASED, FLAGS, REPRESENTATIVE
from stream_lsh.kafka.match import cleaning
from stream_lsh.wire.bases import BEGINS, ENDS

SETTINGS = settings_of(**UPDATES, shards=2, decision_lag=2 * BLOCK)
TEXT = "a b c d e f g h i j"
COPIES = 40


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


def left(needle: str, log: Changelog, *folders: Path) -> list[str]:
    """Where a string can be read."""
    data = {"changelog": unpacked_from(log.left)} | {folder.name: contents(folder) for folder in folders}
    return [name for name, found in data.items() if any(needle.encode() in each for each in found)]


def test_ids_that_rows_were_dropped_for_are_erased_in_all_shards(tmp_path: Path) -> None:
    """Not before the shard knows that no verdict repeats them. A standby erases them as it reads."""
    (kept, live), copies = ids_in(0, 2), ids_in(1, 2 * COPIES)
    documents = [Document(id, TEXT, time=1 + i) for i, id in enumerate((kept, *copies[:COPIES]))]
    again = documents[1]
    documents += [Document(id, "k l m n o p q r", time=100 + i) for i, id in enumerate((live, *copies[COPIES:]))]
    documents += [*others(0, 3), Document(kept, time=10**5, deleted=True), *others(1000, 3), again]
    known = len(documents)
    documents += [*others(2000, 3), again, *others(3000, 4)]
    data, wanted = of_shard(SETTINGS, match_play.frames(SETTINGS, documents, 16), tmp_path, documents)
    log, folders = Changelog(), [tmp_path / name for name in ("owner", "standby", "newest")]
    owner = Owner(SETTINGS, folders[0], log, shard=1)
    for number in range(known // 16):
        assert owner.match(data[number]) == wanted[number]
    owner.cycle()
    standby = followed(SETTINGS, folders[1], log, shard=1)
    assert left(kept, log, *folders[:2]) == ["changelog", "owner", "standby"]
    for number in range(known // 16, len(data)):
        assert owner.match(data[number]) == wanted[number]
    owner.cycle()
    assert standby.changelog_offset is not None
    standby.apply(list(enumerate(log.values))[standby.changelog_offset + 1 :])
    newest = followed(SETTINGS, folders[2], log, shard=1)
    assert left(kept, log, *folders) == []
    assert left(copies[1], log, *folders) == ["changelog", "owner", "standby", "newest"]
    (representative,) = representatives_of(owner)
    assert not representative & ERASED  # it was chosen, and its document is live
    for replica in (owner.replica, standby, newest):
        replica.activate()
        replica.close()
        facts: Any = information(replica.folder, check=True)
        assert facts["health"]["problems"] == []


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


def test_a_deletion_in_another_shard_begins_a_snapshot(tmp_path: Path) -> None:
    """The replies of this shard have the ids of all documents of their frames."""
    (gone,) = ids_in(0, 1)
    documents = [Document(gone, TEXT, time=1), *others(0, 2), Document(gone, time=10**5, deleted=True), *others(500, 3)]
    data, wanted = of_shard(SETTINGS, match_play.frames(SETTINGS, documents, 3), tmp_path, documents)
    log = Changelog()
    owner = Owner(SETTINGS, tmp_path / "owner", log, shard=1)
    assert [owner.match(frame) for frame in data] == wanted
    assert left(gone, log, tmp_path / "owner") == ["changelog", "owner"]
    sent = owner.cycle()
    assert [mark.part for mark in (sent[0], sent[-1])] == [BEGINS, ENDS]
    assert left(gone, log, tmp_path / "owner") == []
    assert owner.clean(20) == []  # nothing else is due
    owner.replica.close()


def test_ids_of_rows_that_have_left_the_window_are_not_repeated(tmp_path: Path) -> None:
    """Their segment is still there. They left the window before their group had another representative."""
    (kept,), (copy,) = ids_in(0, 1), ids_in(1, 1)
    documents = [Document(kept, TEXT, time=1), Document(copy, TEXT, time=2), *others(0, 2)]
    documents += [Document(kept, time=10**7, deleted=True), *others(500, 3)]
    settings = settings_of(**UPDATES | {"window": "16m", "segment_documents": 400}, shards=2, decision_lag=2 * BLOCK)
    pipe = Pipe(settings, match_play.frames(settings, documents, 16), tmp_path / "pipe")
    log = Changelog()
    owner = Owner(settings, tmp_path / "owner", log, shard=1)
    for sequenced in pipe.log:
        pipe.step(sequenced)
        owner.match(pipe.sent[-1][1])
    pipe.close()
    assert left(kept, log) == ["changelog"]
    assert [mark.part for mark in owner.cycle()[-1:]] == [ENDS]
    assert owner.replica.shard.first == 0 and left(kept, log, tmp_path / "owner") == []
    owner.replica.close()


@pytest.mark.long
@pytest.mark.parametrize("seed", rotating(range(12), 2))
def test_deleted_ids_are_nowhere_in_random_histories(tmp_path: Path, seed: int) -> None:
    """Copies, updates, deletions, documents that come again; cleanings at any time, and owners that are closed. All
    replies are as without erasing."""
    chance, known, documents = random.Random(seed), dict[str, str](), list[Document]()
    settings = settings_of(**UPDATES, shards=chance.choice((2, 3)), decision_lag=2 * BLOCK)
    texts = [" ".join(chance.sample(WORDS, 12)) for _ in range(12)]
    for number in range(800):
        time, what, id = 10**12 + number * STEP, chance.random(), chance.choice([*known, "never-"])
        if what < 0.2:
            known.pop(id, None)
            documents.append(Document(id, time=time, deleted=True))
            continue
        id = id if what < 0.45 and id in known else f"name-{number}-"
        if what > 0.35 or id not in known:
            known[id] = " ".join((chance.choice(texts), *chance.sample(WORDS, chance.choice((0, 1)))))
        documents.append(Document(id, known[id], time=time))
    documents += [
        replace(each, time=10**12 + (800 + i) * STEP) for i, each in enumerate(others(0, 8 * settings.shards))
    ]
    gone = {id for each in documents if each.deleted and (id := str(each.id)) not in known}
    data, wanted = of_shard(settings, match_play.frames(settings, documents, 31), tmp_path, documents)
    log, folders, shard = Changelog(), [tmp_path / name for name in ("owner", "standby", "newest")], settings.shards - 1
    owner = Owner(settings, folders[0], log, shard=shard)
    for number, frame in enumerate(data):
        assert owner.match(frame) == wanted[number]
        owner.clean(chance.choice((0, 1, 1, 9)))
        if number == len(data) // 2:
            followed(settings, folders[1], log, shard=shard).close()
        elif chance.random() < 0.05:
            owner.replica.close()
            owner = Owner(settings, folders[0], log, shard=shard)
    while any(place.there < owner.replica.shard.late.first for place in places(owner.replica.store)):
        owner.clean(50)
    owner.replica.close()
    for folder in folders[1:]:
        followed(settings, folder, log, shard=shard).close()
    found = b"".join([*unpacked_from(log.left), *(each for folder in folders for each in contents(folder))])
    assert len(gone) > 50 and {id for id in gone if id.encode() in found} == set()
