"""Updates and deletions: how fast they are beside inserts, and whether others are slower after them.

Into an index that takes updates come three files, each by a process of its own that is timed without its start-up: so
many posts; what the row says; and as many other posts under other ids, the "others". What the row says is

| row | its documents |
|---|---|
| inserts | posts under new ids: the measure |
| copies | the posts that are there, with two words replaced, under new ids |
| corrections | the same under their own ids |
| rewritten | their ids with the texts of other posts |
| deletions | their ids, deleted |
| representatives | before: each post and nine copies of a tenth of them; then the posts deleted, each of which has a
new representative |
| one id | the texts of posts, all under one id |
| returning | three texts in turn under one id |

Beside it the peers, in memory and on one thread, with posts and their rewritten versions: the old one is removed, the
new one compared, and inserted if nothing was found.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import orjson

from bench import report
from bench.corpora import corpus, read_documents, unpack
from bench.engine import from_anywhere
from bench.feeds import replaced, vocabulary
from bench.one import run
from bench.peers import disturbance, peer
from bench.systems import SYSTEMS

PEERS = ("rensa", "gaoya", "datasketch")
MOST = 40_000  # a third of the posts
SETTINGS = {"on_conflict": "update", "deleted_field": "deleted"}
THRESHOLD = 0.8
COPIES = 9
EXAMPLE = "python -m bench.updates --documents 10000 --out results"
COLUMNS = {
    "row": "what comes", "documents": "documents", "rate": "documents/s", "of_inserts": "of inserts",
    "others": "others after", "others_of_inserts": "of inserts ", "not_compared": "not compared %",
}  # fmt: skip
PEER_COLUMNS = {"row": "posts and new versions", "rate": "documents/s", "times": "times it"}

Feed = Iterator[tuple[str, str | None]]
"""Ids and texts; None is a deletion."""


class Posts:
    """The posts in thirds: what is there before, what comes, and the others."""

    def __init__(self, file: Path, documents: int) -> None:
        found = list(islice(read_documents(file, ("title", "text")), 3 * documents))
        self.there, self.come, self.others = (found[i : i + documents] for i in range(0, 3 * documents, documents))
        self.words, self.chance = vocabulary(file), random.Random(20261122)

    def copies(self) -> Feed:
        """A tenth of the posts, each with copies."""
        for id, text in self.there[:: COPIES + 1]:
            yield id, text
            for number in range(COPIES):
                yield f"{id}-{number}", text

    def corrections(self) -> Feed:
        for id, text in self.there:
            yield id, " ".join(replaced(text.split(), 2, self.words, self.chance))

    def edits(self) -> Feed:
        for id, text in self.corrections():
            yield f"{id}-edit", text

    def rewritten(self) -> Feed:
        for (id, _), (_, text) in zip(self.there, self.come, strict=True):
            yield id, text

    def one_id(self) -> Feed:
        for _, text in self.come:
            yield "one", text

    def returning(self) -> Feed:
        for number in range(len(self.come)):
            yield "one", self.come[number % 3][1]

    def rows(self) -> Mapping[str, tuple[Callable[[], Feed], Callable[[], Feed]]]:
        """By its name what is there before, and what comes."""

        def there() -> Feed:
            yield from self.there

        return {
            "inserts": (there, lambda: iter(self.come)),
            "copies": (there, self.edits),
            "corrections": (there, self.corrections),
            "rewritten": (there, self.rewritten),
            "deletions": (there, lambda: ((id, None) for id, _ in self.there)),
            "representatives": (self.copies, lambda: ((id, None) for id, _ in self.there[:: COPIES + 1])),
            "one id": (there, self.one_id),
            "returning": (there, self.returning),
        }


def write(feed: Feed, file: Path) -> Path:
    """The documents as JSON lines."""
    with file.open("wb") as lines:
        for id, text in feed:
            document = {"id": id, "deleted": True} if text is None else {"id": id, "text": text}
            lines.write(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
    return file


def rate(said: Mapping[str, Any]) -> float:
    """Documents a second of a run."""
    return float(said["documents"] / said["seconds"])


def row(name: str, posts: Posts, settings: Mapping[str, Any], work: Path) -> dict[str, Any]:
    """The figures of a row."""
    before, comes = posts.rows()[name]
    with tempfile.TemporaryDirectory(dir=work, prefix="updates-") as folder:
        said = []
        for number, feed in enumerate((before(), comes(), iter(posts.others))):
            file = write(feed, Path(folder, f"{number}.jsonl"))
            outputs = {"unique": Path(folder, f"unique-{number}.jsonl")}
            one, finished = run(file, settings, work, outputs, state=Path(folder, "state"))
            said.append(one)
    n = said[1]["documents"]
    print(f"{name}: {rate(said[1]):,.0f} documents/s{disturbance(finished.others)}", file=sys.stderr, flush=True)
    return {
        "kind": "row", "row": name, "documents": n, "rate": rate(said[1]), "others": rate(said[2]),
        "not_compared": 100 * said[1]["not_compared"] / n,
    }  # fmt: skip


def best_of(rounds: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of some runs, by the speed of what comes."""
    return sorted(rows, key=lambda row: row["rate"])[(rounds - 1) // 2]


def beside_peers(posts: Posts, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The posts and their rewritten versions in one file, by the engine and by the peers."""
    with tempfile.TemporaryDirectory(dir=given.work, prefix="updates-") as folder:

        def both() -> Feed:
            yield from posts.there
            yield from posts.rewritten()

        file = write(both(), Path(folder, "both.jsonl"))
        said, _ = run(file, SETTINGS, given.work, {"unique": Path(folder, "unique.jsonl")})
        yield {"kind": "peer", "row": "stream-lsh", "rate": rate(said)}
        for system in given.peers:
            found = peer(system, file, Path(folder), ("text",), THRESHOLD, unique=True, updates=True)
            yield {"kind": "peer", "row": system, "rate": found["rate"], "times": rate(said) / found["rate"]}


def measure(given: argparse.Namespace) -> None:
    where = report.environment(("datasketch", "rensa", "gaoya", "numpy", "numba", "rocksdict"))
    given.work.mkdir(parents=True, exist_ok=True)
    from_anywhere()
    file = unpack(corpus("posts-120k"), given.data, given.work)
    settings = SETTINGS | {"shards": given.shards}
    # Compile the kernels, as the first start of a user does it once.
    row("corrections", Posts(file, 1000), settings, given.work)
    posts = Posts(file, given.documents)
    turns: dict[str, list[dict[str, Any]]] = {name: [] for name in posts.rows()}
    for _ in range(given.rounds):
        for name, done in turns.items():
            done.append(row(name, posts, settings, given.work))
    rows = [best_of(given.rounds, done) for done in turns.values()]
    for found in rows:
        found["of_inserts"] = found["rate"] / rows[0]["rate"]
        found["others_of_inserts"] = found["others"] / rows[0]["others"]
    beside = list(beside_peers(posts, given)) if given.peers else []
    title = f"{given.documents:,} posts, then what the row says, then {given.documents:,} others; {given.shards} shards"
    tables = [(title, COLUMNS, rows), (f"{2 * given.documents:,} documents in one run", PEER_COLUMNS, beside)]
    texts = []
    for heading, columns, lines in tables:
        if lines:
            print(f"\n{heading}\n{report.table(columns, lines)}")
            texts.append(f"{heading}\n\n{report.table(columns, lines, markdown=True)}")
    every = [found for done in turns.values() for found in done]
    report.write(given.out, "updates", where, [*every, *beside], "\n\n".join(texts))


def main() -> None:
    parser = report.parser("updates", __doc__.splitlines()[0], EXAMPLE)
    parser.add_argument("--documents", type=int, default=MOST, help="in each of the three files, up to %(default)s")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each row, taking turns (%(default)s)")
    parser.add_argument("--shards", type=int, default=1, help="of the index (%(default)s)")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma list of {', '.join(SYSTEMS)} (%(default)s)")
    parser.add_argument("--no-peers", action="store_true", help="the engine alone")
    given = parser.parse_args()
    given.peers = [] if given.no_peers else given.peers.split(",")
    if not 0 < given.documents <= MOST:
        parser.error(f"--documents: from 1 to {MOST:,}")
    for name in given.peers:
        if name not in SYSTEMS:
            parser.error(f"there is no system {name!r}")
    measure(given)


if __name__ == "__main__":
    main()
