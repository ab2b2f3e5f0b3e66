"""Every measure through the whole job, against exhaustive comparison: verdicts, restarts, kills, what is erased."""

import base64
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.contents import contents
from support.jobs import OUTPUTS, bytes_of, read, run, written
from support.kills import broken_off
from support.long_form import rotating
from support.measure_feeds import FIELDS, GIVEN, ITEMS, feed_of
from support.models.measures import compared, modelled, similarity, stands_for

from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.embedded.erasure import erase
from stream_lsh.embedded.information import information
from stream_lsh.errors import StoreError, UsageError

CHANGING: dict[str, Any] = {
    "on_conflict": "update", "deleted_field": "deleted", "time_field": "ts", "window": "150s", "match_within": ["lang"],
}  # fmt: skip
CERTAIN = ("hamming", "levenshtein")  # of which nothing is missed


def sure(measure: str, **more: Any) -> dict[str, Any]:
    """Settings with which no limit is met, and the little that banding may miss is not missed with the seeds below."""
    given = {"max_bucket_rows": 4096, "max_candidates": 4096, "memtable_documents": 16, "segment_documents": 60}
    if measure != "tf-idf":
        given |= {"max_candidates": 65536, "max_verified_matches": 1000, "max_matches": 0}
        given |= {"sampling": 1} if measure == "containment" else {}
        given |= {} if measure in (*CERTAIN, "containment") else {"target_recall": 0.999999}
    return given | GIVEN[measure] | more


def changing(measure: str) -> dict[str, Any]:
    """The model of stories matches all languages."""
    return {name: value for name, value in CHANGING.items() if (measure, name) != ("tf-idf", "match_within")}


SOME_ITEMS = ["cosine", "levenshtein", *rotating([name for name in ITEMS if name not in ("cosine", "levenshtein")], 1)]
QUICK = [
    ("tf-idf", "kept", 1, True), ("containment", "kept", 1, True), ("weighted-jaccard", "kept", 1, True),
    ("hamming", "all", 3, False),
]  # fmt: skip


def cases() -> list[Any]:
    slowly = []
    for measure, compare_with, shards, changes in product(GIVEN, ("kept", "all"), (1, 3), (False, True)):
        if (measure == "tf-idf" and (compare_with, shards) != ("kept", 1)) or (
            measure == "containment" and (compare_with, shards) == ("kept", 3)
        ):
            continue
        slowly.append((measure, compare_with, shards, changes))
    for case in QUICK:
        slowly.remove(case)
    return [*QUICK, *rotating(slowly, 12)]


@pytest.mark.parametrize(("measure", "compare_with", "shards", "changes"), cases())
def test_verdicts_are_those_of_exhaustive_comparison(
    tmp_path: Path, measure: str, compare_with: Any, shards: int, changes: bool
) -> None:
    """To the last match; over several segments and two runs, the second of which knows no setting."""
    feed = feed_of(measure, seed=shards)
    records = feed.history(200) if changes else feed.plain(200)
    more: dict[str, Any] = {"compare_with": compare_with, "shards": shards}
    more |= {"decision_lag": 20} if compare_with == "kept" and shards > 1 else {}
    more |= {"max_verified_matches": 0} if compare_with == "all" else {}
    settings = Settings(**sure(measure, **more | (changing(measure) if changes else {})))
    inputs = written(tmp_path, records)
    run(tmp_path, inputs[:1], settings)
    run(tmp_path, inputs, Settings(max_matches=settings.max_matches))
    verdicts, truth = read(tmp_path / "verdicts"), modelled(records, settings)
    compared(verdicts, truth, settings)
    kinds = {verdict["kind"] for verdict in verdicts}
    assert {"unique", "near_duplicate", "exact_duplicate"} <= kinds
    if changes:
        assert {"deleted", "outdated", "redelivered"} <= kinds
        assert compare_with == "all" or any(true.new_representative or true.new_representatives for true in truth)
    if measure == "containment" and compare_with == "kept":  # what contains more is kept
        assert sum(verdict["kind"] == "unique" and bool(verdict["matches"]) for verdict in verdicts) > 5
    facts: Any = information(tmp_path / "index", check=True)
    assert facts["health"]["problems"] == []
    assert facts["segments"]["number"] > 1
    before = bytes_of(tmp_path)
    for name in OUTPUTS:
        (tmp_path / name).unlink()
    run(tmp_path, inputs, Settings())
    assert bytes_of(tmp_path) == before
    said = facts["settings"]
    for name in ("measure", "dimensions", "max_distance"):
        assert said.get(name) == GIVEN[measure].get(name)
    assert measure in ("tf-idf", "containment") or "shingles" not in said
    assert ("normalize" in said) is ("text_field" in said) is (measure not in FIELDS)
    assert ("threshold" in said) is (measure in ("cosine", "weighted-jaccard", "containment", "tf-idf"))


