"""Quotations beside datasketch's LSHEnsemble: what is found, how fast; rewritten answers; books and what quotes them.

The texts are real: the first posts, or all of the Chinese news, and among them passages cut from longer ones of these
at known lengths, alone or within words of their own. Shingles are three words (`\\w+` in lower case), of the Chinese
news eight characters. The truth is exhaustive: every pair of which one has the share of the other.

The ensemble is built once over all documents and then asked for each of them; it takes no document later, forgets none,
and gives no shares, so that what it names is counted as it comes. By itself it weighs what it misses as what it names
in vain; "for recall" 99 times as much. stream-lsh takes the documents as a stream, with an index on disk, each compared
with all before it (`compare_with = all`, `max_verified_matches = 0`).
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench import report
from stream_lsh import Deduplicator, Document, Settings
from stream_lsh.evaluation.contained import Contained, EveryShare
from stream_lsh.evaluation.exact import Ranked

EXAMPLE = "python -m bench.containment --documents 5000 --out results"
CUT = (20, 40, 80, 160)
"""Words of a passage that is cut out."""
REWRITES = (0.8, 0.5, 0.3, 0.1)
LENGTHS = (0, 6, 12, 24, 48)
"""Words of the longest passage from which a row of the table begins."""
PARTITIONS, PERMUTATIONS = 32, 256
BATCH = 512
COLUMNS = {
    "corpus": "corpus", "threshold": "threshold", "system": "system", "true": "true pairs", "recall": "recall",
    "precision": "precision", "rate": "documents/s", "not_compared": "not compared %",
}  # fmt: skip
FEEDS = {
    "feed": "feed", "documents": "documents", "rate": "documents/s", "slowest": "slowest, ms", "matched": "matched %",
    "not_compared": "not compared %", "disk": "bytes/document on disk",
}  # fmt: skip
Pairs = set[tuple[int, int]]


def texts_of(path: Path, most: int) -> list[str]:
    """The texts of a corpus, with their titles."""
    found: list[str] = []
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if len(found) == most:
                break
            item = json.loads(line)
            found.append(" ".join(part for part in (item.get("title"), item["text"]) if part))
    return found


def shingles_of(text: str, kind: str) -> set[str]:
    """The shingles of a text, by plain Python."""
    if kind == "chars:8":
        plain = " ".join(text.lower().split())
        return {plain[i : i + 8] for i in range(max(1, len(plain) - 7))} if plain else set()
    words = words_of(text)
    return {" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))} if words else set()


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def with_quotations(texts: Sequence[str], joined: str = " ", share: float = 0.02, seed: int = 5) -> list[str]:
    """The texts and, behind them, passages of CUT words (or characters): half of them alone, half with a quarter more
    around. joined: what stands between words, nothing between characters."""
    chance, out = random.Random(seed), list(texts)
    parts: Callable[[str], list[str]] = list if joined == "" else str.split
    long = [text for text in texts if len(parts(text)) > 2 * max(CUT)]
    for _ in range(int(share * len(texts))):
        words, length = parts(chance.choice(long)), chance.choice(CUT)
        begin = chance.randrange(len(words) - length)
        passage = words[begin : begin + length]
        if chance.random() < 0.5:
            around = parts(chance.choice(texts))[: length // 4]
            passage = around[: len(around) // 2] + passage + around[len(around) // 2 :]
        out.append(joined.join(passage))
    return out


def numbered(texts: Sequence[str], kind: str) -> Ranked:
    """The sets of shingles."""
    numbers: dict[str, int] = {}
    sets = []
    for text in texts:
        mine = sorted(numbers.setdefault(shingle, len(numbers) + 1) for shingle in shingles_of(text, kind))
        sets.append(np.array(mine, np.uint64))
    offsets = np.concatenate(([0], np.cumsum([len(one) for one in sets])))
    return Ranked.of(np.concatenate(sets), offsets)


@dataclass
class Run:
    """What a system did: pairs of positions, older first; seconds; documents of which it did not see all."""

    pairs: Pairs
    seconds: float
    not_compared: int | None = None


def engine(texts: Sequence[str], kind: str, threshold: float, folder: Path) -> Run:
    """stream-lsh over a stream of the texts."""
    settings = Settings(
        measure="containment",
        threshold=threshold,
        shingles=kind,
        compare_with="all",
        max_verified_matches=0,
        max_matches=0,
    )
    pairs: Pairs = set()
    not_compared, began = 0, time.perf_counter()
    with Deduplicator(settings, folder) as deduplicator:
        for start in range(0, len(texts), BATCH):
            documents = [Document(start + k, text) for k, text in enumerate(texts[start : start + BATCH])]
            for verdict in deduplicator.process(documents):
                not_compared += verdict.not_compared > 0
                pairs |= {(int(match.id), int(verdict.id)) for match in verdict.matches}
    return Run(pairs, time.perf_counter() - began, not_compared)


def ensemble(texts: Sequence[str], kind: str, threshold: float, _: Path, missed: float = 0.5) -> Run:
    """LSHEnsemble, built over all texts, asked for each. missed: weight of what is missed when it chooses its bands,
    beside that of what is found in vain."""
    from datasketch import MinHash, MinHashLSHEnsemble  # type: ignore[import-untyped]

    began = time.perf_counter()
    entries = []
    for number, text in enumerate(texts):
        shingles = shingles_of(text, kind)
        if shingles:
            sketch = MinHash(num_perm=PERMUTATIONS)
            sketch.update_batch([shingle.encode() for shingle in shingles])
            entries.append((number, sketch, len(shingles)))
    weights = 1 - missed, missed
    index = MinHashLSHEnsemble(threshold=threshold, num_perm=PERMUTATIONS, num_part=PARTITIONS, weights=weights)
    index.index(entries)
    pairs: Pairs = set()
    for number, sketch, size in entries:
        pairs |= {(min(number, other), max(number, other)) for other in index.query(sketch, size) if other != number}
    return Run(pairs, time.perf_counter() - began)


FOR_RECALL = 0.99
SYSTEMS: dict[str, Callable[[Sequence[str], str, float, Path], Run]] = {
    "stream-lsh": engine, "LSHEnsemble": ensemble, "LSHEnsemble for recall": partial(ensemble, missed=FOR_RECALL),
}  # fmt: skip


def compared(name: str, texts: Sequence[str], kind: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Both systems over a corpus, at each threshold."""
    every = Contained(numbered(texts, kind))
    for threshold in given.thresholds:
        truth = EveryShare(every, threshold).run()
        true = {*zip(truth.first.tolist(), truth.second.tolist(), strict=True)}
        for system in given.systems:
            with tempfile.TemporaryDirectory(dir=given.work, prefix="quotations-") as folder:
                run = SYSTEMS[system](texts, kind, threshold, Path(folder) / "index")
            yield {
                "kind": "found", "corpus": f"{name}, {len(texts):,}", "threshold": threshold, "system": system,
                "true": len(true), **scored(run.pairs, true), "rate": len(texts) / run.seconds,
                "not_compared": None if run.not_compared is None else 100 * run.not_compared / len(texts),
            }  # fmt: skip


