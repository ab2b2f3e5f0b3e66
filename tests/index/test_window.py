"""A window: what is older is not seen, whatever is still there; and what goes changes no answer."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from support.feeds import asked
from support.long_form import seeds
from support.models.forgetting import model_of
from support.models.matching import unique_verdicts

from stream_lsh.documents.columns import Document, columns
from stream_lsh.documents.times import LAST_TIME
from stream_lsh.embedded.information import information
from stream_lsh.errors import StateError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.leaving import Leaving
from stream_lsh.index.window import FEWEST, Window
from stream_lsh.judging.verdicts import Judgement, Kind, judge, verdicts
from stream_lsh.settings import Settings

START, SECOND, MINUTE, DAY = 1_700_000_000_000, 1000, 60_000, 86_400_000
# All that is similar is found (64 bands of one row: J of 1/2 is missed once in 2^64), and no limit is met.
SURE: dict[str, Any] = {
    "shingles": "words:1", "threshold": 0.45, "bands": 64, "rows": 1, "signature_size": 128, "bucket_size": 4096,
    "candidates": 65536, "max_matches": 0, "generation_documents": 1000,  # so small that they end by time
}  # fmt: skip
ANY: dict[str, Any] = {"against": "any", "verify_matches": 0}
UNIQUE: dict[str, Any] = {"against": "unique", "verify_matches": 1000}


def told(judgement: Judgement) -> Iterator[tuple[Any, ...]]:
    """As the model tells verdicts."""
    for i in range(len(judgement.ids)):
        kind, first, group = (int(c[i]) for c in (judgement.kinds, judgement.first_kinds, judgement.groups))
        of = judgement.oldest(i)
        listed = slice(int(judgement.starts[i]), int(judgement.starts[i + 1]))
        places = zip(judgement.matched_shards[listed].tolist(), judgement.matched_rows[listed].tolist(), strict=True)
        ids = [orjson.loads(judgement.names.id_of(*place)) for place in places]
        yield (
            Kind(kind).label, None if first == 255 else Kind(first).label, orjson.loads(of) if of else None,
            float(judgement.similarities[i]) if of else None, None if group < 0 else group,
            tuple(zip(ids, judgement.matched_seqs[listed].tolist(), judgement.matched_similarities[listed].tolist(),
                      strict=True)),
            None if (went := int(judgement.replaces[i])) < 0 else went,
            None if (heir := int(judgement.heir_seqs[i])) < 0
            else (orjson.loads(judgement.names.id_of(*judgement.heirs[i].tolist())), heir),
            tuple((group, orjson.loads(judgement.names.id_of(shard, row)), seq)
                  for at, group, shard, row, seq in judgement.later.tolist() if at == i),
        )  # fmt: skip


def fed(index: Index, documents: Sequence[Document], first: int, **more: Any) -> list[tuple[Any, ...]]:
    signed = index.sign(columns(documents))
    seqs = np.arange(first, first + len(signed))
    return list(told(judge(index.match(signed, seqs, **more), signed.ids, seqs, 0, index)))


def modelled(documents: Sequence[Document], settings: Settings) -> list[tuple[Any, ...]]:
    model = model_of(settings)
    return [
        model.delete(seq, str(d.id), d.time) if d.deleted else model.judge(seq, str(d.id), d.text or "", d.time)
        for seq, d in enumerate(documents)
    ]


@contextmanager
def opened(settings: Settings, folder: Path, **more: Any) -> Iterator[Index]:
    index = Index(settings, folder, durable=False, **more)
    try:
        yield index
    finally:
        index.close()


def in_pieces(
    documents: Sequence[Document],
    settings: Settings,
    folder: Path,
    chance: random.Random,
    *,
    fed: Callable[[Index, Sequence[Document], int], Sequence[Any]] = fed,
    erasing: bool = False,
) -> list[Any]:
    """Through batches, commits and restarts of any size; what comes after the last commit of a run never was. erasing:
    also through erasing at random places, of which some are broken off, and through a loss of all postings."""
    out: list[Any] = []
    while len(out) < len(documents):
        with opened(settings, folder) as index:
            for _ in range(chance.choice((1, 2, 10, 50))):
                batch = documents[len(out) : len(out) + chance.choice((1, 2, 7, 30, 200))]
                out += fed(index, batch, len(out))
                if chance.random() < 0.6:
                    index.commit({}, now=chance.choice((0, 10**9)) if erasing else 0)
                    if erasing and chance.random() < 0.3:
                        index.erase(10**9)
            index.commit({})
            if erasing and chance.random() < 0.5:
                index.erase(10**9)
            if chance.random() < 0.3:
                fed(index, [Document(-1 - i, f"lost {i} {i + 1}", time=START) for i in range(5)], len(out))
        if erasing and chance.random() < 0.2:
            for postings in folder.glob("generations/*/postings"):
                shutil.rmtree(postings)
    return out


def same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    for seq, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert (seq, *one) == (seq, *other)


def comparable(given: Sequence[Any], settings: Settings) -> list[Any]:
    """What several shards say alike: under `any` none of them knows the first verdict of what is redelivered."""
    if settings.shards == 1 or settings.late:
        return list(given)
    return [verdict[:1] if verdict[0] == "redelivered" else verdict for verdict in given]


steps = st.sampled_from((0, 0, 1, 5, 5, 20)) | st.sampled_from((100, 1000, 100_000, -20, -500))
times = st.tuples(steps, st.sampled_from(("", "", "", "", "", "", "missing", "absurd", "ancient")))
texts = st.lists(st.sampled_from("abcdef"), min_size=1, max_size=5).map(" ".join) | st.just("")
histories = st.lists(st.tuples(st.integers(0, 30), texts, times), min_size=1, max_size=150)
kinds = st.sampled_from((UNIQUE, ANY))


def dated(history: Sequence[tuple[int, str, tuple[int, str]]]) -> list[Document]:
    """Documents whose event times go on in steps of seconds; the first has one."""
    out, now = [Document("begin", "to begin with", time=START)], START
    for id, text, (step, what) in history:
        now = max(START - 10**9, now + step * SECOND)
        given = {"missing": None, "absurd": LAST_TIME - 1, "ancient": 0}
        out.append(Document(str(id), text, time=given.get(what, now)))
    return out


@pytest.mark.parametrize("shards", [1, 3])
@hypothesis_settings(max_examples=40, deadline=None)
@given(histories, st.sampled_from(("1s", "10s", "2m", "20m")), kinds, st.integers(0, 10**6))
def test_histories(
    tmp_path_factory: pytest.TempPathFactory, shards: int, history: Any, window: str, against: Any, seed: int
) -> None:
    chance = random.Random(seed)
    settings = Settings(
        **{**SURE, **against, "generation_documents": chance.choice((5, 40, 1000, 10**6))}, window=window,
        shards=shards, decided_after=chance.choice((2, 10, 1000)), memory_documents=chance.choice((16, 16, 65536)),
    )  # fmt: skip
    documents = dated(history)
    found = in_pieces(documents, settings, tmp_path_factory.mktemp("index"), chance)
    expected = modelled(documents, settings)
    same(*(comparable(side, settings) for side in (found, expected)))


def test_an_id_that_comes_again_has_not_the_copies_of_the_one_before(tmp_path: Path) -> None:
    """Under `any`: all in one generation, where copies stand behind a row that is not seen any more."""
    settings = Settings(**SURE, **ANY, window="10s")
    feed = [
        ("begin", "x y z", 0), ("a", "one two three", 1), ("c", "one two three", 6), ("b", "four five six", 7),
        ("a", "seven eight nine", 13), ("d", "seven eight nine", 14), ("e", "one two three", 15),
        ("f", "seven eight nine", 16), ("g", "one two", 16),
    ]  # fmt: skip
    # The median of the last few times has to follow at once: each time comes often enough, in what is redelivered.
    documents = [Document("begin", "x y z", time=START)]
    for id, text, second in feed:
        documents += [Document(f"clock {second}", "tick", time=START + SECOND * second)] * 70
        documents.append(Document(id, text, time=START + SECOND * second))
    with opened(settings, tmp_path) as index:
        found = fed(index, documents, 0)
    same(found, modelled(documents, settings))
    last = {str(d.id): verdict for d, verdict in zip(documents, found, strict=True)}
    assert [[id for id, *_ in last[name][5]] for name in "adefg"] == [[], ["a"], ["c"], ["a", "d"], ["c", "e"]]


def long_history(seed: int, n: int) -> list[Document]:
    """Families of copies and drifting texts over hours, with gaps, late ones, redeliveries and a few absurd times."""
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(400)]
    families = [chance.sample(words, 12) for _ in range(6)]
    out, now = [Document("begin", "to begin with", time=START)], START
    for i in range(1, n):
        now += chance.choice((0, 100, 300, 1000, 2000)) + (chance.random() < 0.002) * 40 * MINUTE
        text = list(chance.choice(families)) if chance.random() < 0.8 else chance.sample(words, 12)
        for _ in range(chance.choice((0, 0, 1, 2, 4))):
            text[chance.randrange(12)] = chance.choice(words)
        if chance.random() < 0.01:
            families[chance.randrange(6)] = text
        time = {0: None, 1: LAST_TIME - 1, 2: now - 20 * MINUTE, 3: 5}.get(chance.randrange(40), now)
        id = str(i)
        if chance.random() < 0.05 and i > 50:
            again = out[-chance.randrange(1, 50)]
            id, text = str(again.id), (again.text or "").split() if chance.random() < 0.7 else text
        out.append(Document(id, " ".join(text), time=time))
    return out


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.long)])
@pytest.mark.parametrize("against", [UNIQUE, ANY], ids=["unique", "any"])
@pytest.mark.parametrize("seed", seeds(1, 2, 3))
def test_a_long_history(tmp_path: Path, seed: int, against: dict[str, Any], shards: int) -> None:
    """Many windows long, with flushes, merges, generations that go, and restarts; then it is asked."""
    settings = Settings(
        **{**SURE, **against}, window="8m", shards=shards, decided_after=100, memory_documents=64,
    )  # fmt: skip
    documents, chance = long_history(seed, 4000), random.Random(seed)
    expected = modelled(documents, settings)
    found = in_pieces(documents, settings, tmp_path / "index", chance)
    same(*(comparable(side, settings) for side in (found, expected)))
    assert {verdict[0] for verdict in found} == {
        "unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected"
    }  # fmt: skip
    with opened(settings, tmp_path / "index") as index:
        assert index.count < 0.5 * len(documents)
        assert index.shards[0].generations[0].first > 0


@pytest.mark.parametrize("against", ["unique", "any"])
@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.long)])
def test_what_goes_changes_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, against: Any
) -> None:
    """All fields of all verdicts, with limits so small that all of them are met: as if nothing were ever dropped."""
    settings = Settings(
        shingles="words:1", threshold=0.5, bands=10, rows=2, signature_size=40, bucket_size=3, candidates=4,
        verify_matches=2, max_matches=2, memory_documents=32, against=against, shards=shards, decided_after=64,
        window="5m", generation_documents=1000,
    )  # fmt: skip
    documents = long_history(7, 3000)
    went = in_batches(documents, settings, tmp_path / "went")
    monkeypatch.setattr(Index, "_forgotten", lambda index: {})
    stayed = in_batches(documents, settings, tmp_path / "stayed")
    same([[line] for line in went], [[line] for line in stayed])
    assert sum(b"incomplete" in line for line in went) > 100
    assert len(folders(tmp_path / "went")) < 20 < 40 < len(folders(tmp_path / "stayed"))
    assert folders(tmp_path / "went") < folders(tmp_path / "stayed")


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 12))])
def test_limits_count_what_is_seen(tmp_path: Path, seed: int, shards: int) -> None:
    """The whole rule, with limits so small that all of them are met."""
    settings = Settings(
        shingles="words:1", threshold=0.5, bands=10, rows=2, signature_size=40, bucket_size=3, candidates=4,
        verify_matches=2, max_matches=2, memory_documents=32, shards=shards, decided_after=64, window="5m",
        generation_documents=1000,
    )  # fmt: skip
    documents = long_history(seed, 1500)
    found = [orjson.loads(line + b"}") for line in in_batches(documents, settings, tmp_path)]
    expected = unique_verdicts(documents, settings)
    same([[verdict] for verdict in found], [[verdict] for verdict in expected])
    assert sum(verdict.get("incomplete", 0) for verdict in found) > 20


def in_batches(documents: Sequence[Document], settings: Settings, folder: Path) -> list[bytes]:
    """The verdicts as they are written, a batch and a commit after the other."""
    out: list[bytes] = []
    with opened(settings, folder) as index:
        for at in range(0, len(documents), 50):
            signed = index.sign(columns(documents[at : at + 50]))
            seqs = np.arange(at, at + len(signed))
            out += verdicts(judge(index.match(signed, seqs), signed.ids, seqs, settings.max_matches, index))
            index.commit({})
    return out


def folders(state: Path) -> set[int]:
    """The numbers of the generations that have files."""
    return {int(path.name) for path in (state / "generations").iterdir()}


def test_what_goes_leaves_nothing_behind(tmp_path: Path) -> None:
    """No file, no key, no entry: only what is in the window is in the folder, and it is sound to the last byte."""
    settings = Settings(**SURE, **UNIQUE, window="8m", memory_documents=64)
    documents = long_history(3, 4000)
    in_batches(documents, settings, tmp_path)
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        numbers = {span.number for span in index.window.spans}
        assert 2 < len(numbers) <= 12
        assert folders(tmp_path) == set(index.store.generations()) == numbers
        flushes = {int(name.split("/")[2]) for name, _ in index.store.items("flush/")}
        assert flushes <= numbers
        assert index.count < 2000
    facts: Any = information(tmp_path, check=True)
    assert facts["health"]["problems"] == []
    assert facts["documents"]["stored"] == sum(facts["documents"]["shards"]) < 2000
    latest = facts["generations"]["latest"]
    assert [item["generation"] for item in latest] == sorted(numbers)
    assert latest[-1]["to"] == facts["window"]["log_time"]
    assert latest[0]["from"] <= latest[0]["to"] >= facts["window"]["remembered_since"]


def test_a_reader_keeps_what_it_has_open(tmp_path: Path) -> None:
    """Beside a writer that goes on for windows it answers as of then; then what it held back goes."""
    settings = Settings(**SURE, **UNIQUE, window="8m", memory_documents=64, shards=2, decided_after=64)
    documents = long_history(5, 4000)
    asked_for = [Document(f"new {i}", document.text) for i, document in enumerate(documents[900:1000])]
    with opened(settings, tmp_path) as writer:
        for at in range(0, 1000, 50):
            fed(writer, documents[at : at + 50], at)
            writer.commit({})
        with opened(Settings(max_matches=0), tmp_path, read_only=True) as reader:
            held = [g.number for g in reader.shards[0].generations]
            before = asked(reader, asked_for)
            assert sum(answer["kind"] != "unique" for answer in before) > 50
            for at in range(1000, 4000, 50):
                fed(writer, documents[at : at + 50], at)
                writer.commit({})
            assert set(held) < folders(tmp_path)
            assert not set(held) & {g.number for g in writer.shards[0].generations}
            for shard in reader.shards:
                shard.ids._stored.cache_clear()
                shard.texts._cache.clear()
            assert asked(reader, asked_for) == before
        writer.commit({})
        assert writer.window is not None
        left = {span.number for span in writer.window.spans}
    assert folders(tmp_path) == left


def test_what_a_crash_leaves_goes_at_the_next_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(**SURE, **UNIQUE, window="8m", memory_documents=64)
    documents = long_history(5, 2500)
    with monkeypatch.context() as patched:
        patched.setattr(Leaving, "add", lambda leaving, gone: None)
        in_batches(documents[:2000], settings, tmp_path)
    left = folders(tmp_path)
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        numbers = {span.number for span in index.window.spans}
        same(comparable(fed(index, documents[2000:], 2000), settings), modelled(documents, settings)[2000:])
    assert numbers < left
    assert min(folders(tmp_path)) == min(numbers)
    with opened(settings, tmp_path) as index:
        assert min(index.store.generations()) == min(numbers)


def test_the_first_document_needs_a_time(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="7d")
    with opened(settings, tmp_path) as index:
        for documents in ([Document(1, "a b")], [Document(1, "a b"), Document(2, "c d", time=START)]):
            with pytest.raises(UsageError, match=r"window = 7d needs event times.*--time-field"):
                fed(index, documents, 0)
        assert index.count == 0
        # One that is rejected does not count; from then on a time may be missing.
        found = fed(index, [Document(1, " "), Document(2, "c d", time=START), Document(3, "c d"), Document(4, "e")], 0)
        assert [verdict[0] for verdict in found] == ["rejected", "unique", "exact_duplicate", "unique"]


def test_max_ahead_holds_against_the_clock(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="1h", max_ahead="10m")
    mad = [Document(i, f"a{i} b{i}", time=LAST_TIME - 1) for i in range(70)]
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        fed(index, [Document("first", "a b", time=START)], 0, clock=START)
        fed(index, mad, 1, clock=START + MINUTE)
        assert index.window.now == START + 11 * MINUTE
        assert index.window.jumps == 0
        assert fed(index, [Document("again", "a b", time=START)], 71, clock=START)[0][0] == "exact_duplicate"


def test_a_jump_is_counted_and_kept(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="1h")
    with opened(settings, tmp_path) as index:
        fed(index, [Document(i, f"a{i} b{i}", time=START + 3000 * MINUTE * (i >= 40)) for i in range(200)], 0)
        index.commit({})
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        assert index.window.jumps == 1
        assert index.window.now == START + 3000 * MINUTE


def test_an_index_made_without_a_window_stays_without(tmp_path: Path) -> None:
    with opened(Settings(), tmp_path / "without") as index:
        assert index.window is None
        assert "window" not in index.settings.answers
    with pytest.raises(StateError, match=r"window = None \(now '7d'\)"):
        Index(Settings(window="7d"), tmp_path / "without")
    with opened(Settings(window="7d", time_field="at"), tmp_path / "with"):
        pass
    with opened(Settings(), tmp_path / "with") as index:
        assert (index.settings.window, index.settings.time_field) == ("7d", "at")
    with opened(Settings(window="168h"), tmp_path / "with"):
        pass
    for other in ({"window": "8d"}, {"time_field": "ts"}, {"max_ahead": "1d"}):
        with pytest.raises(StateError, match=f"{next(iter(other))} = "):
            Index(Settings(**other) if "max_ahead" not in other else Settings(window="7d", **other), tmp_path / "with")


def test_generations_are_an_eighth_of_the_window_but_at_least_a_minute() -> None:
    times = np.arange(START, START + 200 * MINUTE, SECOND)
    every = np.ones(len(times), np.bool_)
    for window, length in (("80m", 10), ("8m", 1), ("10s", 1), ("1s", 1)):
        found = Window(Settings(window=window, generation_documents=20_000))
        _, numbers = found.enter(times, every, np.arange(len(times)), None)
        sizes = np.bincount(numbers)
        assert np.all(sizes[1:-1] == 60 * length)
        pieces = Window(Settings(window=window, generation_documents=20_000))
        for at in range(0, len(times), 700):
            part = slice(at, at + 700)
            _, some = pieces.enter(times[part], every[part], np.arange(len(times))[part], None)
            assert np.array_equal(some, numbers[part])
            pieces = Window(
                Settings(window=window, generation_documents=20_000), orjson.loads(orjson.dumps(pieces.facts))
            )
        assert pieces.facts == found.facts
        assert [span.number for span in found.spans] == list(range(len(sizes)))
        gone = found.gone
        assert gone == list(range(len(gone)))
        assert all(found.now - span.last > found._length for span in found.spans[: len(gone)])
        assert found.now - found.spans[len(gone)].last <= found._length or len(gone) == len(sizes) - 1


def test_a_feed_that_is_slow_has_few_generations() -> None:
    """A document a day for fifty years and a window of a week: not a generation for each."""
    settings = Settings(window="7d")
    times = START + DAY * np.arange(365 * 50)
    window, places = Window(settings), np.arange(len(times))
    log, numbers = window.enter(times, np.ones(len(times), np.bool_), places, None)
    assert set(np.bincount(numbers)[:-1].tolist()) == {settings.documents_of_a_generation // FEWEST}
    piece = Window(settings)
    for at in range(0, len(times), 13):
        part = slice(at, at + 13)
        some = piece.enter(times[part], np.ones(len(times[part]), np.bool_), places[part], None)[1]
        assert np.array_equal(some, numbers[part])
        piece = Window(settings, orjson.loads(orjson.dumps(piece.facts)))
    assert piece.facts == window.facts
    assert all(span.last == log[numbers == span.number][-1] for span in window.spans)
