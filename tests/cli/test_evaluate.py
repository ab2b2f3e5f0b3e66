"""`stream-lsh evaluate`."""

import lzma
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from support import commands
from support.commands import run
from support.json_lines import read_lines, write_lines

WORDS = [f"word{number}" for number in range(3000)]


def text(start: int, count: int = 60, changed: int = 0) -> str:
    words = WORDS[start : start + count]
    return " ".join(["edited", *words[changed:]] if changed else words)


def evaluate(*arguments: object, code: int = 0) -> Result:
    return run("evaluate", "--quiet", *arguments, code=code)


def figures(*arguments: object) -> dict[str, Any]:
    return commands.figures("evaluate", "--quiet", *arguments)


@pytest.fixture
def feed(tmp_path: Path) -> Path:
    """Ten stories; two reprints of the first, an edit of the second, and lines that are not compared."""
    documents = [{"id": f"s{number}", "text": text(100 * number)} for number in range(10)]
    documents += [
        {"id": 17, "text": text(0)},
        {"id": 18, "text": text(0)},
        {"id": "edit", "text": text(100, changed=3)},
    ]
    documents += [{"id": "s3", "text": text(300)}, {"id": "bare"}]
    return write_lines(tmp_path / "feed.jsonl", documents)


def test_against_exhaustive_comparison(feed: Path) -> None:
    found = figures(feed)
    assert found["truth"] == "exhaustive"
    assert (found["documents"], found["repeated_ids"], found["rejected"]) == (13, 1, {"missing_field": 1})
    assert (found["true_pairs"], found["found_pairs"], found["correct_pairs"]) == (4, 4, 4)
    assert (found["recall"], found["precision"], found["f1"]) == (1, 1, 1)
    assert found["largest_similarity_error"] == pytest.approx(0, abs=1e-9)
    assert (found["missed"], found["false"]) == ([], [])


def test_for_people(feed: Path) -> None:
    result = evaluate(feed)
    assert "13 documents" in result.stdout
    assert "rejected: 1 missing_field" in result.stdout
    assert "left out because an earlier document has their id: 1" in result.stdout
    assert "recall     1.0000   4 of 4 true pairs found" in result.stdout


