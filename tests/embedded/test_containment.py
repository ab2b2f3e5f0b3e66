"""What is particular to quotations (tests/embedded/test_measures.py has what all measures have)."""

import json
import random
from pathlib import Path

import pytest
from support.measure_feeds import GIVEN, feed_of
from support.models.measures import share, shingles

from stream_lsh import Deduplicator, Document, Settings

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


def test_what_is_refused() -> None:
    for given, message in (
        ({"normalize": "lower,space,markup"}, "markup is not used with measure = containment"),
        ({"shards": 2}, "needs compare_with = 'all' with several shards"),
        ({"set_field": "tags"}, "set_field is not used with measure = containment"),
        ({"threshold": 0.001}, "too small a share"),
    ):
        with pytest.raises(ValueError, match=message):
            Settings(**(CONTAINMENT | given))
    assert Settings(**CONTAINMENT, min_shingles=1).sampled == 1
    with pytest.raises(ValueError, match="sampling is not used with measure = jaccard"):
        Settings(sampling=2)
    assert json.loads(json.dumps(Settings(**CONTAINMENT).answers))["sampling"] == Settings(**CONTAINMENT).sampled
