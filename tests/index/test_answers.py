"""The answers of the index: true, complete, the same however the log was cut, flushed, reopened, split into shards."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from stream_lsh import Deduplicator, Document, Settings, Verdict
from stream_lsh.errors import StateError, UsageError

WORDS = [f"w{i}" for i in range(400)]


def documents(seed: int, n: int) -> list[Document]:
    """A stream dense in near-duplicates: edits of edits of a few originals, copies, redeliveries and reused ids."""
    chance = random.Random(seed)
    texts = [[chance.choice(WORDS) for _ in range(chance.choice((1, 2, 5, 40, 60)))] for _ in range(8)]
    out: list[Document] = []
    for number in range(n):
        dice = chance.random()
        if dice < 0.08 and out:
            out.append(chance.choice(out))
            continue
        if dice < 0.1 and out:
            out.append(Document(chance.choice(out).id, "another text under an id that is taken " + str(number)))
            continue
        if dice < 0.25:
            words = [chance.choice(WORDS) for _ in range(chance.choice((1, 2, 5, 40, 60)))]
        else:
            words = list(chance.choice(texts))
            for _ in range(chance.choice((0, 0, 1, 1, 2, 6))):
                words[chance.randrange(len(words))] = chance.choice(WORDS)
        texts.append(words)
        out.append(Document(number, " ".join(words)))
    return out


def shingles(text: str, k: int = 3) -> frozenset[tuple[str, ...]]:
    words = text.lower().split()
    return frozenset(tuple(words[i : i + k]) for i in range(max(1, len(words) - k + 1)))


def expected(stream: Iterable[Document], threshold: float, unique_only: bool) -> list[tuple[str, dict[int, float]]]:
    """Kind and matches (seq -> Jaccard) of each document, by comparison with all earlier ones."""
    seen: dict[object, str] = {}
    stored: list[tuple[int, str, frozenset[tuple[str, ...]]]] = []
    out: list[tuple[str, dict[int, float]]] = []
    for seq, document in enumerate(stream):
        text = str(document.text)
        if document.id in seen:
            out.append(("redelivered" if seen[document.id] == text else "rejected", {}))
            continue
        seen[document.id] = text
        mine = shingles(text)
        matches = {}
        for other_seq, _, other in stored:
            jaccard = len(mine & other) / len(mine | other)
            if jaccard >= threshold:
                matches[other_seq] = jaccard
        same = any(other_text == text for _, other_text, _ in stored)
        out.append(("exact_duplicate" if same else "near_duplicate" if matches else "unique", matches))
        if not (unique_only and matches):
            stored.append((seq, text, mine))
    return out


def run(stream: list[Document], state: Path | None = None, batch: int = 100, **settings: object) -> list[Verdict]:
    with Deduplicator(
        Settings(**{"max_matches": 0, "signature_size": 256, "bands": 64, "rows": 4, **settings}), state
    ) as found:
        return list(found.process(stream, batch=batch))


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("against", ["any", "unique"])
def test_exhaustive_comparison_agrees(shards: int, against: str) -> None:
    """With 64 bands of 4 rows a pair at 0.7 is missed with probability 1e-8: the answers must be those of exhaustive
    comparison, to the last match. (The stream and the hashes are fixed: this does not fail by chance.)"""
    stream = documents(3, 1500)
    verdicts = run(stream, threshold=0.7, shards=shards, against=against)
    for verdict, (kind, matches) in zip(verdicts, expected(stream, 0.7, against == "unique"), strict=True):
        assert verdict.kind == kind, verdict
        assert {match.seq: match.similarity for match in verdict.matches} == pytest.approx(matches)
        order = [(-match.similarity, match.seq) for match in verdict.matches]
        assert order == sorted(order)
        if matches:
            assert verdict.of == stream[min(matches)].id
            assert verdict.similarity == pytest.approx(matches[min(matches)])


@pytest.mark.parametrize(
    "settings", [{}, {"against": "unique"}, {"verify": "signature"}, {"bucket_size": 4, "followers": 4}]
)
def test_answers_do_not_depend_on_batches_flushes_or_restarts(tmp_path: Path, settings: dict[str, object]) -> None:
    stream = documents(4, 1200)
    whole = run(stream, **settings)
    assert run(stream, batch=1, **settings) == whole
    assert run(stream, batch=7, memory_documents=16, **settings) == whole
    # Reopened now and then, with segments so small that flushes and merges happen all the time.
    pieces: list[Verdict] = []
    for start in range(0, len(stream), 170):
        pieces += run(stream[start : start + 170], tmp_path / "state", batch=33, memory_documents=16, **settings)
    assert pieces == whole


def test_redelivery_makes_no_pairs_and_a_reused_id_is_refused() -> None:
    text = "one two three four five six seven"
    first, again, other = run([Document("a", text), Document("a", text), Document("a", text + " eight")])
    assert (first.kind, again.kind, other.kind) == ("unique", "redelivered", "rejected")
    assert again.pairs == () and other.reason == "id_reused"


def test_numbers_and_strings_are_different_ids() -> None:
    kinds = [v.kind for v in run([Document(7, "one two three four"), Document("7", "five six seven eight")])]
    assert kinds == ["unique", "unique"]


@pytest.mark.parametrize("limit", [1, 3, 10])
def test_truncated_matches_are_counted(limit: int) -> None:
    """Copies and followers alike: what is not listed is counted, and `of` is the oldest match all the same."""
    base = " ".join(WORDS[:60])
    stream = [Document(i, base if i % 3 else f"{base} {WORDS[100 + i]}") for i in range(60)]
    every = run(stream)
    for short, full in zip(run(stream, max_matches=limit), every, strict=True):
        assert short.matches == full.matches[:limit]
        assert len(short.matches) + short.truncated == len(full.matches)
        assert (short.kind, short.of, short.similarity) == (full.kind, full.of, full.similarity)


def test_the_same_text_in_a_burst_stays_cheap() -> None:
    """20,000 copies: each is answered with its 100 oldest matches and the count of the rest."""
    stream = [Document(i, "the same text again and again and again") for i in range(20_000)]
    last = run(stream, max_matches=100, batch=1024)[-1]
    assert last.kind == "exact_duplicate" and last.of == 0
    assert len(last.matches) == 100 and last.truncated == 19_999 - 100


def test_query_stores_nothing(tmp_path: Path) -> None:
    text = "a text that is asked for before it is there"
    with Deduplicator(state=tmp_path / "state") as found:
        assert found.query(text) == []
        assert [v.kind for v in found.process([Document("a", text)])] == ["unique"]
        assert [(m.id, m.similarity) for m in found.query(text)] == [("a", 1.0)]
        assert len(found) == 1
    with Deduplicator(state=tmp_path / "state", read_only=True) as found:
        assert [m.id for m in found.query(text)] == ["a"]
        with pytest.raises(UsageError, match="read-only"):
            next(found.process([Document("b", text)]))


def test_sets_are_compared_as_sets() -> None:
    stream = [Document(1, set=["red", "green", "blue", "black"]), Document(2, set=["black", "blue", "green", "red"])]
    with Deduplicator(Settings(set_field="tags")) as found:
        kinds = [v.kind for v in found.process(stream)]
    assert kinds == ["unique", "exact_duplicate"]


def test_other_settings_are_refused(tmp_path: Path) -> None:
    run([Document(1, "a b c d")], tmp_path / "state")
    with pytest.raises(StateError, match=r"threshold = 0\.8 \(now 0\.7\)"):
        run([Document(2, "a b c d")], tmp_path / "state", threshold=0.7)


def test_postings_are_rebuilt_from_rows(tmp_path: Path) -> None:
    stream = documents(6, 900)
    whole = run(stream)
    run(stream[:600], tmp_path / "state", memory_documents=16)
    for path in (tmp_path / "state" / "postings").iterdir():
        path.unlink()
    (tmp_path / "state" / "postings").rmdir()
    assert run(stream[600:], tmp_path / "state", memory_documents=16) == whole[600:]


def test_a_file_cut_under_a_running_index_is_named(tmp_path: Path) -> None:
    """Runs and rows are read as they are needed: what has become shorter meanwhile is an error, not a wrong answer."""
    stream = documents(7, 900)
    with Deduplicator(Settings(memory_documents=16), tmp_path / "state") as found:
        list(found.process(stream[:600], batch=50))
        for shard in found._index.shards:
            shard.postings.finish()  # or a merge meets the damage first
        found.commit()
        for path in (tmp_path / "state" / "postings").iterdir():
            with path.open("r+b") as file:
                file.truncate(4096)
        with pytest.raises(StateError, match="postings: a file of the index cannot be read"):
            list(found.process([Document(f"again {i}", d.text) for i, d in enumerate(stream[:100])], batch=50))
