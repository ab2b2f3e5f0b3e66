"""What is particular to stories and to quotations (tests/embedded/test_measures.py has what all measures have)."""

import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest
from support.contents import contents
from support.jobs import read, run, written
from support.long_form import LONG
from support.measure_feeds import GIVEN, feed_of
from support.models.measures import compared, modelled, share, shingles

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.embedded.erasure import erase
from stream_lsh.errors import StoreError
from stream_lsh.families.measure import STORY_THRESHOLD
from stream_lsh.index.store.rocksdb import FREQUENCIES, Store


def sure(**more: Any) -> Settings:
    """No limit is met."""
    given = {"max_bucket_rows": 4096, "max_candidates": 4096, "memtable_documents": 32, "segment_documents": 100}
    return Settings(measure="tf-idf", **given | more)


def as_modelled(folder: Path, records: list[dict[str, Any]], settings: Settings) -> list[dict[str, Any]]:
    """The verdicts of a run, that are those of the model."""
    run(folder, written(folder, records), settings)
    verdicts = read(folder / "verdicts")
    compared(verdicts, modelled(records, settings), settings)
    return verdicts


def test_a_story_after_a_pause_is_less_similar(tmp_path: Path) -> None:
    """As the plain model has it; not where the times are not known."""
    records = feed_of("tf-idf", seed=2).plain(100)
    chance = random.Random(2)
    for i, record in enumerate(records):
        days = i // 10 * chance.choice([3, 3, 3, 9, 30])  # some come late, some are from next month
        record["ts"] = 86400 * days + chance.randrange(86400)
    timed = as_modelled(tmp_path / "timed", records, sure(time_field="ts"))
    plain = as_modelled(tmp_path / "plain", records, sure())
    assert len({line["group"] for line in timed}) > 1.1 * len({line["group"] for line in plain})
    with pytest.raises(StoreError, match="time_field = None"):
        run(tmp_path / "plain", [], sure(time_field="ts"))


@pytest.mark.long
@pytest.mark.parametrize("name", ["stories-ecb.jsonl.xz", pytest.param("stories.jsonl", marks=pytest.mark.long)])
def test_stories_of_news_are_those_of_a_plain_model(tmp_path: Path, shared_data: Path, name: str) -> None:
    data = (shared_data / name).read_bytes()
    lines = (lzma.decompress(data) if name.endswith(".xz") else data).splitlines()
    records = [json.loads(line) for line in (lines if LONG else lines[:120])]
    records = [{"id": r["id"], "text": f"{r.get('title', '')} {r['text']}".strip()} for r in records]
    as_modelled(tmp_path, records, sure(segment_documents=50))


def test_stories_of_other_languages_are_others_and_say_their_words() -> None:
    """What is matched within changes terms, but not the words that are told."""
    texts = (
        "Wladimir Klitschko stopped Hasim Rahman in the seventh round in Mannheim",
        "In Mannheim beat Klitschko his challenger Rahman after seven rounds",
    )
    feed = [
        Document(f"{lang}{i}", text, within={"lang": lang}) for i, text in enumerate(texts) for lang in ("en", "de")
    ]
    with Deduplicator(Settings(measure="tf-idf", match_within=["lang"])) as deduplicator:
        verdicts = {verdict.id: verdict for verdict in deduplicator.process(feed)}
    assert [verdicts[id].duplicate_of for id in ("en0", "de0", "en1", "de1")] == [None, None, "en0", "de0"]
    for id in ("en1", "de1"):
        (match,) = verdicts[id].matches
        assert set(match.evidence["terms"]) >= {"klitschko", "rahman", "mannheim"}


def test_the_threshold_is_that_of_stories_unless_one_is_given(tmp_path: Path) -> None:
    usual = Settings(measure="tf-idf")
    assert (usual.threshold, usual.least, Settings().threshold) == (STORY_THRESHOLD, STORY_THRESHOLD, 0.8)
    assert Settings(**usual.model_dump()).fingerprint == usual.fingerprint  # as a worker is given them
    assert Settings(measure="tf-idf", threshold=0.8).least == 0.8
    with Deduplicator(Settings(measure="tf-idf", threshold=0.4), index=tmp_path / "index"):
        pass
    with Deduplicator(Settings(measure="tf-idf"), index=tmp_path / "index") as again:
        assert again.settings.threshold == 0.4


def test_a_story_with_very_many_documents_stays_one_group() -> None:
    chance = random.Random(5)
    words = ["".join(chance.choices("bdfgklmnprst", k=6)) for _ in range(3000)]
    event, others = [word.title() for word in words[:40]], words[40:]
    feed = [Document(i, " ".join(chance.choices(others, k=80))) for i in range(100)]
    for i in range(100, 1000):
        said = chance.choices(event, k=50) + chance.choices(others, k=50)
        feed.append(Document(i, " ".join(chance.sample(said, len(said)))))
    with Deduplicator(Settings(measure="tf-idf")) as deduplicator:
        groups = [verdict.group for verdict in deduplicator.process(feed)]
    assert len(set(groups[100:])) == 1
    assert len(set(groups[:100])) == 100