@pytest.mark.parametrize("measure", SOME_ITEMS)
def test_the_usual_settings_find_what_they_promise(measure: str) -> None:
    """Pairs reported are true; of the others no more are missed than the recall allows, of some measures none."""
    feed = feed_of(measure, seed=7, families=10)
    settings = Settings(**GIVEN[measure], compare_with="all", max_verified_matches=0, max_matches=0)
    items = [record[feed.field] for record in feed.plain(200)]
    texts = [stands_for(item, settings) for item in items]
    true = {
        (older, newer) for newer in range(len(texts)) for older in range(newer)
        if similarity(measure, texts[older], texts[newer]) >= settings.least
    }  # fmt: skip
    with Deduplicator(settings) as deduplicator:
        verdicts = list(deduplicator.process([Document(i, **{feed.field: item}) for i, item in enumerate(items)]))
    found = {(match.seq, verdict.seq) for verdict in verdicts for match in verdict.matches}
    assert found <= true
    assert len(true) > 600
    assert len(true - found) <= (0 if measure in CERTAIN else 0.001 * len(true))


SCOPED: dict[str, tuple[dict[str, Any], Any]] = {
    "cosine": ({"dimensions": 32, "threshold": 0.2}, np.arange(32.0)),
    "euclidean": ({"dimensions": 32, "max_distance": 50}, np.arange(32.0)),
    "hamming": ({"dimensions": 64, "max_distance": 40}, 12345),
    "containment": ({"threshold": 0.6, "shingles": "words:3"}, " ".join(f"w{k}" for k in range(50))),
}


@pytest.mark.parametrize("measure", SCOPED)
@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_documents_of_another_scope_never_match(measure: str, compare_with: Any) -> None:
    """However low the threshold, and with equal items, too."""
    given, item = SCOPED[measure]
    documents = [Document(i, within={"lang": str(i % 100)}, **{FIELDS.get(measure, "text"): item}) for i in range(200)]
    settings = Settings(
        measure=measure, **given, compare_with=compare_with, match_within=["lang"], max_verified_matches=1000
    )
    with Deduplicator(settings) as deduplicator:
        verdicts = list(deduplicator.process(documents, batch=50))
    for number, verdict in enumerate(verdicts):
        assert verdict.kind == ("unique" if number < 100 else "exact_duplicate")
        assert {match.seq % 100 for match in verdict.matches} <= {number % 100}
        assert verdict.duplicate_of == (None if number < 100 else number % 100)


def quick(*measures: str) -> list[Any]:
    """These, and the others as long tests."""
    return [name if name in measures else pytest.param(name, marks=pytest.mark.long) for name in GIVEN]


