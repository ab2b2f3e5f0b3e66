"""A window and its stream time: what is older is not seen; what goes changes no answer and leaves nothing."""

import random
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.feeds import MINUTE, SECOND, START, drifting
from support.indexes import SURE, UNIQUE, asked, fed, modelled, opened, same, verdicts_of

from stream_lsh.documents.document import Document
from stream_lsh.documents.times import LAST_TIME, NO_TIME
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError, UsageError
from stream_lsh.index.index import Index
from stream_lsh.index.segments.removal import Removal
from stream_lsh.index.segments.stream_time import BEFORE, LAST, StreamTime
from stream_lsh.index.segments.window import FEWEST, Window
from stream_lsh.settings.model import Settings

DAY = 86_400_000
WINDOW = Settings(**SURE, **UNIQUE, window="8m", memtable_documents=16)


@pytest.mark.parametrize("shards", [1, pytest.param(3, marks=pytest.mark.long)])
def test_removed_segments_change_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int) -> None:
    """Under `all`, with limits so small that all of them are met: as if nothing were ever dropped."""
    settings = Settings(
        shingles="words:1", threshold=0.5, bands=10, rows=2, signature_size=40, max_bucket_rows=3, max_candidates=4,
        max_verified_matches=2, max_matches=2, memtable_documents=16, compare_with="all", shards=shards,
        decision_lag=64,
        window="5m", segment_documents=1000,
    )  # fmt: skip
    documents = drifting(7, 1200)
    went = fed_in_batches(documents, settings, tmp_path / "removed_by")
    monkeypatch.setattr(Index, "_forgotten", lambda index: {})
    stayed = fed_in_batches(documents, settings, tmp_path / "stayed")
    same(went, stayed)
    assert sum("not_compared" in verdict for verdict in went) > 50
    assert len(folders(tmp_path / "removed_by")) < 12 < len(folders(tmp_path / "stayed"))
    assert folders(tmp_path / "removed_by") < folders(tmp_path / "stayed")


def fed_in_batches(documents: Sequence[Document], settings: Settings, folder: Path) -> list[dict[str, Any]]:
    """The verdicts of an index, a batch and a commit after the other."""
    out: list[dict[str, Any]] = []
    with opened(settings, folder) as index:
        for at in range(0, len(documents), 50):
            out += fed(index, documents[at : at + 50], at, 50)
            index.commit({})
    return out


def folders(state: Path) -> set[int]:
    """The numbers of the segments that have files."""
    return {int(path.name) for path in (state / "segments").iterdir()}


def test_removed_segments_leave_nothing_behind(tmp_path: Path) -> None:
    """No file, no key, no entry: only what is in the window is in the folder, and it is sound to the last byte."""
    fed_in_batches(drifting(5, 1000), WINDOW, tmp_path)
    with opened(WINDOW, tmp_path) as index:
        assert index.window is not None
        numbers = {span.number for span in index.window.spans}
        assert 2 < len(numbers) <= 12 and min(numbers) > 2
        assert folders(tmp_path) == set(index.store.segments()) == numbers
        flushes = {int(name.split("/")[2]) for name, _ in index.store.items("flush/")}
        assert flushes <= numbers
        assert index.count < 900
    facts: Any = information(tmp_path, check=True)
    assert facts["health"]["problems"] == []
    assert facts["documents"]["stored"] == sum(facts["documents"]["shards"]) < 900
    latest = facts["segments"]["latest"]
    assert [item["segment"] for item in latest] == sorted(numbers)
    assert latest[-1]["to"] == facts["window"]["stream_time"]
    assert latest[0]["from"] <= latest[0]["to"] >= facts["window"]["remembered_since"]