def test_what_is_rare_is_rare_among_those_that_a_text_may_match() -> None:
    """One text in twenty is in a language of its own: its stories are those of an index that has no other one."""
    chance, feed = random.Random(1), list[Document]()

    def words(letters: str, n: int) -> list[str]:
        return ["".join(chance.choice(letters) + chance.choice("aeiou") for _ in range(4)) for _ in range(n)]

    common = (words("bdfgk", 40), words("lmnprstvz", 40))
    events = [[words("bdfgk", 10) for _ in range(60)], [words("lmnprstvz", 10) for _ in range(6)]]
    for i in range(2000):
        rare = i % 20 == 7
        said = chance.choices(common[rare], k=10) + chance.sample(chance.choice(events[rare]), 6)  # all are keys
        feed.append(Document(i, " ".join(chance.sample(said, len(said))), within={"lang": int(rare)}))
    with Deduplicator(Settings(measure="tf-idf", match_within=("lang",))) as deduplicator:
        among = [verdict for verdict in deduplicator.process(feed) if verdict.id % 20 == 7]
    with Deduplicator(Settings(measure="tf-idf")) as deduplicator:
        alone = list(deduplicator.process([document for document in feed if document.id % 20 == 7]))
    assert [(v.kind, v.duplicate_of, v.similarity) for v in among] == [
        (v.kind, v.duplicate_of, v.similarity) for v in alone
    ]
    assert 3 < sum(v.kind == "unique" for v in alone) < 50


def test_counts_of_one_commit_are_nowhere_after_erasing(tmp_path: Path) -> None:
    """For one of few documents says which words they have; the sum stays, and so do the answers."""
    feed = [Document(record["id"], record["text"]) for record in feed_of("tf-idf", seed=6).plain(200)]
    folders = [tmp_path / name for name in ("erased", "whole")]
    for folder in folders:
        with Deduplicator(Settings(measure="tf-idf", on_conflict="update"), index=folder) as deduplicator:
            for part in (feed[:1], feed[1:100], [Document(feed[0].id, deleted=True)]):
                assert len(list(deduplicator.process(part))) == len(part)
                deduplicator.commit()
    store = Store(folders[0] / "db", read_only=True)
    needle = next(store.rows_of(FREQUENCIES, 0, 0))[1][29:]
    store.close()
    assert any(needle in data for data in contents(folders[0]))
    assert erase(folders[0], everything=True).erased == 1
    assert not any(needle in data for data in contents(folders[0]))
    answers = []
    for folder in folders:
        with Deduplicator(index=folder) as deduplicator:
            answers.append(list(deduplicator.process(feed[100:])))
    assert answers[0] == answers[1]
    assert any(verdict.kind == "near_duplicate" for verdict in answers[0])


CONTAINMENT = GIVEN["containment"]


@pytest.mark.parametrize("threshold", [0.5, 0.8])
def test_the_usual_settings_find_what_they_promise(threshold: float) -> None:
    """Pairs reported are true; of those of texts that are long enough no more are missed than the recall allows."""
    settings = Settings(
        **(CONTAINMENT | {"threshold": threshold}), compare_with="all", max_verified_matches=0, max_matches=0
    )  # fmt: skip
    texts = [record["text"] for record in feed_of("containment", seed=7, families=30).plain(450)]
    true = {
        (older, newer) for newer in range(len(texts)) for older in range(newer)
        if max(share(texts[older], texts[newer]), share(texts[newer], texts[older])) >= threshold
    }  # fmt: skip
    with Deduplicator(settings) as deduplicator:
        verdicts = list(deduplicator.process([Document(i, text) for i, text in enumerate(texts)]))
    found = {(match.seq, verdict.seq) for verdict in verdicts for match in verdict.matches}
    assert found <= true
    promised = {pair for pair in true if min(len(shingles(texts[number])) for number in pair) >= settings.min_shingles}
    assert len(promised) > 60
    assert len(promised - found) <= 0.001 * len(promised)
    assert len(true - found) <= 0.2 * len(true)  # of texts of a few words


@pytest.mark.parametrize("first", ["book", "posts"])
def test_books_and_posts(tmp_path: Path, first: str) -> None:
    """A long text and what quotes it, whichever comes first, in runs of few documents and many keys."""
    chance = random.Random(2)
    book = [f"w{chance.randrange(50_000)}" for _ in range(30_000)]
    posts = [" ".join(book[at : at + 40]) for at in range(0, 30_000, 600)]
    documents = [Document("book", " ".join(book)), *(Document(i, post) for i, post in enumerate(posts))]
    given = {**CONTAINMENT, "threshold": 0.8, "memtable_documents": 16}
    settings = Settings(**given, max_candidates=200, max_verified_matches=200, max_matches=0)
    with Deduplicator(settings, tmp_path) as deduplicator:
        order = documents if first == "book" else documents[::-1]
        verdicts = {verdict.id: verdict for verdict in deduplicator.process(order, batch=1)}
    if first == "book":
        assert all(verdicts[i].duplicate_of == "book" for i in range(len(posts)))
    else:
        assert verdicts["book"].kind == "unique"
        assert sorted(match.id for match in verdicts["book"].matches) == list(range(len(posts)))
    with Deduplicator(index=tmp_path, read_only=True) as deduplicator:
        assert [match.id for match in deduplicator.query(" ".join(book[100:140]))] == ["book"]
