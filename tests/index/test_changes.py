"""Updates and deletions: as the model has it, whatever batches, flushes, generations and restarts there are."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from test_window import START, SURE, UNIQUE, dated, fed, in_pieces, long_history, modelled, opened, same, texts, times

from stream_lsh.documents.columns import Document
from stream_lsh.embedded.information import information
from stream_lsh.errors import UsageError
from stream_lsh.settings import Settings

actions = st.tuples(st.integers(0, 12), texts, times, st.sampled_from(("", "", "", "deleted", "timeless deletion")))
histories = st.lists(actions, min_size=1, max_size=150)


def changed(history: Any) -> list[Document]:
    """Documents, some of which are deletions."""
    documents = dated([step[:3] for step in history])
    for i, (*_, what) in enumerate(history, 1):
        if what:
            time = None if what == "timeless deletion" else documents[i].time
            documents[i] = Document(documents[i].id, time=time, deleted=True)
    return documents


@hypothesis_settings(max_examples=100, deadline=None)
@given(
    histories, st.sampled_from((None, None, "1s", "10s", "2m")), st.sampled_from(("update", "reject")), st.integers(0)
)
def test_histories(
    tmp_path_factory: pytest.TempPathFactory, history: Any, window: str | None, on_same_id: Any, seed: int
) -> None:
    chance = random.Random(seed)
    settings = Settings(
        **SURE, **UNIQUE, window=window, on_same_id=on_same_id, memory_documents=chance.choice((16, 16, 65536)),
        generation_documents=chance.choice((5, 40, None)),
    )  # fmt: skip
    documents = changed(history)
    found = in_pieces(documents, settings, tmp_path_factory.mktemp("index"), chance)
    same(found, modelled(documents, settings))


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
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long), pytest.param(2, marks=pytest.mark.long)])
def test_a_long_history(tmp_path: Path, seed: int, window: str | None) -> None:
    settings = Settings(**SURE, **UNIQUE, window=window, on_same_id="update", memory_documents=64)
    documents = changing_history(seed, 3000)
    found = in_pieces(documents, settings, tmp_path / "index", random.Random(seed))
    same(found, modelled(documents, settings))
    kinds = {"unique", "near_duplicate", "exact_duplicate", "redelivered", "deleted", "outdated"}
    assert kinds <= {verdict[0] for verdict in found}
    assert sum(verdict[7] is not None for verdict in found) > 5
    assert sum(verdict[6] is not None and verdict[0] == "unique" for verdict in found) > 5
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []


def test_what_cannot_be_deleted_yet_is_refused(tmp_path: Path) -> None:
    for name, settings in (("any", Settings(against="any")), ("two", Settings(shards=2))):
        with opened(settings, tmp_path / name) as index:
            fed(index, [Document("a", "a b c", time=START)], 0)
            with pytest.raises(UsageError, match="nothing can be deleted from the index in"):
                fed(index, [Document("b", "a b c"), Document("a", deleted=True)], 1)
            assert index.count == 1
    for other in ({"against": "any"}, {"shards": 2}):
        with pytest.raises(ValueError, match="on_same_id = 'update' needs"):
            Settings(on_same_id="update", **other)  # type: ignore[arg-type]
