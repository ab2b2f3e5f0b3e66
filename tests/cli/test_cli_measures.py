"""Measures on the command line: `tune` and `evaluate`, feeds of vectors, bits and quotations, a single one to find."""

import base64
import json
import random
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from rich.console import Console
from support.commands import figures, run
from support.json_lines import read_lines, write_lines
from support.long_form import rotating
from support.missing import extra
from support.models.distances import levenshtein_distance, weighted_jaccard

from stream_lsh.cli.query import STYLE, marked
from stream_lsh.families.measure import Measure
from stream_lsh.settings.model import Settings

COSINE = ("--measure", "cosine", "--dimensions", "16", "--threshold", "0.9")
EUCLIDEAN = ("--measure", "euclidean", "--dimensions", "16", "--max-distance", "2")
HAMMING = ("--measure", "hamming", "--dimensions", "64", "--max-distance", "3")
WEIGHTED_JACCARD = ("--measure", "weighted-jaccard", "--threshold", "0.4")
LEVENSHTEIN = ("--measure", "levenshtein", "--max-distance", "3")
EVERY = {
    "cosine": COSINE,
    "euclidean": EUCLIDEAN,
    "hamming": HAMMING,
    "levenshtein": LEVENSHTEIN,
    "weighted-jaccard": WEIGHTED_JACCARD,
}


