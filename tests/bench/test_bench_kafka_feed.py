"""The feed with near-copies: deterministic, every id once, copies near their originals and far enough behind them."""

from __future__ import annotations

from itertools import islice

import orjson

from bench.kafka_feed import FARTHEST, LONGEST, NEAREST, Post, with_copies

WORDS = [f"word{i}" for i in range(2000)]


def lines(number: int) -> list[bytes]:
    texts = [" ".join(WORDS[(7 * i + j) % len(WORDS)] for j in range(150 if i % 2 else 20)) for i in range(number)]
    return [orjson.dumps({"id": f"p{i}", "title": "t", "text": text}) + b"\n" for i, text in enumerate(texts)]


def made(number: int, every: int = 10) -> list[tuple[Post, str | None]]:
    return list(islice(with_copies(lines(number), every), number))


def test_ids_are_unique_and_everything_is_determined() -> None:
    feed = made(2000)
    assert feed == made(2000)
    assert len({post.id for post, _ in feed}) == len(feed) == 2000
    assert all(orjson.loads(post.value)["id"] == post.id for post, _ in feed)


def test_every_tenth_is_a_near_copy_of_an_earlier_one() -> None:
    feed = made(2000)
    place = {post.id: i for i, (post, _) in enumerate(feed)}
    texts = {post.id: orjson.loads(post.value)["text"].split(" ") for post, _ in feed}
    copies = [(post.id, source) for post, source in feed if source is not None]
    assert 170 <= len(copies) <= 200
    for name, source in copies:
        assert place[name] % 10 == 9
        assert NEAREST <= place[name] - place[source] <= FARTHEST
        changed = sum(a != b for a, b in zip(texts[name], texts[source], strict=True))
        assert 1 <= changed <= len(texts[source]) // 100


def test_long_posts_are_left_out() -> None:
    long = orjson.dumps({"id": "long", "title": "", "text": "x " * LONGEST})
    short = orjson.dumps({"id": "short", "title": "", "text": "x"})
    assert [post.id for post, _ in with_copies([long, short], 10)] == ["short"]
