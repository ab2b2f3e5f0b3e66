"""The feeds of the benchmarks: the same every time, other words in the same shape, copies that crowd."""

import hashlib
import random
import re
from pathlib import Path

import orjson
import pytest
from support.long_form import rotating

from bench.edit_check import edited
from bench.edits import blocks, exchange, make, template
from bench.feeds import EVERY, FEEDS, FIRST, HIGHEST, LOWEST, NEAREST, PLANTED, jaccard
from bench.feeds import make as make_feed

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


@pytest.mark.parametrize("number", [1, 2, 41])
def test_words_are_exchanged_one_for_one_and_nothing_else(number: int) -> None:
    seen: dict[str, str] = {}
    for made, post in zip([orjson.loads(line) for line in edited(LINES, FREQUENT, number)], POSTS, strict=True):
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


def test_blocks_of_any_size_end_where_lines_end() -> None:
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


DOCUMENTS = 2500


@pytest.fixture(scope="module")
def posts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnop", k=chance.randint(3, 9))) for _ in range(3000)]
    path = tmp_path_factory.mktemp("posts") / "posts.jsonl"
    with path.open("wb") as lines:
        for i in range(1000):
            text = " ".join(chance.choices(words, k=chance.randint(60, 300)))
            post = {"id": f"p{i}", "ts": 10**12 + i, "source": "s", "title": words[i], "text": text}
            lines.write(orjson.dumps(post) + b"\n")
    return path


def read(name: str, posts: Path, work: Path) -> tuple[list[list[str]], dict[int, tuple[int, float]]]:
    """The texts, and the planted pairs: older and similarity by the newer."""
    file, pairs = make_feed(name, posts, DOCUMENTS, work)
    documents = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert [document["id"] for document in documents] == [f"{name}-{i}" for i in range(DOCUMENTS)]
    planted = {}
    for line in pairs.read_text().splitlines():
        older, newer, similarity = line.split("\t")
        planted[int(newer.rpartition("-")[2])] = int(older.rpartition("-")[2]), float(similarity)
    return [document["text"].split() for document in documents], planted


@pytest.mark.parametrize("name", [*[*FEEDS][:2], *rotating([*FEEDS][2:], 2)])
def test_the_same_every_time(name: str, posts: Path, tmp_path: Path) -> None:
    first, second = ([path.read_bytes() for path in make_feed(name, posts, 300, tmp_path / sub)] for sub in ("a", "b"))
    assert first == second
    assert first[0].count(b"\n") == 300


@pytest.mark.parametrize("name", [*[*PLANTED][:1], *rotating([*PLANTED][1:], 2)])
def test_planted_pairs_are_as_similar_as_is_said(name: str, posts: Path, tmp_path: Path) -> None:
    texts, planted = read(name, posts, tmp_path)
    assert set(planted) == set(range(FIRST, DOCUMENTS, EVERY))
    for newer, (older, similarity) in planted.items():
        assert jaccard(texts[older], texts[newer]) == pytest.approx(similarity, abs=1e-6)
        assert LOWEST <= similarity <= HIGHEST
        assert 0 < newer - older < 1.2 * NEAREST
        assert older % EVERY != 0
