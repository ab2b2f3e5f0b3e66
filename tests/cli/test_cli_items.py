"""Vectors and bit vectors on the command line: feeds, dead letters, a single one to look for, what the help says."""

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.commands import run
from support.json_lines import read_lines, write_lines

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
    refused = run("query", text, "--index", request.getfixturevalue(index), code=2)
    assert message in refused.stderr


def test_info_says_what_makes_them_alike(vectors: Path, bits: Path) -> None:
    shown = {line.split()[0]: line.split()[-1] for line in run("info", "--index", bits).stdout.splitlines()}
    assert (shown["measure"], shown["dimensions"], shown["max"]) == ("hamming", "64", "3")
    assert not {"threshold", "shingles"} & shown.keys()
    shown = {line.split()[0]: line.split()[-1] for line in run("info", "--index", vectors).stdout.splitlines()}
    assert (shown["measure"], shown["dimensions"], shown["threshold"]) == ("cosine", "3", "0.9")
