"""The feed of the demo: deterministic, of the size asked for, and with labels that are true."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

import pytest

from stream_lsh.demo.feed import DESCRIPTIONS, LEAST, SHARES, UNRELATED, Entry, Feed, make_feed

NO_DOCUMENT = ("broken", "id reused", "redelivered")


@pytest.fixture(scope="module")
def feed() -> Feed:
    return make_feed(1200, 5)


def shingles(document: Mapping[str, Any]) -> set[tuple[str, ...]]:
    """Plain shingles, without any of the engine's code: 3 words, or 8 characters of Chinese and Japanese."""
    text = f"{document['title']} {document['text']}".lower()
    if document["lang"] in ("zh", "ja"):
        tokens, k = [character for character in text if character.isalnum()], 8
    else:
        tokens, k = re.findall(r"[^\s.,:;!?\"“”«»()]+", text), 3
    return {tuple(tokens[i : i + k]) for i in range(max(1, len(tokens) - k + 1))}


def jaccard(first: Entry, second: Entry) -> float:
    a, b = shingles(first.document), shingles(second.document)
    return len(a & b) / len(a | b)


@pytest.mark.parametrize("documents", [LEAST, 41, 500])
def test_the_size_is_what_was_asked_for(documents: int) -> None:
    made = make_feed(documents, 1)
    assert len(made.entries) == documents
    assert {entry.kind for entry in made.entries} == {"story", *SHARES}
    assert set(DESCRIPTIONS) == {"story", *SHARES}
    assert all(line.count(b"\n") == 1 for line in made.lines())


def test_too_small_a_feed() -> None:
    with pytest.raises(ValueError, match="at least"):
        make_feed(LEAST - 1)


def test_the_feed_follows_from_the_seed() -> None:
    assert make_feed(200, 9) == make_feed(200, 9)
    assert make_feed(200, 9) != make_feed(200, 10)


def test_the_feed_is_the_same_in_another_process() -> None:
    script = (
        "import hashlib; from stream_lsh.demo.feed import make_feed; "
        "print(hashlib.sha256(b''.join(make_feed(300, 2).lines())).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == hashlib.sha256(b"".join(make_feed(300, 2).lines())).hexdigest()


def test_lines_are_documents_in_order_of_time_with_ids_of_their_own(feed: Feed) -> None:
    entries = [entry for entry in feed.entries if entry.kind not in NO_DOCUMENT]
    documents = [json.loads(entry.line) for entry in entries]
    assert all(document == entry.document for document, entry in zip(documents, entries, strict=True))
    assert all(set(document) == {"id", "ts", "source", "lang", "title", "text"} for document in documents)
    assert len({document["id"] for document in documents}) == len(documents)
    assert [document["ts"] for document in documents] == sorted(document["ts"] for document in documents)


def test_all_languages_are_there(feed: Feed) -> None:
    languages = Counter(entry.document["lang"] for entry in feed.entries)
    assert set(languages) == {"en", "de", "fr", "es", "zh", "ja", "ar", "hi"}
    assert languages["en"] > 0.75 * len(feed.entries)


def test_what_was_made_from_another_comes_after_it(feed: Feed) -> None:
    seen: set[str | None] = set()
    for entry in feed.entries:
        assert entry.parent is None or entry.parent in seen
        seen.add(entry.id)


@pytest.mark.parametrize(
    ("kind", "lowest", "usual"),
    [
        ("wire copy", 1.0, 1.0), ("headline changed", 0.8, 0.85), ("correction", 0.65, 0.85),
        ("newer figures", 0.75, 0.85), ("paragraph added", 0.65, 0.78), ("house style", 0.65, 0.85),
        ("reprint", 0.75, 0.83), ("live update", 0.65, 0.8),
    ],
)  # fmt: skip
def test_an_edit_leaves_what_it_should(feed: Feed, kind: str, lowest: float, usual: float) -> None:
    by_id = {entry.id: entry for entry in reversed(feed.entries)}
    found = sorted(jaccard(entry, by_id[entry.parent]) for entry in feed.entries if entry.kind == kind)
    assert found[0] >= lowest
    assert found[len(found) // 2] >= usual


def test_a_cut_leaves_little_or_much(feed: Feed) -> None:
    by_id = {entry.id: entry for entry in reversed(feed.entries)}
    found = [jaccard(entry, by_id[entry.parent]) for entry in feed.entries if entry.kind == "cut short"]
    assert min(found) < 0.6
    assert max(found) > 0.8


def test_stories_of_their_own_are_not_near_duplicates_of_each_other(feed: Feed) -> None:
    entries = [entry for entry in feed.entries if entry.kind in UNRELATED]
    sets = [shingles(entry.document) for entry in entries]
    holders: dict[tuple[str, ...], list[int]] = {}
    for number, its in enumerate(sets):
        for shingle in its:
            holders.setdefault(shingle, []).append(number)
    common: Counter[tuple[int, int]] = Counter()
    for numbers in holders.values():
        common.update(combinations(numbers, 2))
    worst = max(shared / (len(sets[a]) + len(sets[b]) - shared) for (a, b), shared in common.items())
    assert 0.3 < worst < 0.72  # hard enough to be worth a test, and well below the threshold


def test_broken_lines_are_broken_in_all_ways() -> None:
    entries = [entry for entry in make_feed(1000, 3).entries if entry.kind == "broken"]
    assert len(entries) == 5
    cut, missing, empty, wrong, bytes_ = (entry.line for entry in entries)
    with pytest.raises(json.JSONDecodeError):
        json.loads(cut)
    assert "text" not in json.loads(missing)
    assert json.loads(empty)["text"].strip() == ""
    assert json.loads(wrong)["text"] == 404
    with pytest.raises(UnicodeDecodeError):
        bytes_.decode()
