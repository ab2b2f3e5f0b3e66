"""Feeds in which copies crowd, deterministic, made of real posts: `python -m bench.feeds --documents 40000`.

| feed | its documents, of some 200 words |
|---|---|
| plain | posts, and posts with their words exchanged (bench/edits.py): hardly any copies |
| template | one text, itself not in the feed, with 2 words replaced at random in each |
| near | the same with 8 words replaced: below the threshold, in the same buckets |
| mixed | plain, every tenth a template |
| hot | one text |
| boilerplate | the first half of each text is the same |
| drift | each is the one before with one word replaced |

Planted pairs: in plain, mixed, near and boilerplate every hundredth document is one of the 1,000 before it with some
words replaced, such that its Jaccard similarity (3 words) lies between 0.81 and 0.9. A file beside says which.
"""

from __future__ import annotations

import argparse
import os
import random
import re
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path

import orjson

from bench.corpora import corpus, default_data, default_work, unpack
from bench.edits import make as make_edited

FEEDS = ("plain", "template", "near", "mixed", "hot", "boilerplate", "drift")
PLANTED = ("plain", "mixed", "near", "boilerplate")
WORDS = 200
NEAREST, EVERY, FIRST = 1000, 100, 2000  # planted: how far back, how often, from which document on
LOWEST, HIGHEST = 0.81, 0.9
SEED = 20261122
EXAMPLE = "python -m bench.feeds --feeds near,template --documents 40000"

Text = list[str]


def vocabulary(posts: Path) -> Text:
    """Words of the first posts, as they come, so that frequent ones are chosen frequently."""
    words: Text = []
    with posts.open("rb") as lines:
        for line in islice(lines, 5000):
            words += [word for word in orjson.loads(line)["text"].split() if word.isalpha()]
    return words


def texts(posts: Path, documents: int, work: Path) -> Iterator[Text]:
    """Words of posts, then of edited posts, as many as are wanted; the same posts always give the same."""
    edited = work / f"edited-{documents}.jsonl"
    make_edited(posts, edited, documents)
    with edited.open("rb") as lines:
        for line in lines:
            post = orjson.loads(line)
            yield f"{post['title']} {post['text']}".split()


def replaced(text: Text, times: int, words: Text, chance: random.Random) -> Text:
    """The text with so many words at different places replaced by random ones."""
    text = text.copy()
    for place in chance.sample(range(len(text)), min(times, len(text))):
        text[place] = chance.choice(words)
    return text


def jaccard(one: Text, other: Text) -> float:
    """Similarity of two texts, by 3 words in lower case."""
    first, second = (
        set(zip(words, words[1:], words[2:], strict=False))
        for words in (re.findall(r"\w+", " ".join(text).lower()) for text in (one, other))
    )
    return len(first & second) / max(1, len(first | second))


def planted(text: Text, words: Text, chance: random.Random) -> tuple[Text, float] | None:
    """An edit of a text with a similarity in the range, if one is found."""
    for _ in range(20):
        times = max(1, round(len(text) * chance.uniform(0.018, 0.034)))
        edit = replaced(text, times, words, chance)
        similarity = jaccard(text, edit)
        if LOWEST <= similarity <= HIGHEST:
            return edit, similarity
    return None


def feed(name: str, posts: Path, documents: int, work: Path) -> Iterator[Text]:
    """The texts of a feed, without what is planted."""
    chance, words = random.Random(f"{SEED} {name}"), vocabulary(posts)
    base = words[:WORDS]
    if name == "hot":
        yield from (base for _ in range(documents))
    elif name in ("template", "near"):
        yield from (replaced(base, 2 if name == "template" else 8, words, chance) for _ in range(documents))
    elif name == "drift":
        for _ in range(documents):
            yield base
            base = replaced(base, 1, words, chance)
    else:
        for number, text in zip(count(), texts(posts, documents, work), strict=False):
            if name == "mixed" and number % 10 == 9:
                yield replaced(base, 2, words, chance)
            elif name == "boilerplate":
                own = (text + base[::-1])[: WORDS // 2] if len(text) < WORDS // 2 else text[: WORDS // 2]
                yield base[: WORDS // 2] + own
            else:
                yield text


def make(name: str, posts: Path, documents: int, work: Path) -> tuple[Path, Path]:
    """The feed as JSON lines (`id`, `text`), and the planted pairs (older, newer, similarity); made if missing."""
    target, pairs = work / f"feed-{name}-{documents}.jsonl", work / f"feed-{name}-{documents}.tsv"
    if target.exists() and pairs.exists():
        return target, pairs
    work.mkdir(parents=True, exist_ok=True)
    chance, words = random.Random(f"{SEED} {name} planted"), vocabulary(posts)
    newest: list[tuple[str, Text]] = []
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    with unfinished.open("wb") as lines, pairs.open("w", encoding="utf-8") as truth:
        for number, text in enumerate(feed(name, posts, documents, work)):
            id = f"{name}-{number}"
            if name in PLANTED and number >= FIRST and number % EVERY == 0:
                older, original = chance.choice(newest)
                if (found := planted(original, words, chance)) is not None:
                    text, similarity = found
                    truth.write(f"{older}\t{id}\t{similarity:.6f}\n")
            lines.write(orjson.dumps({"id": id, "text": " ".join(text)}, option=orjson.OPT_APPEND_NEWLINE))
            # What is planted, and the templates among the others, have partners enough of their own.
            if name in PLANTED and number % EVERY != 0 and not (name == "mixed" and number % 10 == 9):
                newest.append((id, text))
                del newest[: len(newest) - NEAREST]
    unfinished.replace(target)
    return target, pairs


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.feeds", description=__doc__.splitlines()[0], epilog=f"example: {EXAMPLE}"
    )
    parser.add_argument("--feeds", default=",".join(FEEDS), help="comma list (%(default)s)")
    parser.add_argument("--documents", type=int, default=400_000, help="of each feed (%(default)s)")
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the real data (%(default)s)")
    parser.add_argument("--work", type=Path, default=default_work(), help="where to put them (%(default)s)")
    given = parser.parse_args()
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    for name in given.feeds.split(","):
        print(*make(name, posts, given.documents, given.work))


if __name__ == "__main__":
    main()
