"""Whatever batches, flushes, erasing and restarts: an index says what the model of windows and updates says."""

import json
import lzma
import random
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import START, drifting, drifting_and_changing, families
from support.in_memory import temporary_folder
from support.indexes import ANY, SURE, UNIQUE, agreed, modelled, opened, same, verdicts_of
from support.long_form import LONG, rotating
from support.short_histories import short_histories

from stream_lsh.documents.document import Document
from stream_lsh.embedded.information import information
from stream_lsh.settings.model import Settings

MODES = {"kept": UNIQUE, "all": ANY}


def cases(every: Iterable[tuple[Any, ...]], quick: Sequence[tuple[Any, ...]], gate: int) -> list[Any]:
    """The quick ones; of the others the gate runs as many as it says."""
    return [*quick, *rotating([case for case in every if case not in quick], gate)]


def healthy(folder: Path) -> None:
    facts: Any = information(folder, check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize(("compare_with", "shards"), cases(product(MODES, (1, 2, 3)), [("kept", 2)], 2))
@hypothesis_settings(max_examples=100 if LONG else 20, deadline=None)
@given(
    short_histories(), st.sampled_from((None, None, "1s", "10s", "2m", "20m")), st.booleans(), st.booleans(),
    st.integers(0),
)  # fmt: skip
def test_short_histories(
    compare_with: str, shards: int, documents: list[Document], window: str | None, updates: bool, erasing: bool,
    seed: int,
) -> None:  # fmt: skip
    chance = random.Random(seed)
    # What cannot be deleted under `reject` is refused: see test_changes.py.
    must = any(document.deleted for document in documents) and (compare_with == "all" or shards > 1)
    settings = Settings(
        **{**SURE, "segment_documents": chance.choice((20, 60, 1000, 10**6))}, **MODES[compare_with], window=window,
        on_conflict="update" if updates or must else "reject", shards=shards,
        decision_lag=chance.choice((2, 2, 10, 30, 1000)), memtable_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    with temporary_folder() as folder:
        agreed(documents, settings, folder, chance, erasing=erasing)


@pytest.mark.parametrize(
    ("seed", "compare_with", "shards"), cases(product(range(3), MODES, (1, 3)), [(0, "all", 1)], 2)
)
def test_a_feed_of_many_windows(tmp_path: Path, seed: int, compare_with: str, shards: int) -> None:
    settings = Settings(
        **SURE, **MODES[compare_with], window="8m", shards=shards, decision_lag=100, memtable_documents=16
    )  # fmt: skip
    documents = drifting(seed, 4000 if LONG or seed else 1000)
    found = agreed(documents, settings, tmp_path, random.Random(seed))
    assert {verdict.kind for verdict in found} == {
        "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected"
    }  # fmt: skip
    with opened(settings, tmp_path) as index:
        assert index.count < 0.5 * len(documents)
        assert index.shards[0].segments[0].first > 0


CHANGING = [
    (seed, compare_with, shards, window)
    for seed, (compare_with, shards), window in product(
        range(3), (("kept", 1), ("kept", 2), ("kept", 3), ("all", 1), ("all", 3)), (None, "8m")
    )
]


@pytest.mark.parametrize(("seed", "compare_with", "shards", "window"), cases(CHANGING, [(0, "kept", 2, "8m")], 4))
def test_a_feed_of_updates_and_deletions(
    tmp_path: Path, seed: int, compare_with: str, shards: int, window: str | None
) -> None:
    settings = Settings(
        **SURE, **MODES[compare_with], shards=shards, decision_lag=100, window=window, on_conflict="update",
        memtable_documents=16,
    )  # fmt: skip
    documents = drifting_and_changing(seed, 3000 if LONG or seed else 1000)
    found = agreed(documents, settings, tmp_path, random.Random(seed), erasing=seed % 2 == 0)
    kinds = {"unique", "near_duplicate", "exact_duplicate", "redelivered", "deleted", "outdated"}
    assert kinds <= {verdict.kind for verdict in found}
    representatives = sum(
        (verdict.new_representative is not None) + len(verdict.new_representatives) for verdict in found
    )
    assert (representatives == 0) if compare_with == "all" else (representatives > 5)
    assert sum(verdict.replaces is not None and verdict.kind == "unique" for verdict in found) > 5
    healthy(tmp_path)


@pytest.mark.parametrize(
    ("seed", "compare_with", "shards"), cases(product(range(20), MODES, (1, 2, 3)), [(1, "kept", 3)], 8)
)
def test_families_whose_ids_go_and_come_again(tmp_path: Path, seed: int, compare_with: str, shards: int) -> None:
    """With hardly any memory: long texts of shared words, as others of the family had them before."""
    chance = random.Random(seed)
    settings = Settings(
        **{
            **SURE,
            "threshold": chance.choice((0.45, 0.6, 0.75)),
            "segment_documents": chance.choice((100, 200, 1000, 10**6)),
        },
        **MODES[compare_with],
        shards=shards,
        on_conflict="update",
        window=chance.choice((None, None, "1m", "4m", "15m")),
        decision_lag=chance.choice((2, 10, 100)),
        memtable_documents=chance.choice((16, 16, 16, 64)),
    )
    agreed(families(seed, 700 if LONG else 450), settings, tmp_path, chance, erasing=True)
    healthy(tmp_path)


@pytest.mark.parametrize("order", ["as they came", "the kept one last", "all"])
def test_a_crowd_of_one_text_goes(tmp_path: Path, order: str) -> None:
    """It has representatives to its end; and when the text comes again nobody is met."""
    n, text, chance = 600 if LONG else 200, "one text of nine words that all of them have", random.Random(1)
    ids = {"as they came": list(range(n)), "the kept one last": [*range(1, n - 1), 0, n - 1]}.get(order)
    gone = [Document(str(i), deleted=True) for i in ids or chance.sample(range(n), n)]
    documents = [Document(str(i), text) for i in range(n)] + gone + [Document(f"new {i}", text) for i in range(3)]
    settings = Settings(**{**SURE, "max_bucket_rows": 2}, **UNIQUE, on_conflict="update", memtable_documents=16)
    found = agreed(documents, settings, tmp_path, random.Random(1))
    representatives = sum(verdict.new_representative is not None for verdict in found)
    assert representatives == {"as they came": n - 1, "the kept one last": 1}.get(order, representatives) > 0


@pytest.mark.parametrize("shards", rotating([1, 3], 1))
def test_pages_that_were_crawled_again_and_again(tmp_path: Path, shared_data: Path, shards: int) -> None:
    """Each crawl is an update of its page, of which there are copies; some pages are taken down, or come late."""
    chance, documents = random.Random(5), []
    with lzma.open(shared_data / "terms-3k.jsonl.xz") as file:
        for line in islice(file, 3000 if LONG else 700):
            page = json.loads(line)
            text, time = " ".join(re.findall(r"\w+", page["text"].lower())), page["ts"]
            documents.append(Document(page["source"], text, time=time))
            if chance.random() < 0.2:
                documents.append(Document(f"{page['source']} {chance.randrange(3)}", text, time=time))
            if chance.random() < 0.05:
                old = chance.choice(documents[-chance.choice((50, 1500)) :])  # provisional still, or decided
                documents.append(Document(old.id, time=chance.choice((None, time)), deleted=True))
            elif chance.random() < 0.02:
                documents.append(chance.choice(documents[-50:]))
    settings = Settings(
        **{**SURE, "threshold": 0.8}, **UNIQUE, on_conflict="update", shards=shards, decision_lag=100,
        memtable_documents=500,
    )  # fmt: skip
    found = agreed(documents, settings, tmp_path, chance)
    kinds = Counter(verdict.kind for verdict in found)
    assert min(kinds[kind] for kind in ("near_duplicate", "exact_duplicate", "deleted", "outdated")) > 2, kinds
    assert sum(verdict.replaces is not None and verdict.kind == "unique" for verdict in found) > len(found) // 4
    assert sum((verdict.new_representative is not None) + len(verdict.new_representatives) for verdict in found) > 2


def test_ids_that_were_deleted_come_again_as_their_representatives(tmp_path: Path) -> None:
    """What is kept of such a deletion has the new representative's signature, but no text: none is read."""
    texts = [" ".join(f"w{i}x{k}" for k in range(20)) for i in range(60)]
    documents = [Document(f"{who} {i}", text) for i, text in enumerate(texts) for who in ("first", "second")]
    documents += [Document(f"first {i}", deleted=True) for i in range(60)]
    again = [Document(f"{'first' if i % 3 else 'third'} {i}", text + " more") for i, text in enumerate(texts)]
    settings = Settings(**SURE, **UNIQUE, on_conflict="update", memtable_documents=16)
    with opened(settings, tmp_path) as index:
        found = verdicts_of(index, documents, 0)
        index.commit({})
    with opened(settings, tmp_path) as index:
        found += verdicts_of(index, again, len(documents))
    same(found, modelled(documents + again, settings))
    assert [verdict.duplicate_of for verdict in found[-60:]] == [f"second {i}" for i in range(60)]


def test_an_id_that_comes_again_has_not_the_copies_of_the_one_before(tmp_path: Path) -> None:
    """Under `all`: all in one segment, where copies stand behind a row that is not seen any more."""
    settings = Settings(**SURE, **ANY, window="10s")
    feed = [
        ("begin", "x y z", 0), ("a", "one two three", 1), ("c", "one two three", 6), ("b", "four five six", 7),
        ("a", "seven eight nine", 13), ("d", "seven eight nine", 14), ("e", "one two three", 15),
        ("f", "seven eight nine", 16), ("g", "one two", 16),
    ]  # fmt: skip
    # The median of the last few times has to follow at once: each time comes often enough, in what is redelivered.
    documents = [Document("begin", "x y z", time=START)]
    for id, text, second in feed:
        documents += [Document(f"clock {second}", "tick", time=START + 1000 * second)] * 70
        documents.append(Document(id, text, time=START + 1000 * second))
    with opened(settings, tmp_path) as index:
        found = verdicts_of(index, documents, 0)
    same(found, modelled(documents, settings))
    last = {str(d.id): verdict for d, verdict in zip(documents, found, strict=True)}
    assert [[id for id, *_ in last[name].matches] for name in "adefg"] == [[], ["a"], ["c"], ["a", "d"], ["c", "e"]]
