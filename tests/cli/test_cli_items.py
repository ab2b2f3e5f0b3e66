"""Vectors, bit vectors and quotations on the command line: feeds, dead letters, a single one to look for."""

import base64
import json
import random
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from support.commands import figures, run
from support.json_lines import read_lines, write_lines

from stream_lsh.cli.query import STYLE, marked
from stream_lsh.settings.model import Settings

VECTORS = ("--measure", "cosine", "--dimensions", "3", "--threshold", "0.9")
BITS = ("--measure", "hamming", "--dimensions", "64", "--max-distance", "3")


def encoded(*numbers: float) -> str:
    return base64.b64encode(np.array(numbers, "<f4").tobytes()).decode()


def dedup(folder: Path, options: tuple[str, ...], *documents: Any, name: str = "index") -> list[Any]:
    feed = write_lines(folder / "feed.jsonl", documents)
    outputs = ("--unique", folder / f"{name}-unique", "--verdicts", folder / f"{name}-verdicts")
    run("dedup", feed, "--index", folder / name, *options, *outputs, "--quiet")
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
def feed(tmp_path: Path) -> Path:
    """A report, a part of it, a part within more, copies, and others."""
    chance = random.Random(1)
    texts = [" ".join(WORDS), " ".join(WORDS[100:150]), "Before. " + " ".join(WORDS[:60]).upper() + " and after", "x y"]
    texts += [" ".join(f"v{chance.randrange(10**6)}" for _ in range(50)) for _ in range(40)]
    texts += [texts[5], " ".join(WORDS[:200]) + " " + " ".join(f"u{k}" for k in range(200))]
    return write_lines(tmp_path / "feed.jsonl", [{"id": i, "text": text} for i, text in enumerate(texts)])


def test_an_index_and_what_it_says(feed: Path, tmp_path: Path) -> None:
    state, verdicts = str(tmp_path / "index"), tmp_path / "verdicts.jsonl"
    run("dedup", str(feed), *CONTAINMENT, "--index", state, "--verdicts", str(verdicts), "-q")
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
    run("pairs", str(feed), *CONTAINMENT, "--threshold", "0.5", "--pairs", str(pairs), "-q")
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


def test_evaluate_finds_what_there_is(feed: Path) -> None:
    found = figures("evaluate", "-q", feed, *CONTAINMENT, "--threshold", "0.5")
    assert found["measure"] == "containment" and found["sampling"] == 2
    assert found["true_pairs"] >= 6
    assert found["recall"] == found["precision"] == 1
    assert found["largest_similarity_error"] < 1e-12
    assert "bands" not in found
    shown = run("evaluate", "-q", str(feed), *CONTAINMENT, "--threshold", "0.5").stdout
    assert "one shingle in 2 is a key" in shown
    found = figures("evaluate", "-q", feed, *CONTAINMENT, "--sampling", "64")
    assert 0 < found["expected_recall"] < 0.9


def test_tune(feed: Path) -> None:
    shown = run("tune", *CONTAINMENT, "--threshold", "0.5", str(feed)).stdout
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