@pytest.mark.parametrize("measure", quick("tf-idf"))
def test_a_run_that_is_broken_off_continues_to_the_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, measure: str
) -> None:
    feed = feed_of(measure, seed=3)
    records, bad = feed.history(180), (20, 130, 160)
    for number in bad:
        records.insert(number, {"id": f"bad-{number}", feed.field: [1, True], "ts": 1000 + number})
    inputs = written(tmp_path, records, parts=6)
    settings = Settings(**sure(measure, **changing(measure)))
    outputs = (*OUTPUTS, "groups")
    run(tmp_path / "one", inputs, settings, outputs)
    assert broken_off(monkeypatch, lambda: run(tmp_path / "two", inputs, settings, outputs)) > 1
    assert bytes_of(tmp_path / "two", outputs) == bytes_of(tmp_path / "one", outputs)
    assert (tmp_path / "one" / "dead_letters").read_bytes().count(b"\n") == len(bad)


@pytest.mark.parametrize(
    ("compare_with", "changes"),
    [("kept", True), *(pytest.param(*case, marks=pytest.mark.long) for case in (
        ("kept", False), ("all", False), ("all", True)))],
)  # fmt: skip
def test_lost_postings_are_made_again(tmp_path: Path, compare_with: Any, changes: bool) -> None:
    """From rows and texts, also of what was erased and what stands for a new representative."""
    feed = feed_of("containment", seed=11)
    records = feed.history(300) if changes else feed.plain(300)
    more = {"compare_with": compare_with, "erase_hours": 0} | (
        {"max_verified_matches": 0} if compare_with == "all" else {}
    )
    more |= CHANGING | {"window": "1d"} if changes else {}
    settings = Settings(**sure("containment", **more))
    inputs = written(tmp_path, records)
    run(tmp_path, inputs[:2], settings)
    lost = sorted((tmp_path / "index").glob("segments/*/postings/run-*"))
    assert lost
    for path in lost:
        path.unlink()
    run(tmp_path, inputs, Settings(max_matches=0))
    compared(read(tmp_path / "verdicts"), modelled(records, settings), settings)


def needles(measure: str, records: list[dict[str, Any]], others: list[dict[str, Any]]) -> list[bytes]:
    """What an index holds of some records, and of no others: their items in text and in bytes, or their words."""
    settings, field = Settings(**GIVEN[measure]), FIELDS.get(measure, "text")

    def stored(record: dict[str, Any]) -> str:
        value: str = record[field]
        return value if measure == "levenshtein" else stands_for(value, settings)

    rest = {stored(record) for record in others}
    if measure == "containment":
        words = {word for record in records for word in stored(record).split()} - set(" ".join(rest).split())
        return [word.encode() + b" " for word in words]
    texts = [stored(record) for record in records]
    texts = [text for text in texts if len(text) > 2 and not any(text in other for other in rest)]
    raw = {"hamming": bytes.fromhex, "cosine": base64.b64decode, "euclidean": base64.b64decode}
    return [text.encode() for text in texts] + [raw[measure](text) for text in texts if measure in raw]


@pytest.mark.parametrize("measure", [name for name in GIVEN if name != "tf-idf"])
def test_nothing_is_left_of_what_was_deleted(tmp_path: Path, measure: str) -> None:
    records = feed_of(measure, seed=5).plain(120)
    after = [{**record, "id": f"after-{record['id']}"} for record in feed_of(measure, seed=6).plain(60)]
    victims, others = records[10:20], [*records[:10], *records[20:], *after]
    found = needles(measure, victims, others)
    assert len(found) > 3
    settings = Settings(**GIVEN[measure], on_conflict="update", deleted_field="deleted", memtable_documents=32)
    deletions = [{"id": record["id"], "deleted": True} for record in victims]
    run(tmp_path / "job", written(tmp_path, [*records, *deletions, *after], 1), settings, ["verdicts"])
    state = tmp_path / "job" / "index"

    def left() -> int:
        files = contents(state)
        return sum(any(needle in data for data in files) for needle in found)

    assert left() > 0
    erase(state, everything=True)
    assert left() == 0
    facts: Any = information(state, check=True)
    assert facts["health"]["problems"] == []


