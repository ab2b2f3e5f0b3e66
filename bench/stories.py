"""Stories: how well they are found, alone and scattered among posts; documents a second there, and in dense feeds.

Labelled news (stories-ecb, stories) alone: in the order of the file, and the mean of random orders. The same in the
order of time, with times and without: stories has days; of stories-ecb each event begins at a moment of 30 or 365 days
that is drawn, and its articles follow after two days in the mean (the mean of four such feeds). Then the articles
of stories-ecb at random places among posts, as many as asked for: the posts of posts-120k first, then posts that are
made of the first half of one of them and the second half of another, drawn from a seed. What is said of the stories
there (B-cubed and adjusted Rand index of the labelled articles) also counts articles that have posts in their story.

Dense: articles of one story, each of 50 words of 60 that the story has (20 of them names) and 50 of 2,000 that all
texts have, after posts and alone; and one article over and over. Seconds of the processor are of all threads: two
cores have two a second.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from bench.corpora import default_data
from stream_lsh import Settings
from stream_lsh.embedded.job import Job
from stream_lsh.evaluation import clusters

EXAMPLE = "python -m bench.stories --posts 200000 --out results"
COLUMNS = {
    "feed": "feed", "documents": "documents", "f1": "B-cubed F1", "precision": "precision", "recall": "recall",
    "ari": "ARI", "stories": "stories found", "unrelated": "unrelated articles in them", "rate": "documents/s",
    "processor": "documents per second of a processor",
}  # fmt: skip
Texts = list[tuple[str, str]]
"""Label and text."""
Timed = list[tuple[str, str, int | str]]
"""Label, text, and time."""
DAY, FROM = 86_400_000, 1_600_000_000_000


def news(path: Path) -> Texts:
    """Labelled articles; titles, where there are some, before the text."""
    data = lzma.decompress(path.read_bytes()) if path.suffix == ".xz" else path.read_bytes()
    records = [json.loads(line) for line in data.splitlines()]
    return [(r["story"], f"{r.get('title') or ''} {r['text'] or ''}".strip()) for r in records]


def posts(path: Path, n: int, seed: int = 7) -> Iterator[str]:
    """So many posts."""
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        texts = [f"{r['title']} {r['text']}" for r in map(json.loads, islice(lines, n))]
    yield from texts
    chance = random.Random(seed)
    for _ in range(n - len(texts)):
        one, other = chance.choice(texts).split(" "), chance.choice(texts).split(" ")
        yield " ".join(one[: len(one) // 2] + other[len(other) // 2 :])


def scattered(labelled: Texts, others: Iterator[str], n: int, seed: int = 7) -> Iterator[tuple[str, str]]:
    """Labelled articles in random order at random places among n others, which have no label."""
    chance = random.Random(seed)
    labelled = chance.sample(labelled, len(labelled))
    places = sorted(chance.randrange(n) for _ in labelled)
    at = 0
    for place, text in enumerate(others):
        while at < len(places) and places[at] == place:
            yield labelled[at]
            at += 1
        yield "", text
    yield from labelled[at:]


def one_story(n: int, own: int = 50, seed: int = 7) -> Iterator[tuple[str, str]]:
    """Articles of 100 words that all tell of one event; own: words that each has of it."""
    chance = random.Random(seed)
    words = ["".join(chance.choice("bdfgklmnprstvz") + chance.choice("aeiou") for _ in range(4)) for _ in range(2060)]
    event, common = [word.title() if i < 20 else word for i, word in enumerate(words[:60])], words[60:]
    for _ in range(n):
        said = chance.choices(event, k=own) + chance.choices(common, k=100 - own)
        chance.shuffle(said)
        yield "one", " ".join(said)


def dated(path: Path) -> Timed:
    """The labelled articles that have days, in their order, with them."""
    records = map(json.loads, path.read_bytes().splitlines())
    return sorted(((r["story"], f"{r['title']} {r['text']}", r["day"]) for r in records), key=lambda one: one[2])


def drawn(labelled: Texts, days: int, seed: int, after: float = 2.0) -> Timed:
    """Articles in the order of times (ms): their event is at one of so many days, and they come some days after it."""
    chance, begins = random.Random(seed), dict[str, float]()
    timed = list[tuple[float, str, str]]()
    for label, text in labelled:
        begin = begins.setdefault(label, chance.uniform(0, days))
        timed.append((begin + chance.expovariate(1 / after), label, text))
    return [(label, text, FROM + round(DAY * at)) for at, label, text in sorted(timed)]


def in_time(name: str, feeds: Sequence[Timed]) -> Iterator[dict[str, Any]]:
    """The means over feeds of their agreement with and without what their times say."""
    for settings in (Settings(measure="tf-idf"), Settings(measure="tf-idf", time_field="ts")):
        rows = [line("", iter([one[:2] for one in f]), settings, [one[2] for one in f]) for f in feeds]
        said = "with times" if settings.time_field else "without"
        yield {"feed": f"{name}, {said}", "documents": rows[0]["documents"], **mean(rows)}


def found(
    feed: Iterator[tuple[str, str]], settings: Settings, times: Sequence[int | str] = ()
) -> tuple[list[str], list[int], float, float]:
    """Labels, stories that were found, seconds, seconds of the processor; times: of the documents, where they count."""
    labels = []
    with tempfile.TemporaryDirectory() as folder:
        file, verdicts = Path(folder, "feed.jsonl"), Path(folder, "verdicts.jsonl")
        with file.open("w") as out:
            for i, (label, text) in enumerate(feed):
                labels.append(label)
                time_of = {"ts": times[i]} if times else {}
                out.write(json.dumps({"id": i, "text": text, **time_of}) + "\n")
        start, used = time.perf_counter(), time.process_time()
        Job(settings, [str(file)], {"verdicts": str(verdicts), "unique": "/dev/null"}, Path(folder, "index")).run()
        seconds, used = time.perf_counter() - start, time.process_time() - used
        with verdicts.open("rb") as lines:
            groups = [-1 if (g := json.loads(line)["group"]) is None else g for line in lines]
    return labels, groups, seconds, used


def agreement(labels: Sequence[str], groups: Sequence[int]) -> dict[str, float]:
    """B-cubed and the adjusted Rand index of what was found, see `evaluation.clusters`."""
    _, label = np.unique(np.array(labels), return_inverse=True)
    found = clusters.agreement(np.array(groups), label)
    assert found.f1 is not None and found.precision is not None and found.recall is not None
    assert found.adjusted_rand is not None
    return {"f1": found.f1, "precision": found.precision, "recall": found.recall, "ari": found.adjusted_rand}


def line(
    name: str, feed: Iterator[tuple[str, str]], settings: Settings, times: Sequence[int | str] = ()
) -> dict[str, Any]:
    """One feed, and how well and fast its stories are found."""
    labels, groups, seconds, used = found(feed, settings, times)
    mine = [i for i, label in enumerate(labels) if label]
    row: dict[str, Any] = {
        "feed": name, "documents": len(labels), "rate": round(len(labels) / seconds),
        "processor": round(len(labels) / used), "stories": len({groups[i] for i in mine}),
    }  # fmt: skip
    if len({labels[i] for i in mine}) > 1:
        row |= {k: round(v, 3) for k, v in agreement([labels[i] for i in mine], [groups[i] for i in mine]).items()}
    if len(mine) < len(labels):
        theirs = {groups[i] for i in mine}
        row["unrelated"] = sum(not label and group in theirs for label, group in zip(labels, groups, strict=True))
    return row


def shuffled(labelled: Texts, orders: int, settings: Settings) -> dict[str, Any]:
    """The means over random orders."""
    rows = [
        line("", iter([labelled[i] for i in np.random.default_rng(seed).permutation(len(labelled))]), settings)
        for seed in range(orders)
    ]
    return mean(rows)


def mean(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean agreement, and number of stories."""
    figures = {
        key: round(float(np.mean([row[key] for row in rows])), 3) for key in ("f1", "precision", "recall", "ari")
    }
    return {**figures, "stories": round(float(np.mean([row["stories"] for row in rows])))}


