"""Updates and deletions: as the model has it, whatever batches, flushes, generations and restarts there are."""

from __future__ import annotations

import json
import lzma
import random
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.long_form import seeds
from test_window import (
    ANY,
    START,
    SURE,
    UNIQUE,
    comparable,
    dated,
    fed,
    in_pieces,
    long_history,
    modelled,
    opened,
    same,
    texts,
    times,
)

from stream_lsh.documents.columns import Document, columns
from stream_lsh.embedded.information import information
from stream_lsh.errors import DamagedError, UsageError
from stream_lsh.index.dead import CHUNK
from stream_lsh.index.index import Index
from stream_lsh.index.store import DEAD, Store, rows_key
from stream_lsh.settings import Settings

actions = st.tuples(st.integers(0, 12), texts, times, st.sampled_from(("", "", "", "deleted", "timeless deletion")))
histories = st.lists(actions, min_size=1, max_size=150)
SLOW = [pytest.param(UNIQUE, 3, marks=pytest.mark.long), pytest.param(ANY, 3, marks=pytest.mark.long)]
SLOW_IDS = ["unique-3", "any-3"]


def changed(history: Any) -> list[Document]:
    """Documents, some of which are deletions."""
    documents = dated([step[:3] for step in history])
    for i, (*_, what) in enumerate(history, 1):
        if what:
            time = None if what == "timeless deletion" else documents[i].time
            documents[i] = Document(documents[i].id, time=time, deleted=True)
    return documents