def test_against_given_pairs(feed: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.jsonl"
    truth.write_text('["s0", 17]\n{"older": "s4", "newer": "s5"}\n["s1", "gone"]\n')
    found = figures(feed, "--truth", truth)
    assert (found["true_pairs"], found["correct_pairs"], found["found_pairs"]) == (2, 1, 4)
    assert found["unknown_documents"] == 1
    assert found["true_pairs_below_threshold"] == 1
    assert found["missed"] == [{"older": "s4", "newer": "s5", "similarity": 0.0}]
    shown = evaluate(feed, "--truth", truth).stdout
    assert "1 of the given pairs are less similar than the threshold" in shown
    assert "missed, most similar first (1 of 1)\n  0.0000  s4  s5" in shown
    assert "false, least similar first (3 of 3)" in shown
    assert "missed" not in evaluate(feed, "--truth", truth, "--show", "0").stdout


def test_given_similarities(feed: Path, tmp_path: Path) -> None:
    truth = tmp_path / "truth.tsv.xz"
    truth.write_bytes(lzma.compress(b"s0\t17\t1.0\ns0\t18\t0.9\ns4\ts5\t0.6\n"))
    found = figures(feed, "--truth", truth)
    assert found["true_pairs"] == 2
    assert found["below_threshold_in_file"] == 1
    assert found["different_similarity"] == 2  # 0.9 is 1, 0.6 is 0


def test_documents_that_do_not_match_within_a_field_are_no_pair(feed: Path, tmp_path: Path) -> None:
    rows = read_lines(feed)
    for row in rows:
        row["lang"] = "de" if row["id"] in (17, "edit") else "en"
    write_lines(feed, rows)
    found = figures(feed, "--match-within", "lang")
    assert (found["true_pairs"], found["found_pairs"], found["correct_pairs"]) == (1, 1, 1)  # s0 and 18
    truth = tmp_path / "truth.tsv"
    truth.write_text("s0\t17\t1.0\ns0\t18\t1.0\n17\t18\n")
    found = figures(feed, "--match-within", "lang", "--truth", truth)
    assert (found["true_pairs"], found["correct_pairs"], found["not_to_match"]) == (1, 1, 2)
    assert found["different_similarity"] == 0
    shown = evaluate(feed, "--match-within", "lang", "--truth", truth).stdout
    assert "left out because they differ in a field to match within (lang): 2" in shown
    assert figures(feed, "--truth", truth)["not_to_match"] == 0
    labelled(feed, list("abcdefghijjjj"))
    assert figures(feed, "--match-within", "lang", "--labels", "story")["groups"] == 12


def labelled(path: Path, labels: list[object]) -> Path:
    rows = read_lines(path)
    for row, label in zip(rows, labels, strict=False):
        row["story"] = label
    return write_lines(path, rows)


def test_groups_against_labels(feed: Path) -> None:
    # Groups: s0 17 18, s1 edit, the others alone. Labels: s0 17 and 18 alone, s1 edit s2, the others alone.
    labelled(feed, ["a", "b", "b", "c", "d", "e", "f", "g", "h", 1, "a", 2, "b"])
    found = figures(feed, "--labels", "story")
    assert (found["documents"], found["labels"], found["groups"]) == (13, 10, 10)
    assert (found["repeated_ids"], found["rejected"], found["without_label"]) == (1, {"missing_field": 1}, 0)
    precision = pytest.approx((2 * 2 / 3 + 1 / 3 + 2 + 8) / 13)
    recall = pytest.approx((2 + 1 + 2 * 2 / 3 + 1 / 3 + 7) / 13)
    assert found["b_cubed"] == {"precision": precision, "recall": recall, "f1": recall}
    assert (found["pairs_of_a_label"], found["pairs_of_a_group"], found["pairs_of_both"]) == (4, 4, 2)
    shown = evaluate(feed, "--labels", "story").stdout
    assert "13 documents with 10 labels, in 10 groups at threshold 0.8" in shown
    assert "2 of 4 pairs with one label are in one group (0.5000)" in shown


def test_stories_against_labels_with_and_without_times(tmp_path: Path) -> None:
    """A twin of a year later is another story where the times are known, and the same one without."""
    said = (
        "Wladimir Klitschko stopped Hasim Rahman in the seventh round in Mannheim on Saturday",
        "In Mannheim the champion Klitschko beat his challenger Rahman after seven rounds",
    )
    rows = [{"id": 1, "text": said[0], "day": "2026-03-01", "story": "a"},
            {"id": 2, "text": said[1], "day": "2027-03-22", "story": "b"}]  # fmt: skip
    path = write_lines(tmp_path / "stories.jsonl", rows)
    asked = (path, "--labels", "story", "--measure", "tf-idf")
    assert figures(*asked)["groups"] == 1
    assert figures(*asked, "--time-field", "day")["groups"] == 2
    write_lines(path, [{**row, "day": None} for row in rows])
    assert figures(*asked, "--time-field", "day")["groups"] == 1
    refused = evaluate(path, "--labels", "story", "--time-field", "day", code=2)
    assert "--time-field is for --measure tf-idf" in refused.stderr


def test_documents_without_a_label_are_excluded(feed: Path) -> None:
    labelled(feed, ["a", None, "b"])
    found = figures(feed, "--labels", "story")
    assert (found["documents"], found["without_label"]) == (2, 11)
    assert figures(feed, "--labels", "story", "--limit", "2")["documents"] == 1
    nothing = evaluate(feed, "--labels", "event", code=4)
    assert 'none has a string or an integer in the field "event"' in nothing.stderr
    evaluate(feed, "--labels", "story", "--truth", "pairs.tsv", code=2)


def test_sets_and_other_fields(tmp_path: Path) -> None:
    rows = [{"key": n, "tags": [f"t{i}" for i in range(n % 3, n % 3 + 20)]} for n in range(6)]
    path = write_lines(tmp_path / "sets.jsonl", rows)
    found = figures(path, "--id-field", "key", "--set-field", "tags", "--threshold", "0.95")
    assert (found["true_pairs"], found["recall"], found["precision"]) == (3, 1, 1)


def test_texts_and_ids_of_all_kinds_survive_the_copy(tmp_path: Path) -> None:
    texts = ["\U0010ffff last", "今天的新闻" * 3, "a\x00b \u2028 \x1f c", 'quotes " and \\', "e\u0301te\u0301 🙂"]
    rows = [{"id": 2**64 + n, "text": t} for n, t in enumerate(texts)] + [
        {"id": f"{2**64 + n}", "text": t} for n, t in enumerate(texts)
    ]
    path = write_lines(tmp_path / "feed.jsonl", rows)
    found = figures(path)
    assert (found["documents"], found["true_pairs"], found["recall"], found["precision"]) == (10, 5, 1, 1)


def test_nothing_to_compare(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    found = figures(tmp_path / "empty.jsonl")
    assert (found["documents"], found["recall"], found["precision"], found["f1"]) == (0, None, None, None)
    evaluate(tmp_path / "empty.jsonl")