def test_a_reader_keeps_what_it_has_open(tmp_path: Path) -> None:
    """Beside a writer that goes on for windows it answers as of then; then what it held back goes."""
    settings = WINDOW.where_not_given(shards=2, decision_lag=64)
    documents = drifting(5, 1200)
    asked_for = [Document(f"new {i}", document.text) for i, document in enumerate(documents[300:400])]
    with opened(settings, tmp_path) as writer:
        for at in range(0, 400, 50):
            fed(writer, documents[at : at + 50], at, 50)
            writer.commit({})
        with opened(Settings(max_matches=0), tmp_path, read_only=True) as reader:
            held = [g.number for g in reader.shards[0].segments]
            before = asked(reader, asked_for)
            assert sum(answer["kind"] != "unique" for answer in before) > 50
            for at in range(400, 1200, 50):
                fed(writer, documents[at : at + 50], at, 50)
                writer.commit({})
            assert set(held) < folders(tmp_path)
            assert not set(held) & {g.number for g in writer.shards[0].segments}
            for shard in reader.shards:
                shard.ids._stored.cache_clear()
                shard.texts._cache.clear()
            assert asked(reader, asked_for) == before
        writer.commit({})
        assert writer.window is not None
        left = {span.number for span in writer.window.spans}
    assert folders(tmp_path) == left


def test_what_a_crash_leaves_is_removed_at_the_next_opening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = drifting(5, 1000)
    with monkeypatch.context() as patched:
        patched.setattr(Removal, "add", lambda leaving, parts: None)
        fed_in_batches(documents[:800], WINDOW, tmp_path)
    left = folders(tmp_path)
    with opened(WINDOW, tmp_path) as index:
        assert index.window is not None
        numbers = {span.number for span in index.window.spans}
        same(verdicts_of(index, documents[800:], 800), modelled(documents, WINDOW)[800:])
    assert numbers < left
    assert min(folders(tmp_path)) == min(numbers)
    with opened(WINDOW, tmp_path) as index:
        assert min(index.store.segments()) == min(numbers)


def test_the_first_document_needs_a_time(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="7d")
    with opened(settings, tmp_path) as index:
        for documents in ([Document(1, "a b")], [Document(1, "a b"), Document(2, "c d", time=START)]):
            with pytest.raises(UsageError, match=r"window = 7d needs event times.*--time-field"):
                verdicts_of(index, documents, 0)
        assert index.count == 0
        # One that is rejected does not count; from then on a time may be missing.
        found = verdicts_of(
            index, [Document(1, " "), Document(2, "c d", time=START), Document(3, "c d"), Document(4, "e")], 0
        )
        assert [verdict.kind for verdict in found] == ["rejected", "unique", "exact_duplicate", "unique"]


def test_max_future_limits_times_by_the_clock(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="1h", max_future="10m")
    mad = [Document(i, f"a{i} b{i}", time=LAST_TIME - 1) for i in range(70)]
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        verdicts_of(index, [Document("first", "a b", time=START)], 0, clock=START)
        verdicts_of(index, mad, 1, clock=START + MINUTE)
        assert index.window.now == START + 11 * MINUTE
        assert index.window.jumps == 0
        assert verdicts_of(index, [Document("again", "a b", time=START)], 71, clock=START)[0].kind == "exact_duplicate"


def test_a_jump_is_counted_and_kept(tmp_path: Path) -> None:
    settings = Settings(**SURE, **UNIQUE, window="1h")
    with opened(settings, tmp_path) as index:
        verdicts_of(index, [Document(i, f"a{i} b{i}", time=START + 3000 * MINUTE * (i >= 40)) for i in range(200)], 0)
        index.commit({})
    with opened(settings, tmp_path) as index:
        assert index.window is not None
        assert index.window.jumps == 1
        assert index.window.now == START + 3000 * MINUTE


def test_an_index_made_without_a_window_stays_without(tmp_path: Path) -> None:
    with opened(Settings(), tmp_path / "without") as index:
        assert index.window is None
        assert "window" not in index.settings.answers
    with pytest.raises(StoreError, match=r"window = None \(now '7d'\)"):
        Index(Settings(window="7d"), tmp_path / "without")
    with opened(Settings(window="7d", time_field="at"), tmp_path / "with"):
        pass
    with opened(Settings(), tmp_path / "with") as index:
        assert (index.settings.window, index.settings.time_field) == ("7d", "at")
    with opened(Settings(window="168h"), tmp_path / "with"):
        pass
    for other in ({"window": "8d"}, {"time_field": "ts"}, {"max_future": "1d"}):
        with pytest.raises(StoreError, match=f"{next(iter(other))} = "):
            Index(Settings(**other) if "max_future" not in other else Settings(window="7d", **other), tmp_path / "with")


