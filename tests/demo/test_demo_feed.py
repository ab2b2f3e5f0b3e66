"""The feed of the demo: deterministic, of the size asked for, and with labels that are true."""

import hashlib
import json
import subprocess
import sys

import pytest

from stream_lsh.demo.feed import DESCRIPTIONS, LEAST, SHARES, Feed, make_feed

NO_DOCUMENT = ("broken", "id reused", "redelivered")


@pytest.fixture(scope="module")
def feed() -> Feed:
    return make_feed(1200, 5)


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


def test_what_was_made_from_another_comes_after_it(feed: Feed) -> None:
    seen: set[str | None] = set()
    for entry in feed.entries:
        assert entry.parent is None or entry.parent in seen
        seen.add(entry.id)


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