def crowd(measure: str, n: int) -> tuple[list[Any], list[Any]]:
    """One item so many times, and as many neighbours of another."""
    if measure == "hamming":  # all of whose bits are zeros
        near = [2**64 - 1 ^ (1 << a) ^ (1 << b) for a in range(40) for b in range(40) if a != b]
        return [0] * n, near[:n]
    if measure == "weighted-jaccard":
        tea = [{"tea": 3, "sugar": 2 + number % 100 / 100, f"x{number}": 0.1} for number in range(n)]
        return [{"bread": 2.5, "milk": 1}] * n, tea
    if measure == "levenshtein":
        titles = [f"Another title, with a number: {number % 1000:04d}" for number in range(n)]
        return ["One title, again and again"] * n, titles
    numbers = np.random.default_rng(6)
    base = numbers.normal(size=32)
    return [np.ones(32)] * n, [base + numbers.normal(size=32) * 0.03 for _ in range(n)]


@pytest.mark.parametrize("compare_with", ["kept", pytest.param("all", marks=pytest.mark.long)])
@pytest.mark.parametrize("measure", ITEMS)
def test_crowds_have_one_representative(measure: str, compare_with: Any) -> None:
    """Nothing is missed that decides a verdict."""
    both = [item for pair in zip(*crowd(measure, 600), strict=True) for item in pair]
    documents = [Document(i, **{FIELDS.get(measure, "text"): item}) for i, item in enumerate(both)]
    with Deduplicator(Settings(**GIVEN[measure], compare_with=compare_with)) as deduplicator:
        verdicts = list(deduplicator.process(documents))
    assert [verdict.kind for verdict in verdicts[:2]] == ["unique", "unique"]
    assert {verdict.kind for verdict in verdicts[2::2]} == {"exact_duplicate"}
    assert {verdict.kind for verdict in verdicts[3::2]} <= {"near_duplicate", "exact_duplicate"}
    if compare_with == "kept":
        assert {verdict.duplicate_of for verdict in verdicts[2::2]} == {0}
        assert {verdict.duplicate_of for verdict in verdicts[3::2]} == {1}
        assert not any(verdict.not_compared for verdict in verdicts)


def test_an_index_keeps_its_measure(tmp_path: Path) -> None:
    for name, measure in (("bits", "hamming"), ("vectors", "cosine")):
        Deduplicator(Settings(**GIVEN[measure]), tmp_path / name).close()
    Deduplicator(Settings(), tmp_path / "texts").close()
    for name, given, message in (
        ("bits", {**GIVEN["hamming"], "max_distance": 4}, r"max_distance = 5.0 \(now 4.0\)"),
        ("bits", GIVEN["cosine"], r"measure = 'hamming' \(now 'cosine'\)"),
        ("bits", {**GIVEN["hamming"], "bits_field": "hash"}, r"bits_field = 'bits' \(now 'hash'\)"),
        ("texts", GIVEN["hamming"], r"measure = 'jaccard' \(now 'hamming'\)"),
        ("vectors", {"threshold": 0.8}, r"threshold = 0.9 \(now 0.8\)"),
    ):  # fmt: skip
        with pytest.raises(StoreError, match=message):
            Deduplicator(Settings(**given), tmp_path / name)


def test_folders_hold_no_vectors(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "one.txt").write_text("a text")
    for measure, what in (("cosine", "of vectors: .* the field vector,"), ("hamming", "of bit vectors: .* bits,")):
        with pytest.raises(UsageError, match=f"folder of text files, and the index is {what}"):
            run(tmp_path / measure, [texts], Settings(**GIVEN[measure]), [])


def test_more_is_read_of_a_bucket_of_places() -> None:
    """Where few are read of each, many verdicts are incomplete."""
    settings = Settings(measure="euclidean", dimensions=200, max_distance=1.6, max_bucket_rows=8)
    assert settings.answers["max_bucket_rows"] == 8
    assert Settings(measure="euclidean", dimensions=200, max_distance=1.6).answers["max_bucket_rows"] == 1024
    assert (
        Settings().answers["max_bucket_rows"]
        == Settings(measure="cosine", dimensions=200).answers["max_bucket_rows"]
        == 64
    )
