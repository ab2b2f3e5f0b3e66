"""The story of the demo that spreads, is corrected and withdrawn; and the feed: deterministic, with true labels."""

import hashlib
import json
import subprocess
import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from stream_lsh.demo.feed import DESCRIPTIONS, LEAST, SHARES, Feed, make_feed
from stream_lsh.demo.spread import CORRECTED, LATE, PRINTED, TWICE, Spreading, lines, make_spread, run_spread
from stream_lsh.demo.timeline import rows, timeline
from stream_lsh.settings.model import Settings

SETTINGS = Settings.model_validate({"text_field": ("title", "text")})
COPIES = PRINTED + TWICE + LATE


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Spreading, Path]:
    folder = tmp_path_factory.mktemp("demo") / "spread"
    return run_spread(folder, 1, SETTINGS), folder


def test_the_feed_follows_from_the_seed() -> None:
    assert make_spread(3) == make_spread(3)
    assert make_spread(3) != make_spread(4)
    entries = make_spread(3)
    assert [entry.ts for entry in entries] == sorted(entry.ts for entry in entries)
    assert [json.loads(line) for line in lines(entries)] == [entry.record for entry in entries]


@pytest.mark.parametrize("seed", [1, 2, 3, 20])
def test_what_happens_is_what_was_meant(tmp_path: Path, seed: int) -> None:
    """One group: all copies join it, the corrected ones stay, and who printed it first is left."""
    spreading = run_spread(tmp_path / "spread", seed, SETTINGS)
    assert Counter(event["event"] for event in spreading.events) == {
        "created": 1, "joined": COPIES - 1, "updated": 1 + CORRECTED, "representative_changed": 1, "left": COPIES - 1,
    }  # fmt: skip
    assert {event["group"] for event in spreading.events} == {0}
    last = spreading.events[-1]
    assert (last["total_members"], last["live_members"], last["sources"]) == (1 + COPIES, 1, 1 + PRINTED + LATE)
    assert last["representative"]["id"] == spreading.entries[1].record["id"]
    (alert,) = spreading.alerts
    assert (alert["rule"], alert["members"]) == ("spreads", 10)


def test_the_table_tells_it(found: tuple[Spreading, Path]) -> None:
    reported = [(row.papers, row.last.what, row.event.get("event")) for row in rows(found[0])]
    early = reported.pop(2)[0]
    assert reported == [
        (1, "write", None), (1, "print", "created"), (reported[2][0], "print", "joined"), (1, "correct", "updated"),
        (LATE, "print", "joined"), (CORRECTED, "correct", "updated"), (1, "withdraw", "representative_changed"),
        (PRINTED + LATE - 1, "withdraw", "left"),
    ]  # fmt: skip
    assert [row.alert is not None for row in rows(found[0])].index(True) == 2
    assert early == 8  # the first member and the first copy were there before


@pytest.mark.parametrize("width", [40, 80, 160])
def test_it_fits_every_width(found: tuple[Spreading, Path], width: int) -> None:
    output = StringIO()
    Console(file=output, width=width, highlight=False).print(timeline(found[0], width, 84))
    assert all(cell_len(line) <= width for line in output.getvalue().splitlines())
    if width > 80:
        assert "nordwire withdraws it" in output.getvalue()
        assert "alert: spreads" in output.getvalue() and "10 members of 10 sources within" in output.getvalue()
        assert "29 sources, 1 origin." in output.getvalue()


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
