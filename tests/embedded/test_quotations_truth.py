"""Quotations through the whole job, against exhaustive comparison: verdicts, changes, restarts, what is erased."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from support.contents import contents
from support.histories import Changing
from support.kills import COMMITTING, broken_off, kill
from support.models.forgetting import Seen, model_of
from test_likeness_truth import CHANGING, OUTPUTS, compared, run, written

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.information import information
from stream_lsh.embedded.job import Job

QUOTATIONS: dict[str, Any] = {"likeness": "quotations", "threshold": 0.6, "shingles": "words:3"}
# No limit is met, and every shingle is a key.
SURE: dict[str, Any] = {
    "bucket_size": 4096, "candidates": 65536, "verify_matches": 1000, "max_matches": 0, "memory_documents": 32,
    "generation_documents": 250, "sampling": 1,
}  # fmt: skip


class Feed(Changing):
    """Texts that quote others, in part or in whole, and are quoted."""

    def __init__(self, seed: int, families: int = 20) -> None:
        self.chance = random.Random(seed)
        self.bases = [self._words(60) for _ in range(families)]
        self.said: list[str] = []

    def _words(self, n: int) -> list[str]:
        return [f"w{self.chance.randrange(100_000)}" for _ in range(n)]

    def value(self) -> str:
        """One more: new, said before, a part of what was, or that with more around it."""
        chance = self.chance
        if self.said and chance.random() < 0.15:
            return chance.choice(self.said)
        base = chance.choice(self.bases)
        begin = chance.randrange(0, 40)
        part = base[begin : begin + chance.choice((5, 10, 20, 30, 60))]
        around = chance.choice((0, 0, 3, 10, 30))
        words = self._words(around // 2) + part + self._words(around - around // 2)
        if chance.random() < 0.3:
            words[chance.randrange(len(words))] = "changed"
        if chance.random() < 0.1:
            words = self._words(chance.choice((1, 2, 40)))
        self.said.append(" ".join(words))
        return self.said[-1]


@lru_cache(maxsize=65536)
def shingles(text: str) -> frozenset[tuple[str, ...]]:
    """Those of the text without its language: three words each, or the whole text."""
    words = text.split()[1:]
    return frozenset(tuple(words[i : i + 3]) for i in range(max(1, len(words) - 2)))


def shares(one: Seen, other: Seen) -> tuple[float, float]:
    """|A & B| / |A| and / |B|; nobody shares with who has another language."""
    if one.text.split()[0] != other.text.split()[0]:
        return -1.0, -1.0
    a, b = shingles(one.text), shingles(other.text)
    return len(a & b) / len(a), len(a & b) / len(b)


def modelled(records: Sequence[dict[str, Any]], settings: Settings) -> list[Any]:
    threshold = settings.threshold
    model = model_of(settings, lambda a, b: max(shares(a, b)), lambda new, old: shares(new, old)[0] < threshold)
    out = []
    for seq, record in enumerate(records):
        ts = 1000 * record["ts"] if "ts" in record else None
        if record.get("deleted"):
            out.append(model.delete(seq, record["id"], ts))
        else:
            out.append(model.judge(seq, record["id"], f"{record.get('lang')} {record['text']}", ts))
    return out


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize(("against", "shards"), [("unique", 1), ("any", 1), ("any", 3)])
def test_verdicts_are_those_of_exhaustive_comparison(tmp_path: Path, against: Any, shards: int, changing: bool) -> None:
    """To the last match; over two generations, three runs the last two of which know no setting, and restarts."""
    feed = Feed(seed=shards)
    records = feed.history(500) if changing else feed.plain(500)
    more: dict[str, Any] = {"verify_matches": 0} if against == "any" else {}
    more |= CHANGING if changing else {}
    settings = Settings(**(SURE | QUOTATIONS | {"against": against, "shards": shards} | more))
    inputs = written(tmp_path, records)
    run(tmp_path, inputs[:1], settings)
    run(tmp_path, inputs[:2], Settings(max_matches=0))
    verdicts = run(tmp_path, inputs, Settings(max_matches=0))
    truth = modelled(records, settings)
    compared(verdicts, truth, settings)
    kinds = {verdict["kind"] for verdict in verdicts}
    assert {"unique", "near_duplicate", "exact_duplicate"} <= kinds
    if against == "unique":  # what contains more is kept
        assert sum(verdict["kind"] == "unique" and bool(verdict["matches"]) for verdict in verdicts) > 5
    if changing:
        assert {"deleted", "outdated", "redelivered"} <= kinds
        assert against == "any" or any(true.heir for true in truth)
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []
    assert facts["generations"]["number"] > 1 or changing


@pytest.mark.parametrize("changing", [False, True])
@pytest.mark.parametrize("against", ["unique", "any"])
def test_lost_postings_are_made_again(tmp_path: Path, against: Any, changing: bool) -> None:
    """From rows and texts, also of who was erased and who stands for an heir."""
    feed = Feed(seed=11)
    records = feed.history(400) if changing else feed.plain(400)
    more = {"verify_matches": 0} if against == "any" else {}
    more |= CHANGING | {"window": "1d"} if changing else {}
    settings = Settings(**(SURE | QUOTATIONS | {"against": against, "erase_hours": 0} | more))
    inputs = written(tmp_path, records)
    run(tmp_path, inputs[:2], settings)
    lost = sorted((tmp_path / "index").glob("generations/*/postings/run-*"))
    assert lost
    for path in lost:
        path.unlink()
    compared(run(tmp_path, inputs, Settings(max_matches=0)), modelled(records, settings), settings)


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_the_usual_settings_find_what_they_promise(tmp_path: Path, threshold: float) -> None:
    """Pairs reported are true; of those of texts that are long enough no more are missed than the recall allows."""
    feed = Feed(seed=7, families=60)
    settings = Settings(**(QUOTATIONS | {"threshold": threshold}), against="any", verify_matches=0, max_matches=0)
    records = feed.plain(900)
    sizes = {record["id"]: len(shingles(f"- {record['text']}")) for record in records}
    verdicts = run(tmp_path, written(tmp_path, records), settings)
    true, found = set(), set()
    for verdict, wanted in zip(verdicts, modelled(records, settings), strict=True):
        found |= {(verdict["id"], match["id"]) for match in verdict["matches"]}
        true |= {(verdict["id"], id) for id, _, _ in wanted.matches}
    assert found <= true
    promised = {pair for pair in true if min(sizes[pair[0]], sizes[pair[1]]) >= settings.least_shingles}
    assert len(promised) > 100
    assert len(promised - found) <= 0.001 * len(promised)
    assert len(true - found) <= 0.2 * len(true)  # of texts of a few words


def test_strangers_never_match() -> None:
    text = " ".join(f"w{k}" for k in range(50))
    documents = [Document(i, text + f" x{i}" * (i % 3), within={"lang": str(i % 100)}) for i in range(300)]
    settings = Settings(**QUOTATIONS, match_within=["lang"], against="any", verify_matches=0, max_matches=0)
    with Deduplicator(settings) as deduplicator:
        verdicts = list(deduplicator.process(documents, batch=50))
    for number, verdict in enumerate(verdicts):
        assert [match.seq for match in sorted(verdict.matches, key=lambda m: m.seq)] == list(
            range(number % 100, number, 100)
        )


def test_a_run_that_is_broken_off_goes_on_to_the_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Feed(seed=3).history(300)
    inputs = written(tmp_path, records, parts=10)
    settings = Settings(**(SURE | QUOTATIONS | CHANGING))
    run(tmp_path / "one", inputs, settings)
    assert broken_off(monkeypatch, lambda: run(tmp_path / "two", inputs, settings)) > 3
    for name in OUTPUTS:
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name


@pytest.mark.long
@pytest.mark.parametrize("against", ["unique", "any"])
def test_a_run_that_is_killed_goes_on_to_the_byte(tmp_path: Path, against: str) -> None:
    inputs = written(tmp_path, Feed(seed=4, families=200).history(8000), parts=2)
    given = QUOTATIONS | CHANGING | {"against": against, "memory_documents": 256, "window": "3000s"}
    run(tmp_path / "whole", inputs, Settings(**given))
    (tmp_path / "broken").mkdir()
    named = {**given, "match_within": "lang"}
    options = [word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    outputs = [word for name in OUTPUTS
               for word in (f"--{name.replace('_', '-')}", str(tmp_path / "broken" / name))]  # fmt: skip
    command = [sys.executable, "-c", COMMITTING, "dedup", *inputs, "--state", str(tmp_path / "broken" / "index"),
               *options, *outputs, "--quiet"]  # fmt: skip
    kill(command, tmp_path / "broken" / "verdicts", (tmp_path / "whole" / "verdicts").stat().st_size, kills=4)
    for name in OUTPUTS:
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name


def test_nothing_is_left_of_what_was_deleted(tmp_path: Path) -> None:
    feed = Feed(seed=5)
    records = feed.plain(120)
    victims, others = records[10:30], " ".join(record["text"] for record in [*records[:10], *records[30:]])
    words = {word for record in victims for word in record["text"].split() if word not in others}
    assert len(words) > 20
    settings = Settings(**QUOTATIONS, on_same_id="update", deleted_field="deleted", memory_documents=32)
    deletions = [{"id": record["id"], "deleted": True} for record in victims]
    more = [record for record in feed.history(60) if not words & {*record.get("text", "").split()}]
    state = tmp_path / "index"
    feeds = written(tmp_path, [*records, *deletions, *more], 1)
    Job(settings, feeds, {"verdicts": str(tmp_path / "verdicts")}, state).run()
    erase(state, everything=True)
    found = contents(state)
    assert not [word for word in words if any(word.encode() + b" " in data for data in found)]
    facts: Any = information(state, check=True)
    assert facts["health"]["problems"] == []


def test_books_and_posts(tmp_path: Path) -> None:
    """A long text and what quotes it, whoever comes first, in runs of few documents and many keys."""
    chance = random.Random(2)
    book = [f"w{chance.randrange(50_000)}" for _ in range(60_000)]
    posts = [" ".join(book[at : at + 40]) for at in range(0, 60_000, 600)]
    documents = [Document("book", " ".join(book)), *(Document(i, post) for i, post in enumerate(posts))]
    given = {**QUOTATIONS, "threshold": 0.8, "memory_documents": 16}
    for order in (documents, documents[::-1]):
        state = tmp_path / order[0].id if isinstance(order[0].id, str) else tmp_path / "posts"
        with Deduplicator(Settings(**given, candidates=200, verify_matches=200, max_matches=0), state) as deduplicator:
            verdicts = {verdict.id: verdict for verdict in deduplicator.process(order, batch=1)}
        if order[0].id == "book":
            assert all(verdicts[i].of == "book" for i in range(len(posts)))
        else:
            assert verdicts["book"].kind == "unique"
            assert sorted(match.id for match in verdicts["book"].matches) == list(range(len(posts)))
        with Deduplicator(state=state, read_only=True) as deduplicator:
            assert [match.id for match in deduplicator.query(" ".join(book[100:140]))] == ["book"]


def test_what_is_refused() -> None:
    for given, message in (
        ({"normalize": "lower,space,markup"}, "markup is not used with likeness = quotations"),
        ({"shards": 2}, "needs against = 'any' with several shards"),
        ({"set_field": "tags"}, "set_field is not used with likeness = quotations"),
        ({"threshold": 0.001}, "too small a share"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**(QUOTATIONS | given))
    assert Settings(**QUOTATIONS, least_shingles=1).sampled == 1
    with pytest.raises(ValueError, match="sampling is not used with likeness = copies"):
        Settings(sampling=2)
    assert json.loads(json.dumps(Settings(**QUOTATIONS).answers))["sampling"] == Settings(**QUOTATIONS).sampled
