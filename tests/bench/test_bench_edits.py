"""The edit that makes a large feed of the posts: deterministic, same shape, other words."""

import hashlib
import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from bench.edit_check import edited
from bench.edits import blocks, exchange, make, template

WORDS = re.compile(r"\w+")
FREQUENT = ["and", "is", "the"]
POSTS = [
    {
        "title": "The LICHEN and the rock",
        "text": 'A lichen\nis not\t"moss", but caf\u00e9 don\u2019t \\n 2011 snake_case',
    },
    {"title": "\u4e2d\u6587\u6d4b\u8bd5 and \U0001f600 emoji \U00010400x", "text": "The end\u0007is the END"},
    {"title": "", "text": ""},
]
LINES = [
    orjson.dumps({"id": f"p{i}", "ts": 1_000_000_000_000 + i, "source": 'the "source"', **post}) + b"\n"
    for i, post in enumerate(POSTS)
]


def segment(number: int) -> list[dict[str, Any]]:
    return [orjson.loads(line) for line in edited(LINES, FREQUENT, number)]


@pytest.mark.parametrize("number", [1, 2, 41])
def test_words_are_exchanged_one_for_one_and_nothing_else(number: int) -> None:
    seen: dict[str, str] = {}
    for made, post in zip(segment(number), POSTS, strict=True):
        for field in ("title", "text"):
            assert len(made[field].encode()) == len(post[field].encode())
            assert WORDS.sub("w", made[field]) == WORDS.sub("w", post[field])
            for before, after in zip(WORDS.findall(post[field]), WORDS.findall(made[field]), strict=True):
                assert (before.lower() in FREQUENT) <= (before == after)
                assert seen.setdefault(before.lower(), after.lower()) == after.lower()
        assert made["source"] == 'the "source"'
    assert len(set(seen.values())) == len(seen)
    assert seen["lichen"] != "lichen"
    assert seen["2011"] != "2011"
    assert seen["\u4e2d\u6587\u6d4b\u8bd5"] != "\u4e2d\u6587\u6d4b\u8bd5"


def test_ids_are_unique_and_times_go_on() -> None:
    made = [orjson.loads(line) for data, _ in blocks(template(iter(LINES), FREQUENT), 8) for line in data.splitlines()]
    assert [post["id"] for post in made] == ["p0", "p1", "p2", "p0~1", "p1~1", "p2~1", "p0~2", "p1~2"]
    assert [post["ts"] for post in made] == sorted(post["ts"] for post in made)


def test_blocks_end_where_lines_end_whatever_their_size() -> None:
    source = template(iter(LINES), FREQUENT)
    whole = b"".join(data for data, _ in blocks(source, 7))
    for size in (1, 2, 3, 5):
        parts = list(blocks(source, 7, size))
        assert b"".join(data for data, _ in parts) == whole
        for data, ends in parts:
            assert all(data[end - 1 : end] == b"\n" for end in ends)
            assert data.count(b"\n") == len(ends)


def test_tables_are_fixed_for_ever() -> None:
    # The documents of the published figures: another table is another corpus.
    digest = hashlib.sha256(b"".join(exchange(number).tobytes() for number in range(42))).hexdigest()
    assert digest == "ce8c31bdeb954f56724e0b7bdf12de067103ce2122009746c67cd64c89805f86"


@pytest.mark.long
def test_file_and_index(tmp_path: Path) -> None:
    posts = tmp_path / "posts.jsonl"
    posts.write_bytes(b"".join(LINES))
    target = tmp_path / "made.jsonl"
    index = make(posts, target, 100_001)
    data = target.read_bytes()
    assert index["documents"] == data.count(b"\n") == 100_001
    assert index["bytes"] == len(data)
    (offset,) = index["offsets"]  # type: ignore[misc]
    assert data[:offset].count(b"\n") == 100_000
    assert data[offset - 1 : offset] == b"\n"
    assert make(posts, target, 100_001) == index
    assert not list(tmp_path.glob("*.part"))