def test_segments_are_an_eighth_of_the_window_but_at_least_a_minute() -> None:
    times = np.arange(START, START + 200 * MINUTE, SECOND)
    every = np.ones(len(times), np.bool_)
    for window, length in (("80m", 10), ("8m", 1), ("10s", 1), ("1s", 1)):
        found = Window(Settings(window=window, segment_documents=20_000))
        _, numbers = found.enter(times, every, np.arange(len(times)), None)
        sizes = np.bincount(numbers)
        assert np.all(sizes[1:-1] == 60 * length)
        pieces = Window(Settings(window=window, segment_documents=20_000))
        for at in range(0, len(times), 700):
            part = slice(at, at + 700)
            _, some = pieces.enter(times[part], every[part], np.arange(len(times))[part], None)
            assert np.array_equal(some, numbers[part])
            pieces = Window(Settings(window=window, segment_documents=20_000), orjson.loads(orjson.dumps(pieces.facts)))
        assert pieces.facts == found.facts
        assert [span.number for span in found.spans] == list(range(len(sizes)))
        expired = found.expired
        assert expired == list(range(len(expired)))
        assert all(found.now - span.last > found._length for span in found.spans[: len(expired)])
        assert found.now - found.spans[len(expired)].last <= found._length or len(expired) == len(sizes) - 1


def test_a_feed_that_is_slow_has_few_segments() -> None:
    """A document a day for fifty years and a window of a week: not a segment for each."""
    settings = Settings(window="7d")
    times = START + DAY * np.arange(365 * 50)
    window, places = Window(settings), np.arange(len(times))
    log, numbers = window.enter(times, np.ones(len(times), np.bool_), places, None)
    assert set(np.bincount(numbers)[:-1].tolist()) == {settings.documents_of_a_segment // FEWEST}
    piece = Window(settings)
    for at in range(0, len(times), 13):
        part = slice(at, at + 13)
        some = piece.enter(times[part], np.ones(len(times[part]), np.bool_), places[part], None)[1]
        assert np.array_equal(some, numbers[part])
        piece = Window(settings, orjson.loads(orjson.dumps(piece.facts)))
    assert piece.facts == window.facts
    assert all(span.last == log[numbers == span.number][-1] for span in window.spans)


MAD = LAST_TIME - 1


times_of_documents = st.lists(st.sampled_from((NO_TIME, 0, MAD)) | st.integers(10_000, 10_400), max_size=300)


@settings(max_examples=60, deadline=None)
@given(times_of_documents, st.integers(1, 200), st.booleans())
def test_it_is_that_of_the_rule_however_the_log_is_cut(times: list[int], batch: int, restarted: bool) -> None:
    """A restart goes on from what was committed, which says the same after the same documents, to the byte."""
    log, found = StreamTime(), list[int]()
    for at in range(0, len(times), batch):
        found += log.advance(np.array(times[at : at + batch], np.int64)).tolist()
        if restarted:
            log = StreamTime(orjson.loads(orjson.dumps(log.facts)))
    # The same in plain Python.
    now, seen, out = BEFORE, list[int](), []
    for time in times:
        if time != NO_TIME:
            seen.append(time)
            now = max(now, median_low(seen[-LAST:]))
        out.append(now)
    assert found == out
    whole = StreamTime()
    whole.advance(np.array(times, np.int64))
    assert orjson.dumps(log.facts) == orjson.dumps(whole.facts)


@pytest.mark.parametrize(("mad", "moved"), [(31, False), (32, False), (33, True), (64, True)])
def test_up_to_half_of_64_mad_times_move_nothing(mad: int, moved: bool) -> None:
    """The same places in each 64, so that any 64 in a row have as many."""
    start = 1_700_000_000_000
    calm = [start + 1000 * i for i in range(1000)]
    places = random.Random(mad).sample(range(64), mad)
    times = [MAD if i >= 200 and i % 64 in places else time for i, time in enumerate(calm)]
    found = StreamTime().advance(np.array(times))
    assert bool(found.max() == MAD) is moved
    if not moved:
        assert found.max() <= max(calm)
        assert found.max() >= calm[-64]  # nor does it stand still