def scored(found: Pairs, true: Pairs) -> dict[str, float | None]:
    """Recall and precision, None where there is nothing to take a share of."""
    right = len(found & true)
    return {
        "recall": right / len(true) if true else None,
        "precision": right / len(found) if found else None,
    }


def rewritten(path: Path) -> Iterator[dict[str, Any]]:
    """What is found of answers that were rewritten to a known degree, by the longest passage that was left."""
    answers = [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]
    originals = [answer for answer in answers if answer["category"] == "orig"]
    others = [answer for answer in answers if answer["category"] in ("cut", "light", "heavy", "non")]
    found: dict[float, dict[str, Any]] = {}
    for threshold in REWRITES:
        settings = Settings(
            measure="containment", threshold=threshold, shingles="words:3", compare_with="all", min_passage_words=1
        )
        with Deduplicator(settings) as deduplicator:
            list(deduplicator.process([Document(a["id"], a["text"]) for a in originals]))
            for answer in others:
                matches = {str(match.id): match for match in deduplicator.query(answer["text"])}
                own = [a["id"] for a in originals if a["task"] == answer["task"]]
                found.setdefault(threshold, {})[answer["id"]] = [matches[id] for id in own if id in matches]
    texts = {a["task"]: words_of(a["text"]) for a in originals}
    longest = {a["id"]: longest_run(words_of(a["text"]), texts[a["task"]]) for a in others}
    for category in ("cut", "light", "heavy", "non"):
        for low, high in zip(LENGTHS, [*LENGTHS[1:], 10**9], strict=True):
            here = [a["id"] for a in others if a["category"] == category and low <= longest[a["id"]] < high]
            if here:
                shares = {f"at {t:g}": sum(bool(found[t][id]) for id in here) / len(here) for t in REWRITES}
                words = f"{low} to {high - 1}" if high < 10**9 else f"{low} and more"
                yield {"kind": "rewrites", "category": f"{category}, {words}", "answers": len(here), **shares}


