"""What lists show of documents: headline, source and time, by id."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.serving import JSON, Serving

from stream_lsh.serve.headline import MOST_CHARACTERS, headline

BRIDGE = "The council has voted for the new bridge over the river; work begins in spring and takes two years."
OPTIONS = ("--text-field", "title", "--text-field", "body", "--source-field", "from", "--time-field", "ts")
NONE = {"headline": None, "source": None, "time": None}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("headlines") / "index", *OPTIONS) as it:
        yield it


def asked(served: Serving, body: Any, **headers: str) -> tuple[int, Any]:
    answer = served.client.post("/v1/headlines", headers={**JSON, **headers}, content=json.dumps(body))
    return answer.status_code, answer.json()


def test_headlines_are_the_first_text_field(served: Serving) -> None:
    for n, id in enumerate((2**63 + 1, "a", "b")):
        title = f"Bridge  number {n}"
        served.add({"id": id, "title": title, "body": BRIDGE, "from": f"paper-{n}", "ts": 1_700_000_000 + n})
    assert asked(served, ["b", "missing", 2**63 + 1]) == (200, {
        "documents": [
            {"id": "b", "headline": "Bridge number 2", "source": "paper-2", "time": 1_700_000_002_000},
            {"id": "missing", **NONE},
            {"id": 2**63 + 1, "headline": "Bridge number 0", "source": "paper-0", "time": 1_700_000_000_000},
        ]
    })  # fmt: skip


@pytest.mark.parametrize("body", [{}, ["a", None], [True], [["a"]], ["a"] * 101, [1.5]])
def test_what_is_no_list_of_ids_is_refused(served: Serving, body: Any) -> None:
    assert asked(served, body)[0] == 422
    assert asked(served, ["a"], **{"content-type": "text/plain"})[0] == 415


def test_vectors_have_no_headline(tmp_path: Path) -> None:
    with Serving(tmp_path / "index", "--measure", "cosine", "--dimensions", "4") as vectors:
        vectors.add({"id": "v", "vector": [1, 0, 0, 0]})
        assert asked(vectors, ["v"]) == (200, {"documents": [{"id": "v", **NONE}]})


def test_headlines_are_short_lines() -> None:
    assert headline("\n\n  One\ttwo  \nthree") == "One two"
    assert headline(" \n ") is None
    long = headline("word " * 99)
    assert long is not None and long.endswith("word…") and len(long) <= MOST_CHARACTERS
    assert headline("字" * 999) == "字" * (MOST_CHARACTERS - 1) + "…"