@pytest.fixture(params=["hamming", "levenshtein", *rotating(("cosine", "euclidean", "weighted-jaccard"), 1)])
def measure(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def feed(measure: str, tmp_path: Path) -> tuple[Path, int]:
    """160 items and one that is none; and how many pairs are alike, by the definition."""
    documents, pairs = items(measure)
    return write_lines(tmp_path / "feed.jsonl", [*documents, {"id": "x"}]), pairs


@cache
def items(measure: str) -> tuple[list[dict[str, Any]], int]:
    """Items of which a quarter are near to another, and how many pairs are alike."""
    chance = np.random.default_rng(5)
    values: list[Any]
    if measure == "hamming":
        items = chance.integers(0, 2, (160, 64))
        for i in range(120, 160):
            items[i] = items[chance.integers(0, i)] ^ (chance.random(64) < 0.04)
        values = [np.packbits(item.astype(np.uint8)).tobytes().hex() for item in items]
        values[0] = "0x" + values[0].upper()
        alike = (items[:, None] != items[None]).sum(axis=2) <= 3
    elif measure == "weighted-jaccard":
        values = [{f"e{x}": float(chance.integers(1, 4)) for x in chance.choice(80, 8)} for _ in range(160)]
        for i in range(120, 160):
            kept = [*values[chance.integers(0, i)].items()][i % 3 :]
            values[i] = dict(kept) | {f"e{chance.integers(0, 80)}": 0.5}
        alike = np.array([[weighted_jaccard(one, other) >= 0.4 for other in values] for one in values])
    elif measure == "levenshtein":
        values = ["".join(map(chr, chance.integers(97, 123, 12))) for _ in range(160)]
        for i in range(120, 160):
            text, at = values[chance.integers(0, i)], int(chance.integers(0, 9))
            values[i] = text[:at] + "".join(map(chr, chance.integers(97, 123, i % 4))) + text[at + i % 3 :]
        alike = np.array([[levenshtein_distance(one, other) <= 3 for other in values] for one in values])
    else:
        items = chance.standard_normal((160, 16))
        for i in range(120, 160):
            items[i] = items[chance.integers(0, i)] + 0.3 * chance.standard_normal(16)
        items = items.astype(np.float32).astype(np.float64)
        values = [item.tolist() for item in items]
        values[1] = base64.b64encode(items[1].astype("<f4").tobytes()).decode()
        lengths = np.linalg.norm(items, axis=1)
        alike = (items @ items.T) / np.outer(lengths, lengths) >= 0.9
        if measure == "euclidean":
            alike = np.linalg.norm(items[:, None] - items[None], axis=2) <= 2
    field = {"hamming": "bits", "levenshtein": "text", "weighted-jaccard": "set"}.get(measure, "vector")
    documents = [{"id": i, field: value, "story": f"s{i % 7}"} for i, value in enumerate(values)]
    return documents, int(np.tril(alike, -1).sum())


def test_evaluate_finds_what_there_is(measure: str, feed: tuple[Path, int]) -> None:
    path, pairs = feed
    found = figures("evaluate", "-q", str(path), *EVERY[measure])
    assert (found["documents"], found["rejected"], found["truth"]) == (160, {"missing_field": 1}, "exhaustive")
    assert found["true_pairs"] == pairs > 10
    assert found["recall"] == found["precision"] == 1
    assert found["largest_similarity_error"] < 1e-12
    assert sum(bucket["true_pairs"] for bucket in found["buckets"]) == pairs
    dimensions = {"hamming": 64, "levenshtein": None, "weighted-jaccard": None}.get(measure, 16)
    assert (found["measure"], found.get("dimensions")) == (measure, dimensions)
    assert ("threshold" in found) == (measure in ("cosine", "weighted-jaccard")) != ("max_distance" in found)
    assert "shingles" not in found


@pytest.mark.parametrize("measure", ["cosine"])
def test_evaluate_with_too_few_bands_misses_some_and_says_which(measure: str, feed: tuple[Path, int]) -> None:
    found = figures("evaluate", "-q", str(feed[0]), *COSINE, "--bands", "1", "--rows", "20")
    assert found["recall"] < 0.9
    assert 0 < found["expected_recall"] < 0.9
    assert len(found["missed"]) == 5
    assert found["precision"] == 1


def test_evaluate_of_given_pairs_within_a_field_and_of_labels(
    measure: str, feed: tuple[Path, int], tmp_path: Path
) -> None:
    path, pairs = feed
    rows = read_lines(path)
    for row in rows:
        row["lang"] = "de" if row["id"] != 0 else "en"
    write_lines(path, [*rows, {**rows[0], "id": 999}])
    found = figures("evaluate", "-q", str(path), *EVERY[measure], "--match-within", "lang")
    assert found["recall"] == found["precision"] == 1
    assert 0 < found["true_pairs"] <= pairs + 1
    truth = tmp_path / "truth.tsv"
    truth.write_text("0\t999\n0\t1\n2\t3\n")
    found = figures("evaluate", "-q", str(path), *EVERY[measure], "--match-within", "lang", "--truth", str(truth))
    assert (found["true_pairs"], found["correct_pairs"], found["not_to_match"]) == (2, 1, 1)
    found = figures("evaluate", str(path), *EVERY[measure], "--labels", "story")
    assert found["labels"] == 7
    assert "adjusted Rand" in run("evaluate", str(path), *EVERY[measure], "--labels", "story").stdout


def test_tune_and_its_settings_file(measure: str, tmp_path: Path) -> None:
    shown = run("tune", *EVERY[measure], "--expected-docs", "1000000").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert {
        "cosine": "one        (25.84 deg, 90 deg, 0.8564, 0.5)-sensitive",
        "euclidean": "one        (2, 6, 0.8005, 0.4652)-sensitive",
        "hamming": "5 blocks: each choice of 2 is a key of about 26 bits",
        "weighted-jaccard": "one        (0.6, 1, 0.4, 0)-sensitive",
        "levenshtein": "4 pieces of a text: 3 edits leave at least one unchanged",
    }[measure] in shown
    assert "among 1,000,000 documents" in shown or measure in ("euclidean", "levenshtein", "weighted-jaccard")
    file = tmp_path / "settings.toml"
    file.write_text(shown.split("As a file for --config:")[1])
    written = tomllib.loads(file.read_text())
    assert written["measure"] == measure
    assert run("tune", "--config", str(file)).stdout.split("--config:")[1] == shown.split("--config:")[1]
    assert Settings.load(file).fingerprint == Settings(**written).fingerprint
    assert "shingles" not in written


@pytest.mark.long
@pytest.mark.parametrize("measure", [*EVERY, "containment"])
def test_a_picture_of_the_curve(measure: str, tmp_path: Path) -> None:
    extra("matplotlib")
    run("tune", *EVERY.get(measure, ("--measure", measure)), "--plot", tmp_path / "curve.svg")
    assert (tmp_path / "curve.svg").read_bytes().startswith(b"<?xml")


def test_tune_of_a_sample(measure: str, feed: tuple[Path, int]) -> None:
    path, _ = feed
    shown = run("tune", str(path), *EVERY[measure]).stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "Sample: 160 documents of 160, 12,720 pairs" in shown
    assert "rejected: 1 missing_field" in shown
    found = figures("tune", str(path), *EVERY[measure], "--expected-docs", "5000")
    assert found["sample"]["pairs"] == 12720
    assert found["documents"] == 5000
    assert 0 < found["sample"]["false_candidates"] < 5000
    assert measure != "levenshtein" or "50 %, 99 % of the pairs is at most  > 8, > 8, > 8" in shown
    assert found["found"] >= 0.999
    one = run("tune", str(path), *EVERY[measure], "--limit", "1").stdout
    assert "Too few documents" in one


def test_alternatives_keep_the_recall() -> None:
    for given in (COSINE, EUCLIDEAN):
        found = figures("tune", *given)
        assert len(found["alternatives"]) == 5
        assert all(other["found"] >= 0.999 for other in found["alternatives"])
        rows = [other["rows"] for other in found["alternatives"]]
        assert rows == sorted(rows)
        assert found["rows"] in rows
    assert len(figures("tune", *HAMMING)["alternatives"]) == 1


@pytest.mark.parametrize("measure", get_args(Measure))
def test_every_measure_has_its_figures_as_json_and_its_settings_as_a_file(measure: str, tmp_path: Path) -> None:
    words: list[object] = ["--measure", measure]
    words += ["--dimensions", 64] if measure in ("cosine", "euclidean", "hamming") else []
    words += ["--max-distance", 2] if measure in ("euclidean", "hamming", "levenshtein") else []
    found = figures("tune", *words, "--write", tmp_path / "settings.toml")
    assert found["measure"] == measure
    assert "threshold" in found or found["max_distance"] == 2
    settings = Settings.load(tmp_path / "settings.toml")
    assert settings.measure == measure
    banding = settings.banding._asdict()
    assert {name: found[name] for name in banding.keys() & found.keys()}.items() <= banding.items()
    again = run("tune", *words, "--write", tmp_path / "settings.toml", code=5)
    assert "this file exists; name a new one" in again.stderr
    text = run("tune", *words, "--write", tmp_path / "other.toml").stdout
    assert "The settings are in" in text and "As a file for --config" not in text


def test_what_stories_have_not_is_said() -> None:
    for word, more in (("INPUT", ["feed.jsonl"]), ("--plot", ["--plot", "curve.svg"])):
        assert f"leave out {word}" in run("tune", "--measure", "tf-idf", *more, code=2).stderr


VECTORS = ("--measure", "cosine", "--dimensions", "3", "--threshold", "0.9")
BITS = ("--measure", "hamming", "--dimensions", "64", "--max-distance", "3")


def encoded(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


def dedup(folder: Path, options: tuple[str, ...], *documents: Any, name: str = "index") -> list[Any]:
    quotations = write_lines(folder / "quotations.jsonl", documents)
    outputs = ("--unique", folder / f"{name}-unique", "--verdicts", folder / f"{name}-verdicts")
    run("dedup", quotations, "--index", folder / name, *options, *outputs, "--quiet")
    return read_lines(folder / f"{name}-verdicts")


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    dedup(
        tmp_path, VECTORS, {"id": "a", "vector": [1, 0, 0]}, {"id": "b", "vector": encoded(-7, -7, 15)},
        {"id": "c", "vector": [0, 1, 0]},
    )  # fmt: skip
    return tmp_path / "index"


@pytest.fixture
def bits(tmp_path: Path) -> Path:
    dedup(tmp_path, BITS, {"id": "a", "bits": "00000000000000ff"}, {"id": "b", "bits": "f" * 16}, name="bits")
    return tmp_path / "bits"


@pytest.mark.parametrize("text", ["[2, 0.1, 0]", " [2,0.1,0]\n", encoded(2, 0.1, 0)])
def test_a_single_vector(tmp_path: Path, vectors: Path, text: str) -> None:
    """On the line, from standard input, from a file."""
    (tmp_path / "wanted.json").write_text(text)
    for words, more in (((text,), {}), (("-",), {"input": text}), ((tmp_path / "wanted.json",), {})):
        found = run("query", *words, "--index", vectors, **more)
        (match,) = map(json.loads, found.stdout.splitlines())
        assert (match["id"], match["similarity"]) == ("a", pytest.approx(2 / (4 + 0.1**2) ** 0.5))


def test_base64_that_looks_like_a_path(tmp_path: Path, vectors: Path) -> None:
    texts = [encoded(-7 * n / 9, -7 * n / 9, 15 * n / 9) for n in range(1, 300)]
    text = next(one for one in texts if "/" in one)
    (match,) = map(json.loads, run("query", text, "--index", vectors).stdout.splitlines())
    assert match["id"] == "b"


@pytest.mark.parametrize("text", ["fffffffffffffffe", "0xFFFFFFFFFFFFFFFE", "//////////4="])
def test_a_single_row_of_bits(bits: Path, text: str) -> None:
    (match,) = map(json.loads, run("query", text, "--index", bits).stdout.splitlines())
    assert (match["id"], match["similarity"]) == ("b", 63 / 64)


@pytest.mark.parametrize(
    ("index", "text", "message"),
    [
        ("vectors", "[1, 2]", "the vector has 2 numbers, not 3"),
        ("vectors", "[1, 2, 3", "the vector begins with [ but is not a JSON list of numbers"),
        ("vectors", "  ", "the text is empty"),
        ("bits", "fff", "the bit vector has 3 hexadecimal digits, not 16"),
    ],
)
def test_what_cannot_be_looked_for(request: pytest.FixtureRequest, index: str, text: str, message: str) -> None:
    assert message in run("query", text, "--index", request.getfixturevalue(index), code=2).stderr


def test_info_says_what_makes_them_alike(vectors: Path, bits: Path) -> None:
    shown = {line.split()[0]: line.split()[-1] for line in run("info", "--index", bits).stdout.splitlines()}
    assert (shown["measure"], shown["dimensions"], shown["max"]) == ("hamming", "64", "3")
    assert not {"threshold", "shingles"} & shown.keys()
    shown = {line.split()[0]: line.split()[-1] for line in run("info", "--index", vectors).stdout.splitlines()}
    assert (shown["measure"], shown["dimensions"], shown["threshold"]) == ("cosine", "3", "0.9")


CONTAINMENT = ("--measure", "containment", "--shingles", "words:3")
WORDS = [f"w{k}" for k in range(300)]


@pytest.fixture
def quotations(tmp_path: Path) -> Path:
    """A report, a part of it, a part within more, copies, and others."""
    chance = random.Random(1)
    texts = [" ".join(WORDS), " ".join(WORDS[100:150]), "Before. " + " ".join(WORDS[:60]).upper() + " and after", "x y"]
    texts += [" ".join(f"v{chance.randrange(10**6)}" for _ in range(50)) for _ in range(40)]
    texts += [texts[5], " ".join(WORDS[:200]) + " " + " ".join(f"u{k}" for k in range(200))]
    return write_lines(tmp_path / "quotations.jsonl", [{"id": i, "text": text} for i, text in enumerate(texts)])


def test_an_index_and_what_it_says(quotations: Path, tmp_path: Path) -> None:
    state, verdicts = str(tmp_path / "index"), tmp_path / "verdicts.jsonl"
    run("dedup", str(quotations), *CONTAINMENT, "--index", state, "--verdicts", str(verdicts), "-q")
    lines = read_lines(verdicts)
    assert [line["kind"] for line in lines[:4]] == ["unique", "near_duplicate", "near_duplicate", "unique"]
    (match,) = lines[1]["matches"]
    assert (match["contained_in"], match["contains"]) == (1.0, 48 / 298)
    assert match["passages"] == [{"words": 50, "newer": [0, 249], "older": [390, 639]}]
    assert lines[44]["kind"] == "exact_duplicate"
    asked = " ".join(WORDS[20:80])
    found, *_ = read_lines(run("query", asked, "--index", state).stdout)
    assert (found["id"], found["contained_in"], found["passages"][0]["words"]) == (0, 1.0, 60)
    shown = run("info", "--index", state).stdout
    assert "containment" in shown and "sampling" in shown and "passage words" in shown.replace("_", " ")
    assert "bands" not in shown
    pairs = tmp_path / "pairs.jsonl"
    run("pairs", str(quotations), *CONTAINMENT, "--threshold", "0.5", "--pairs", str(pairs), "-q")
    found_pairs = {(line["older"], line["newer"]) for line in read_lines(pairs)}
    assert {(0, 1), (0, 2), (5, 44), (1, 45), (2, 45)} <= found_pairs


def test_passages_are_marked() -> None:
    text = "a" * 100 + " The\nquoted passage " + "b" * 500
    passages = [{"words": 3, "newer": [101, 119], "older": [7, 30]}, {"words": 1, "newer": [121, 600], "older": [1, 2]}]
    console = Console(width=1000, highlight=False)
    first, second = marked(text, passages)
    with console.capture() as capture:
        console.print(first)
    assert capture.get().strip() == (f"3 words, there at 7-30: ...{'a' * 39} The quoted passage {'b' * 39}...")
    assert [first.plain[span.start : span.end] for span in first.spans if span.style == STYLE] == ["The quoted passage"]
    assert " ... " in second.plain
    assert len(list(marked(text, passages * 5))) == 3


def test_evaluate_finds_quotations(quotations: Path) -> None:
    found = figures("evaluate", "-q", quotations, *CONTAINMENT, "--threshold", "0.5")
    assert found["measure"] == "containment" and found["sampling"] == 2
    assert found["true_pairs"] >= 6
    assert found["recall"] == found["precision"] == 1
    assert found["largest_similarity_error"] < 1e-12
    assert "bands" not in found
    shown = run("evaluate", "-q", str(quotations), *CONTAINMENT, "--threshold", "0.5").stdout
    assert "one shingle in 2 is a key" in shown
    found = figures("evaluate", "-q", quotations, *CONTAINMENT, "--sampling", "64")
    assert 0 < found["expected_recall"] < 0.9


def test_tune(quotations: Path) -> None:
    shown = run("tune", *CONTAINMENT, "--threshold", "0.5", str(quotations)).stdout
    assert "one shingle in 2 is a key" in shown
    assert "one key    (0.5, 0.75, 0.5, 0.25)-sensitive" in shown
    assert "Sample: 46 documents of 46" in shown
    assert all(len(line) <= 80 for line in shown.splitlines())
    chosen = tomllib.loads(shown.partition("As a file for --config:")[2])
    assert Settings(**chosen).sampled == 2
    found = figures("tune", *CONTAINMENT)
    assert found["found"] >= 0.999 > next(one for one in found["alternatives"] if one["sampling"] == 6)["found"]
    assert found["key"] == {"d1": pytest.approx(0.2), "d2": 0.6, "p1": 0.8, "p2": 0.4}
    assert [one["shortest"] for one in found["alternatives"]] == sorted(
        one["shortest"] for one in found["alternatives"]
    )
    missed = run("tune", *CONTAINMENT, "--sampling", "32").stdout
    assert "The sampling given misses the recall" in missed
