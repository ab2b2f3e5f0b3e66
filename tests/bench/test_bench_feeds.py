"""The feeds in which copies crowd: the same every time, and what they say of themselves."""

import random
from pathlib import Path

import orjson
import pytest
from support.long_form import rotating

from bench.feeds import EVERY, FEEDS, FIRST, HIGHEST, LOWEST, NEAREST, PLANTED, jaccard, make

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
    file, pairs = make(name, posts, DOCUMENTS, work)
    documents = [orjson.loads(line) for line in file.read_bytes().splitlines()]
    assert [document["id"] for document in documents] == [f"{name}-{i}" for i in range(DOCUMENTS)]
    planted = {}
    for line in pairs.read_text().splitlines():
        older, newer, similarity = line.split("\t")
        planted[int(newer.rpartition("-")[2])] = int(older.rpartition("-")[2]), float(similarity)
    return [document["text"].split() for document in documents], planted


@pytest.mark.parametrize("name", [*[*FEEDS][:2], *rotating([*FEEDS][2:], 2)])
def test_the_same_every_time(name: str, posts: Path, tmp_path: Path) -> None:
    first, second = ([path.read_bytes() for path in make(name, posts, 300, tmp_path / sub)] for sub in ("a", "b"))
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
