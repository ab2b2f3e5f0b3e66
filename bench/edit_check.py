"""Is the edited feed what it should be? `python -m bench.edit_check`

Two questions to bench/edits.py, answered on real posts: how similar are a post and its copies in other segments
(far below 0.5), and are the near-duplicates inside a segment those of the posts (each pair of the truth file)?
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from bench import report
from bench.corpora import TRUTH_POSTS, corpus, unpack
from bench.edits import COUNTED, blocks, frequent_words, template
from bench.scoring import read_truth
from bench.tokens import shingles, words_ascii

EXAMPLE = "python -m bench.edit_check --sample 2000"
SEGMENTS = (0, 1, 2, 17, 41)
COLUMNS = {
    "segments": "segments", "mean": "mean Jaccard", "p99": "99 %", "p999": "99.9 %", "most": "largest",
    "above": "share >= 0.5",
}  # fmt: skip


def shingle_set(line: bytes) -> frozenset[str]:
    """The shingles of a line, as the truth files define them."""
    document = orjson.loads(line)
    return frozenset(shingles(words_ascii(document["title"] + " " + document["text"])))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """|A and B| / |A or B|, MMDS 3.1.1."""
    both = len(one & other)
    return both / (len(one) + len(other) - both)


def edited(lines: list[bytes], frequent: list[str], segment: int) -> list[bytes]:
    """These posts in a segment."""
    made: list[bytes] = []
    for data, ends in blocks(template(iter(lines), frequent), len(lines) * (segment + 1)):
        made += [data[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    return made[-len(lines) :]


def between(lines: list[bytes], frequent: list[str]) -> Iterator[dict[str, Any]]:
    """Similarity of posts and their copies, a row for every two segments, the last one for all of them."""
    sets = {segment: [shingle_set(line) for line in edited(lines, frequent, segment)] for segment in SEGMENTS}
    everything = []
    for place, one in enumerate(SEGMENTS):
        for other in SEGMENTS[place + 1 :]:
            found = np.array([jaccard(a, b) for a, b in zip(sets[one], sets[other], strict=True)])
            everything.append(found)
            yield _row(f"{one} and {other}", found)
    yield _row("all of these", np.concatenate(everything))


def changed_pairs(posts: Path, truth: Path, frequent: list[str], segment: int) -> tuple[int, int]:
    """(pairs of the truth file, how many of them have another Jaccard in this segment)."""
    pairs = read_truth(truth)
    wanted = {name for pair in pairs for name in pair}
    with posts.open("rb") as lines:
        chosen = [line for line in islice(lines, TRUTH_POSTS) if orjson.loads(line)["id"] in wanted]
    sets = {orjson.loads(line)["id"].partition("~")[0]: shingle_set(line) for line in edited(chosen, frequent, segment)}
    changed = sum(abs(jaccard(sets[one], sets[other]) - value) > 1e-6 for (one, other), value in pairs.items())
    return len(pairs), changed


def _row(name: str, found: np.ndarray) -> dict[str, Any]:
    mean, p99, p999 = float(found.mean()), float(np.quantile(found, 0.99)), float(np.quantile(found, 0.999))
    return {
        "kind": "between", "segments": name, "posts": len(found), "mean": mean, "p99": p99, "p999": p999,
        "most": float(found.max()), "above": float((found >= 0.5).mean()),
    }  # fmt: skip


def main() -> None:
    parser = report.parser("edit_check", "Check the edit that makes a large feed of the posts.", EXAMPLE)
    parser.add_argument("--sample", type=int, default=6000, help="posts to compare with their copies (%(default)s)")
    given = parser.parse_args()
    posts = unpack(corpus("posts-120k"), given.data, given.work)
    with posts.open("rb") as lines:
        frequent = frequent_words(islice(lines, COUNTED))
    print("kept:", " ".join(frequent))
    with posts.open("rb") as lines:
        sample = list(islice(lines, 0, None, max(1, 120_000 // given.sample)))
    rows = list(between(sample, frequent))
    title = f"Jaccard of {len(sample):,} posts and their copies in other segments"
    print(f"{title}\n{report.table(COLUMNS, rows)}")
    texts = [title + "\n\n" + report.table(COLUMNS, rows, markdown=True)]
    for segment in SEGMENTS[1:]:
        pairs, changed = changed_pairs(posts, given.data / "posts-40k.word3.pairs.tsv", frequent, segment)
        rows.append({"kind": "inside", "segment": segment, "pairs": pairs, "changed": changed})
        texts.append(f"Segment {segment}: of {pairs} pairs of the truth, {changed} have another Jaccard.")
        print(texts[-1])
    report.write(given.out, "edit_check", report.environment(("numpy", "numba")), rows, "\n\n".join(texts))


if __name__ == "__main__":
    main()
