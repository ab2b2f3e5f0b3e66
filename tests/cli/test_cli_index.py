"""Commands on an index that is there: its settings, what `pairs` lists, queries with whole files, who writes to it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from support.json_lines import read_lines, write_lines

from stream_lsh.index.store.rocksdb import Store, name_key

FOX = "the quick brown fox jumps over the lazy dog and runs into the dark wood behind the old mill by the river"
FEED = [
    {"id": "a", "text": FOX},
    {"id": "b", "text": FOX + " today"},
    {"id": "c", "text": FOX + " today again"},
    {"id": "d", "text": "something else: a report on the price of wheat in the markets of the north this week"},
]


Run = Callable[..., Any]


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "feed.jsonl", FEED)


def settings(run: Run, state: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("info", "--index", state, "--json").stdout)["settings"]
    return found


def test_settings_that_are_not_given_are_those_of_the_index(run: Run, feed: Path, tmp_path: Path) -> None:
    state, more = tmp_path / "state", write_lines(tmp_path / "more.jsonl", [{"id": "e", "text": FOX + " and more"}])
    made = ("--threshold", 0.6, "--shingles", "words:2", "--normalize", "lower,punctuation", "--max-bucket-rows", 8)
    run("dedup", feed, "--index", state, *made, "--max-candidates", 9, "--segment-documents", 1000)
    before = settings(run, state)
    assert (before["threshold"], before["max_bucket_rows"], before["max_candidates"]) == (0.6, 8, 9)
    assert (before["max_verified_matches"], before["compare_with"], before["segment_documents"]) == (10, "kept", 1000)
    found = run("dedup", more, "--index", state, "--verdicts", "-", "--memtable-documents", 64, "--max-matches", 1)
    assert [verdict["duplicate_of"] for verdict in read_lines(found.stdout)] == ["a"]
    assert settings(run, state) == before


FIXED = [
    ("--threshold", "0.6", "threshold = 0.8 (now 0.6)"),
    ("--shingles", "chars:9", "shingles = 'words:3/8' (now 'chars:9')"),
    ("--compare-with", "all", "compare_with = 'kept' (now 'all')"),
    ("--max-candidates", "7", "max_candidates = 32 (now 7)"),
    ("--max-bucket-rows", "7", "max_bucket_rows = 64 (now 7)"),
    ("--max-verified-matches", "7", "max_verified_matches = 10 (now 7)"),
    ("--segment-documents", "7", "(now 7)"),
    ("--verify", "signature", "verify = 'exact' (now 'signature')"),
    ("--id-field", "name", "id_field = 'id' (now 'name')"),
    ("--text-field", "title", "text_field = ['text'] (now ['title'])"),
    ("--bands", "10", "bands = 18 (now 10)"),
]


@pytest.mark.parametrize(
    "command",
    [("dedup", "feed.jsonl", "--index"), ("backup", "--index", "here"), ("info",), ("restore", "--index", "x")],
)
def test_an_address_is_no_folder(command: tuple[str, ...], run: Run) -> None:
    ended = run(*command, "s3://bucket/index", code=2)
    assert "s3://bucket/index is an address; it has to be a folder of this machine" in ended.stderr


def test_settings_that_fix_answers_are_refused_by_name(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run("dedup", feed, "--index", state)
    for option, value, message in FIXED:
        found = run("dedup", feed, "--index", state, option, value, code=3).stderr
        assert message in found and "was made with other settings" in found
        assert found.count("\n") == 1
        by_variable = run("dedup", feed, "--index", state, code=3, **{option[2:].replace("-", "_"): value}).stderr
        assert by_variable == found


def test_the_same_settings_in_other_words_are_the_same(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run("dedup", feed, "--index", state, "--target-recall", 0.999)
    same = ("--threshold", "0.80", "--shingles", "words:3", "--tokens", "unicode")
    steps = ("--normalize", "nfc,ignorable,space,lower")
    run("dedup", feed, "--index", state, *same, *steps, "--bands", 18, "--signature-size", 128)


def test_an_index_of_the_first_version_is_refused_with_the_remedy(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    store = Store(state / "db")
    store.write({name_key("index"): orjson.dumps({"format": 1, "created": 0, "settings": {}, "fingerprint": "0"})})
    store.close()
    for command in (("dedup", feed), ("pairs", feed), ("info",), ("query", "text"), ("query", "--input", feed)):
        found = run(*command, "--index", state, code=3).stderr
        assert "has format 1, this version reads 2; start a new folder and feed it again" in found
        assert found.count("\n") == 1


def test_a_new_index_of_pairs_compares_with_all(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    found = run("pairs", feed, "--index", state)
    assert {(pair["older"], pair["newer"]) for pair in read_lines(found.stdout)} == {("a", "b"), ("a", "c"), ("b", "c")}
    assert "3 pairs of similar documents\n" in found.stderr and "kept" not in found.stderr
    made = settings(run, state)
    assert (made["compare_with"], made["max_verified_matches"], made["max_candidates"]) == ("all", 1000, 1000)


def test_what_is_given_to_pairs_counts(run: Run, feed: Path, tmp_path: Path) -> None:
    run("pairs", feed, "--index", tmp_path / "one", "--max-verified-matches", 0, "--max-candidates", 50)
    made = settings(run, tmp_path / "one")
    assert (made["compare_with"], made["max_verified_matches"], made["max_candidates"]) == ("all", 0, 50)
    found = run("pairs", feed, "--compare-with", "kept")
    assert [(pair["older"], pair["newer"]) for pair in read_lines(found.stdout)] == [("a", "b"), ("a", "c")]
    assert "2 pairs of similar documents with kept documents only" in found.stderr
    assert "1 document has more than 1 match" in run("pairs", feed, "--max-matches", 1).stderr


def test_pairs_list_a_thousand_matches(run: Run, tmp_path: Path) -> None:
    copies = write_lines(tmp_path / "copies.jsonl", [{"id": number, "text": FOX} for number in range(60)])
    more = write_lines(tmp_path / "more.jsonl", [{"id": number, "text": FOX} for number in range(60, 70)])
    state = tmp_path / "state"
    for words in ((copies,), (copies, "--index", state), (more, "--index", state)):  # a new index, or one of `pairs`
        found = run("pairs", *words)
        assert len(read_lines(found.stdout)) == sum(range(60, 70) if more in words else range(60))
        assert "more than" not in found.stderr


def test_pairs_on_an_index_of_kept_documents_says_so(run: Run, feed: Path, tmp_path: Path) -> None:
    state, more = tmp_path / "state", write_lines(tmp_path / "more.jsonl", [{"id": "e", "text": FOX + " too"}])
    run("dedup", feed, "--index", state)
    found = run("pairs", more, "--index", state)
    assert [(pair["older"], pair["newer"]) for pair in read_lines(found.stdout)] == [("a", "e")]
    first, *_, last, _ = found.stderr.splitlines()
    assert first.startswith("stream-lsh: ") and "the pairs with kept documents only" in first
    assert "1 pair of similar documents with kept documents only (compare_with = kept)" in last
    again = write_lines(tmp_path / "again.jsonl", [{"id": "f", "text": FOX + " as well"}])
    assert run("pairs", again, "--index", state, "--quiet").stderr == ""


def test_a_whole_file_against_an_index(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run("dedup", feed, "--index", state)
    asked = tmp_path / "asked.jsonl"
    write_lines(
        asked, [{"id": "x", "text": FOX + " too"}, {"id": "a", "text": FOX}, {"id": "y", "text": "new words only"}]
    )
    with asked.open("a") as file:
        file.write("broken\n")
    found = run("query", "--input", asked, "--index", state)
    verdicts = read_lines(found.stdout)
    assert [verdict["kind"] for verdict in verdicts] == ["near_duplicate", "redelivered", "unique", "rejected"]
    assert verdicts[0]["duplicate_of"] == "a" and verdicts[3]["reason"] == "not_json" and verdicts[3]["line"] == 4
    assert "4 documents" in found.stderr and "1 not JSON" in found.stderr
    assert "nothing was added to the index: 4 documents" in found.stderr
    assert "dead letters" not in found.stderr and "--dead-letters" not in found.stderr
    out = tmp_path / "out.jsonl"
    done = run("query", "--input", asked, "--input", feed, "--index", state, "--output", out, "--quiet")
    assert done.stdout == done.stderr == ""
    assert read_lines(out)[:4] == verdicts and len(read_lines(out)) == 8
    assert len(read_lines(run("query", "--input", asked, "--index", state, "--top", 1).stdout)) == 4


def test_documents_of_which_none_matches_end_with_1(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    run("dedup", feed, "--index", state)
    other = write_lines(tmp_path / "other.jsonl", [{"id": "y", "text": "new words only"}, {"id": "z"}])
    done = run("query", "--input", other, "--index", state, "-q", code=1)
    assert [verdict["kind"] for verdict in read_lines(done.stdout)] == ["unique", "rejected"]
    assert done.stderr == ""
    wrong = write_lines(tmp_path / "wrong.jsonl", [{"id": "z"}, {"id": "y"}])
    done = run("query", "--input", wrong, "--index", state, "-q", code=1)
    assert [verdict["kind"] for verdict in read_lines(done.stdout)] == ["rejected"] * 2
    assert "all of --input was rejected (2 documents); the verdicts say why" in done.stderr
    assert run("query", "--input", wrong, "--input", feed, "--index", state, "-q").stderr == ""


def test_a_document_that_would_supersede_its_match_has_one(run: Run, tmp_path: Path) -> None:
    words, state = " ".join(f"word{i}" for i in range(20)), tmp_path / "state"
    run("dedup", write_lines(tmp_path / "a.jsonl", [{"id": "a", "text": words}]), "--index", state, "--keep", "longest")
    longer = write_lines(tmp_path / "b.jsonl", [{"id": "b", "text": f"{words} more"}])
    [verdict] = read_lines(run("query", "--input", longer, "--index", state, "-q").stdout)
    assert (verdict["kind"], verdict["supersedes"]) == ("unique", "a")


def test_wrong_queries(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert "there is no index" in run("query", "--input", feed, "--index", state, code=3).stderr
    assert not state.exists()
    run("dedup", feed, "--index", state)
    assert "give either a text" in run("query", "--index", state, code=2).stderr
    assert "give either a text" in run("query", "text", "--input", feed, "--index", state, code=2).stderr
    assert "--threshold is for TEXT" in run("query", "--input", feed, "--threshold", 1, "--index", state, code=2).stderr
    assert "--output is for --input" in run("query", "text", "--output", "x", "--index", state, code=2).stderr
    within = run("query", FOX, "--within", "lang=en", "--index", state, code=2)
    assert "may match: leave out --within" in within.stderr
    assert "none.jsonl" in run("query", "--input", tmp_path / "none.jsonl", "--index", state, code=4).stderr
    assert "are the same file" in run("query", "--input", feed, "--output", feed, "--index", state, code=2).stderr
    unwritable = tmp_path / "no" / "folder"
    assert str(unwritable) in run("query", "--input", feed, "--output", unwritable, "--index", state, code=5).stderr


def test_documents_match_within_a_field(run: Run, tmp_path: Path) -> None:
    state, feed = tmp_path / "state", tmp_path / "feed.jsonl"
    values: list[Any] = ["en", "de", 17, "17", None]
    write_lines(feed, [{"id": f"{value!r}", "text": FOX, "lang": value} for value in values])
    with feed.open("a") as file:
        file.write('{"id":"bad","text":"x","lang":[1]}\n')
    assert len(read_lines(run("dedup", feed, "--index", state, match_within="lang").stdout)) == 5
    [letter] = read_lines(state / "dead-letters.jsonl")
    assert (letter["reason"], letter["line"]) == ("wrong_type", 6)
    assert settings(run, state)["match_within"] == ["lang"]
    assert "match within  " in run("info", "--index", state).stdout

    def asked(*words: str, code: int = 0) -> Any:
        return run("query", FOX, "--index", state, *words, code=code)

    for value, id in (("en", "'en'"), ("17", "17"), ('"17"', "'17'"), ("null", "None"), ('"de"', "'de'")):
        assert [match["id"] for match in read_lines(asked("--within", f"lang={value}").stdout)] == [id]
    assert asked("--within", "lang=fr", code=1).stdout == ""
    assert "match within lang: give --within lang=VALUE" in asked(code=2).stderr
    assert "give --within lang=VALUE" in asked("--within", "lnag=en", code=2).stderr
    assert "give FIELD=VALUE" in asked("--within", "lang", code=2).stderr
    assert "given twice" in asked("--within", "lang=en", "--within", "lang=de", code=2).stderr
    assert "a floating-point number" in asked("--within", "lang=1.5", code=2).stderr
    no = run("query", "--input", feed, "--within", "lang=en", "--index", state, code=2)
    assert "the documents of --input have the fields themselves" in no.stderr
    verdicts = read_lines(run("query", "--input", feed, "--index", state, "--quiet").stdout)
    assert [verdict["kind"] for verdict in verdicts] == ["redelivered"] * 5 + ["rejected"]
    assert "match_within = ['lang'] (now ['other'])" in run(
        "dedup", feed, "--index", state, "--match-within", "other", code=3
    ).stderr  # fmt: skip


def test_readers_work_while_another_process_writes(run: Run, feed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    command = [sys.executable, "-m", "stream_lsh", "dedup", "-", "--index", str(state), "--verdicts", "-", "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdin.write(feed.read_bytes())
        writer.stdin.flush()
        for _ in FEED:
            writer.stdout.readline()
        while json.loads(run("info", "--index", state, "--json").stdout)["documents"]["stored"] < len(FEED):
            assert writer.poll() is None  # the commit comes within half a second
        run("info", "--index", state, "--check")
        assert [match["id"] for match in read_lines(run("query", FOX, "--index", state).stdout)] == ["a"]
        verdicts = read_lines(run("query", "--input", feed, "--index", state).stdout)
        assert [verdict["kind"] for verdict in verdicts] == ["redelivered"] * len(FEED)
        assert "in use by another process" in run("dedup", feed, "--index", state, code=3).stderr
        writer.stdin.write(json.dumps({"id": "e", "text": FOX}).encode() + b"\n")
        writer.stdin.close()
        assert json.loads(writer.stdout.readline())["kind"] == "exact_duplicate"  # nobody has disturbed it
        assert writer.wait() == 0


def test_settings_that_need_another_one_are_enough_where_the_index_has_that(run: Run, tmp_path: Path) -> None:
    state, feed, more = tmp_path / "state", tmp_path / "feed.jsonl", tmp_path / "more.jsonl"
    write_lines(feed, [{**document, "ts": 1_700_000_000} for document in FEED])
    write_lines(more, [{"id": "a", "gone": True}])
    deleting = ("--deleted-field", "gone")
    said = run("dedup", feed, *deleting, "--index", state, code=2).stderr
    assert "deleted_field is for indexes whose documents change" in said and not state.exists()
    run("dedup", feed, *deleting, "--on-conflict", "update", "--time-field", "ts", "--window", "1h", "--index", state)
    done = run("dedup", more, *deleting, "--index", state, "--verdicts", "-")
    assert [line["kind"] for line in read_lines(done.stdout)] == ["deleted"]
    said = run("dedup", more, "--deleted-field", "away", "--index", state, code=3).stderr
    assert "deleted_field = 'gone' (now 'away')" in said
    said = run("dedup", more, *deleting, "--on-conflict", "reject", "--index", state, code=2).stderr
    assert "deleted_field is for indexes whose documents change" in said
    said = run("dedup", more, "--max-future", "1d", "--index", state, code=3).stderr
    assert "max_future = None (now '1d')" in said
    other = tmp_path / "other"
    run("dedup", feed, "--index", other)
    assert "deleted_field is for" in run("dedup", more, *deleting, "--index", other, code=2).stderr


@pytest.mark.parametrize(("shards", "shown"), [(1, "1"), (3, "3, of {}, {}, {} documents")])
def test_info_says_how_many_shards_there_are_and_what_each_holds(
    run: Run, tmp_path: Path, shards: int, shown: str
) -> None:
    documents = [{"id": number, "text": f"document number {number} of all"} for number in range(25)]
    feed, state, unique = (
        write_lines(tmp_path / "feed.jsonl", documents),
        tmp_path / "state",
        tmp_path / "its_unique.jsonl",
    )
    run("dedup", feed, "--index", state, "--shards", shards, "--unique", unique)
    held = json.loads(run("info", "--index", state, "--json").stdout)["documents"]["shards"]
    assert (len(held), sum(held)) == (shards, 25)
    said = run("info", "--index", state).stdout
    assert f"  shards  {shown.format(*held)}\n" in re.sub("   +", "  ", said)
    assert str(unique) in "".join(said.split())  # folded at 80 columns
    assert max(len(line) for line in said.splitlines() if str(tmp_path) not in line) <= 80


def test_info_shows_segments(run: Run, tmp_path: Path) -> None:
    documents = [{"id": number, "text": f"document number {number} of all"} for number in range(25)]
    feed, state = write_lines(tmp_path / "feed.jsonl", documents), tmp_path / "state"
    run("dedup", feed, "--index", state, "--segment-documents", 10)
    facts = json.loads(run("info", "--index", state, "--json", "--check").stdout)
    found = [(item["segment"], item["documents"], item["in_files"]) for item in facts["segments"]["latest"]]
    assert found == [(0, 10, 10), (1, 10, 10), (2, 5, 0)]
    assert facts["segments"]["number"] == 3
    assert "segment 1" in run("info", "--index", state).stdout