def run(given: argparse.Namespace) -> Iterator[Mapping[str, Any]]:
    settings = Settings(measure="tf-idf", memtable_documents=given.memtable_documents)
    found(iter([("", "one document"), ("", "one more document")]), settings)  # compile
    for name in ("stories-ecb.jsonl.xz", "stories.jsonl"):
        labelled = news(given.data / name)
        yield line(name.split(".")[0], iter(labelled), settings)
        row = shuffled(labelled, given.orders, settings)
        yield {"feed": f"{given.orders} random orders", "documents": len(labelled), **row}
    yield from in_time("stories by day", [dated(given.data / "stories.jsonl")])
    labelled = news(given.data / "stories-ecb.jsonl.xz")
    for days in (30, 365):
        yield from in_time(f"stories-ecb in {days} days", [drawn(labelled, days, seed) for seed in range(4)])
    others = posts(given.data / "posts-120k.jsonl.xz", given.posts)
    yield line("stories-ecb among posts", scattered(labelled, others, given.posts), settings)
    before = (("", text) for text in posts(given.data / "posts-120k.jsonl.xz", 2000))
    yield line("one story after 2,000 posts", chain(before, one_story(given.dense_documents)), settings)
    yield line("nothing but one story", one_story(given.dense_documents), settings)
    _, article = max(labelled, key=lambda one: len(one[1]))
    yield line("one article", (("one", article) for _ in range(given.dense_documents)), settings)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.epilog = f"example: {EXAMPLE}"
    parser.add_argument("--posts", type=int, default=200_000, help="posts that the articles are scattered among")
    parser.add_argument("--dense-documents", type=int, default=100_000, help="of each dense feed")
    parser.add_argument("--orders", type=int, default=12, help="random orders of the labelled news")
    parser.add_argument("--memtable-documents", type=int, default=65536, help="as of the engine")
    parser.add_argument("--data", type=Path, default=default_data(), help="folder of the real texts")
    parser.add_argument("--out", type=Path, help="folder for the results")
    given = parser.parse_args(arguments)
    where, rows = report.environment(), []
    for row in run(given):
        rows.append(row)
        print(json.dumps(row), flush=True)
    print(report.table(COLUMNS, rows))
    report.write(given.out, "stories", where, rows, report.table(COLUMNS, rows, markdown=True))
    return 0


if __name__ == "__main__":
    sys.exit(main())