def longest_run(one: Sequence[str], other: Sequence[str]) -> int:
    """Words of the longest passage that two texts have in common."""
    best, before = 0, [0] * (len(other) + 1)
    for word in one:
        now = [0] * (len(other) + 1)
        for j, their in enumerate(other):
            if word == their:
                now[j + 1] = before[j] + 1
                best = max(best, now[j + 1])
        before = now
    return best


def feeds(texts: Sequence[str], given: argparse.Namespace) -> Iterator[tuple[str, dict[str, Any], list[Document]]]:
    """Feeds: name, settings, documents."""
    chance = random.Random(3)
    n = given.feed_documents
    own = [text.split() for text in texts]
    yield "posts", {}, [Document(k, text) for k, text in enumerate(texts[:n])]
    book = " ".join(texts)[: given.book_bytes].split()
    quotes = []
    for _ in range(n):
        begin, length = chance.randrange(len(book) - 100), chance.choice((30, 60, 100))
        quotes.append(" ".join(book[begin : begin + length]))
    whole = Document("book", " ".join(book))
    yield "a book, then posts that quote it", {}, [whole, *(Document(k, q) for k, q in enumerate(quotes))]
    yield "posts, then the book that they quote", {}, [*(Document(k, q) for k, q in enumerate(quotes)), whole]
    # What repeats itself has few shingles, and each at every place.
    circle = [f"w{k}" for k in range(30)] * 5
    around = " ".join(circle[:30]) + " "
    whole = Document("book", "word " * (given.book_bytes // 5))
    posts = [Document(k, "word " * (20 + k % 300)) for k in range(n)]
    yield "a book of one word, then posts of it", {}, [whole, *posts]
    whole = Document("book", around * (given.book_bytes // len(around)))
    pieces = [Document(k, " ".join([*circle[k % 30 : k % 30 + 100], f"x{k}"])) for k in range(n)]
    yield "a book of 30 words in a circle, then pieces of it", {}, [whole, *pieces]
    passage = book[1000:1040]
    mixed = [Document(k, " ".join(own[k % len(own)][:80] + passage + [f"n{k}"])) for k in range(n)]
    yield "one passage in all posts, all kept", {}, mixed
    yield "one passage in all posts, against any", {"compare_with": "all"}, mixed


def streamed(name: str, more: dict[str, Any], documents: list[Document], folder: Path) -> dict[str, Any]:
    """A feed through an index with the usual settings."""
    from bench.process import folder_bytes

    settings = Settings(**({"measure": "containment", "shingles": "words:3"} | more))
    matched = not_compared = 0
    times = []
    with Deduplicator(settings, folder) as deduplicator:
        for start in range(0, len(documents), BATCH):
            began = time.perf_counter()
            for verdict in deduplicator.process(documents[start : start + BATCH]):
                matched += bool(verdict.matches)
                not_compared += verdict.not_compared > 0
            times.append(time.perf_counter() - began)
    n = len(documents)
    return {
        "kind": "feed", "feed": name, "documents": n, "rate": n / sum(times), "slowest": 1000 * max(times),
        "matched": 100 * matched / n, "not_compared": 100 * not_compared / n, "disk": folder_bytes(folder) / n,
    }  # fmt: skip


def benchmark(given: argparse.Namespace) -> None:
    where = report.environment(("datasketch", "numpy", "numba", "rocksdict"))
    given.work.mkdir(parents=True, exist_ok=True)
    posts = texts_of(given.data / "posts-120k.jsonl.xz", max(given.documents, given.feed_documents))
    with Deduplicator(Settings(measure="containment")) as deduplicator:  # compile the kernels
        list(deduplicator.process([Document(k, text) for k, text in enumerate([*posts[:200], *posts[:50]])]))
    rows: list[dict[str, Any]] = []
    texts: list[str] = []
    for name in given.corpora:
        if name == "posts":
            documents, kind = with_quotations(posts[: given.documents]), "words:3"
        else:
            documents = with_quotations(texts_of(given.data / f"{name}.jsonl.xz", given.documents), "")
            kind = "chars:8"
        for row in compared(name, documents, kind, given):
            rows.append(row)
            print(row, file=sys.stderr, flush=True)
    show("What is found", COLUMNS, rows, texts)
    if given.rewrites:
        columns = {"category": "category, longest passage in words", "answers": "answers"}
        more = list(rewritten(given.data / "rewrites.jsonl"))
        rows += more
        show("Rewritten answers, share found", columns | {f"at {t:g}": f"at {t:g}" for t in REWRITES}, more, texts)
    if given.feed_documents:
        more = []
        for name, settings, feed in feeds(posts, given):
            with tempfile.TemporaryDirectory(dir=given.work, prefix="quotations-") as folder:
                more.append(streamed(name, settings, feed, Path(folder) / "index"))
            print(more[-1], file=sys.stderr, flush=True)
        rows += more
        show(f"Feeds; the book has {given.book_bytes / 1e6:g} MB", FEEDS, more, texts)
    report.write(given.out, "containment", where, rows, "\n\n".join(texts))


def show(title: str, columns: dict[str, str], rows: list[dict[str, Any]], texts: list[str]) -> None:
    """Print a table, and keep it."""
    print(f"\n{title}\n{report.table(columns, rows)}", flush=True)
    texts.append(f"{title}\n\n{report.table(columns, rows, markdown=True)}")


def main() -> None:
    parser = report.parser("containment", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=20_000, help="of each corpus at most (%(default)s)")
    parser.add_argument("--corpora", default="posts,news-zh", help="comma list (%(default)s)")
    parser.add_argument("--thresholds", default="0.5,0.8", help="comma list (%(default)s)")
    parser.add_argument("--systems", default=",".join(SYSTEMS), help="comma list (%(default)s)")
    parser.add_argument("--feed-documents", type=int, default=20_000, help="of each feed; 0 = none (%(default)s)")
    parser.add_argument("--book-bytes", type=int, default=10_000_000, help="of the book (%(default)s)")
    parser.add_argument("--no-rewrites", dest="rewrites", action="store_false", help="leave out rewritten answers")
    given = parser.parse_args()
    given.corpora, given.systems = given.corpora.split(","), given.systems.split(",")
    given.thresholds = [float(threshold) for threshold in given.thresholds.split(",")]
    benchmark(given)


if __name__ == "__main__":
    main()