@pytest.mark.parametrize(
    ("against", "shards"), [(UNIQUE, 1), (UNIQUE, 2), (ANY, 1), *SLOW], ids=["unique", "unique-2", "any", *SLOW_IDS]
)
@hypothesis_settings(max_examples=100, deadline=None)
@given(
    histories, st.sampled_from((None, None, "1s", "10s", "2m")), st.sampled_from(("update", "reject")), st.integers(0)
)
def test_histories(
    tmp_path_factory: pytest.TempPathFactory, against: Any, shards: int, history: Any, window: str | None,
    on_same_id: Any, seed: int,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    settings = Settings(
        **{**SURE, "generation_documents": chance.choice((5, 40, 1000, 10**6))}, **against, window=window,
        on_same_id="update" if against is ANY or shards > 1 else on_same_id, shards=shards,
        decided_after=chance.choice((2, 2, 10, 30)), memory_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    documents = changed(history)
    found = in_pieces(documents, settings, tmp_path_factory.mktemp("index"), chance)
    same(*(comparable(side, settings) for side in (found, modelled(documents, settings))))


def changing_history(seed: int, n: int) -> list[Document]:
    """Families of copies and drifting texts, of which many are changed and withdrawn, some again and again."""
    chance, documents = random.Random(seed), long_history(seed, n)
    for i in range(100, n):
        what, old = chance.random(), documents[chance.randrange(max(1, i - 400), i)]
        time = documents[i].time
        if what < 0.15:
            documents[i] = Document(old.id, documents[i].text, time=time)
        elif what < 0.3:
            documents[i] = Document(old.id, time=None if chance.random() < 0.3 else time, deleted=True)
        elif what < 0.35:
            documents[i] = Document("again", documents[i].text, time=time)
    return documents


@pytest.mark.parametrize("window", [None, "8m"])
@pytest.mark.parametrize(
    ("against", "shards"), [(UNIQUE, 1), (UNIQUE, 2), (ANY, 1), *SLOW], ids=["unique", "unique-2", "any", *SLOW_IDS]
)
@pytest.mark.parametrize("seed", seeds(1, 2, 3))
def test_a_long_history(tmp_path: Path, seed: int, against: Any, shards: int, window: str | None) -> None:
    settings = Settings(
        **SURE, **against, shards=shards, decided_after=100, window=window, on_same_id="update", memory_documents=64
    )
    documents = changing_history(seed, 3000)
    found = in_pieces(documents, settings, tmp_path / "index", random.Random(seed))
    same(*(comparable(side, settings) for side in (found, modelled(documents, settings))))
    kinds = {"unique", "near_duplicate", "exact_duplicate", "redelivered", "deleted", "outdated"}
    assert kinds <= {verdict[0] for verdict in found}
    heirs = sum((verdict[7] is not None) + len(verdict[8]) for verdict in found)
    assert (heirs == 0) if against is ANY else (heirs > 5)
    assert sum(verdict[6] is not None and verdict[0] == "unique" for verdict in found) > 5
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize("order", ["as they came", "the kept one last", "any"])
def test_a_crowd_of_one_text_goes(tmp_path: Path, order: str) -> None:
    """It has heirs to its end, however many have died before them; and when the text comes again nobody is met."""
    text, chance = "one text of nine words that all of them have", random.Random(1)
    ids = {"as they came": list(range(600)), "the kept one last": [*range(1, 599), 0, 599]}.get(order)
    gone = [Document(str(i), deleted=True) for i in ids or chance.sample(range(600), 600)]
    documents = [Document(str(i), text) for i in range(600)] + gone + [Document(f"new {i}", text) for i in range(3)]
    settings = Settings(**{**SURE, "bucket_size": 2}, **UNIQUE, on_same_id="update", memory_documents=64)
    found = in_pieces(documents, settings, tmp_path / "index", random.Random(1))
    same(*(comparable(side, settings) for side in (found, modelled(documents, settings))))
    heirs = sum(verdict[7] is not None for verdict in found)
    assert heirs == {"as they came": 599, "the kept one last": 1}.get(order, heirs) > 0


@pytest.mark.long
@pytest.mark.parametrize("shards", [1, 3])
def test_pages_that_were_crawled_again_and_again(tmp_path: Path, shared_data: Path, shards: int) -> None:
    """Each crawl is an update of its page, of which there are copies; some pages are taken down, or come late."""
    chance, documents = random.Random(5), []
    with lzma.open(shared_data / "terms-3k.jsonl.xz") as file:
        for line in file:
            page = json.loads(line)
            text, time = " ".join(re.findall(r"\w+", page["text"].lower())), page["ts"]
            documents.append(Document(page["source"], text, time=time))
            if chance.random() < 0.2:
                documents.append(Document(f"{page['source']} {chance.randrange(3)}", text, time=time))
            if chance.random() < 0.05:
                old = chance.choice(documents[-chance.choice((50, 1500)) :])  # undecided still, or decided
                documents.append(Document(old.id, time=chance.choice((None, time)), deleted=True))
            elif chance.random() < 0.02:
                documents.append(chance.choice(documents[-50:]))
    settings = Settings(
        **{**SURE, "threshold": 0.8}, **UNIQUE, on_same_id="update", shards=shards, decided_after=100,
        memory_documents=500,
    )  # fmt: skip
    found = in_pieces(documents, settings, tmp_path / "index", chance)
    same(found, modelled(documents, settings))
    kinds = Counter(verdict[0] for verdict in found)
    assert min(kinds[kind] for kind in ("near_duplicate", "exact_duplicate", "deleted", "outdated")) > 5, kinds
    assert sum(verdict[6] is not None and verdict[0] == "unique" for verdict in found) > 1000
    assert sum((verdict[7] is not None) + len(verdict[8]) for verdict in found) > 5


def test_ids_that_were_deleted_come_again_as_their_heirs(tmp_path: Path) -> None:
    """What is kept of such a deletion has the heir's signature, but no text: none is read, not even ahead."""
    texts = [" ".join(f"w{i}x{k}" for k in range(20)) for i in range(60)]
    documents = [Document(f"{who} {i}", text) for i, text in enumerate(texts) for who in ("first", "second")]
    documents += [Document(f"first {i}", deleted=True) for i in range(60)]
    again = [Document(f"{'first' if i % 3 else 'third'} {i}", text + " more") for i, text in enumerate(texts)]
    settings = Settings(**SURE, **UNIQUE, on_same_id="update", memory_documents=16)
    with opened(settings, tmp_path / "index") as index:
        found = fed(index, documents, 0)
        index.commit({})
    with opened(settings, tmp_path / "index") as index:
        found += fed(index, again, len(documents))
    same(found, modelled(documents + again, settings))
    assert [verdict[2] for verdict in found[-60:]] == [f"second {i}" for i in range(60)]


def met(index: Index, text: str) -> int:
    """How many documents are similar to a text."""
    (found,) = index.query(index.sign(columns([Document("new", text)])))
    return len(found.row)


def gone(folder: Path, settings: Settings) -> list[Document]:
    """An index in whose first and second chunk of bits something died, before its last commit; and what it was fed."""
    feed = [Document(str(i), f"{i} {i} {i + 1}", time=START) for i in range(CHUNK + 5)]
    with opened(settings, folder) as index:
        fed(index, [*feed, Document("7", "x y z"), Document(str(CHUNK + 1), deleted=True)], 0)
        index.commit({})
        fed(index, [Document("8", deleted=True)], CHUNK + 7)
        with opened(Settings(), folder, read_only=True) as reader:
            assert (reader.count, index.count) == (CHUNK + 4, CHUNK + 3)
            texts = [feed[7].text or "", feed[8].text or "", feed[CHUNK + 1].text or "", "x y z"]
            assert [met(reader, text) for text in texts] == [0, 1, 0, 1]
            assert [met(index, text) for text in texts] == [0, 0, 0, 1]
    return feed


def test_what_died_is_known_to_readers_and_later_processes(tmp_path: Path) -> None:
    feed = gone(tmp_path, Settings(**SURE, **UNIQUE, on_same_id="update"))
    with opened(Settings(), tmp_path) as index:
        assert index.count == CHUNK + 4
        assert [met(index, feed[i].text or "") for i in (6, 7, 8, CHUNK, CHUNK + 1)] == [1, 0, 1, 1, 0]
    facts: Any = information(tmp_path, check=True)
    assert (facts["documents"]["stored"], facts["health"]["problems"]) == (CHUNK + 4, [])


@pytest.mark.parametrize("damage", ["lost", "changed", "of rows that are not there"])
def test_what_says_who_died_is_damaged(tmp_path: Path, damage: str) -> None:
    gone(tmp_path, Settings(**SURE, **UNIQUE, on_same_id="update"))
    store = Store(tmp_path / "db")
    ((row, bits),) = store.rows_of(DEAD, 0, 4)
    assert row == CHUNK
    key = rows_key(DEAD, 0, 4, row)
    if damage == "lost":
        store.write({}, ranges=[(key, key + b"\0")])
    else:
        store.write({key: bits + b"\1" if damage == "changed" else b"\0" * CHUNK + b"\1"})
    store.close()
    said = "what says which rows of shard 0 were replaced or deleted is damaged; restore the folder from a backup"
    facts: Any = information(tmp_path, check=True)
    assert [said in problem for problem in facts["health"]["problems"]] == [True]
    for more in ({}, {"read_only": True}):
        with pytest.raises(DamagedError, match=said), opened(Settings(), tmp_path, **more):
            pass


@pytest.mark.parametrize("shards", [1, 2])
def test_a_batch_of_nobody_may_come_first(tmp_path: Path, shards: int) -> None:
    index = Index(Settings(on_same_id="update", shards=shards), tmp_path / "index")
    for batch in ([], [Document("a", "one two three four five six seven")], []):
        found = index.match(index.sign(columns(batch)), np.arange(index.count, index.count + len(batch)))
        assert [len(matches.status) for matches in found] == [len(batch)] * shards
    assert index.count == 1
    index.close()


def test_what_cannot_be_deleted_yet_is_refused(tmp_path: Path) -> None:
    for name, settings in (("any", Settings(against="any")), ("two", Settings(shards=2))):
        with opened(settings, tmp_path / name) as index:
            fed(index, [Document("a", "a b c", time=START)], 0)
            with pytest.raises(UsageError, match="nothing can be deleted from the index in"):
                fed(index, [Document("b", "a b c"), Document("a", deleted=True)], 1)
            assert index.count == 1
