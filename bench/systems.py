"""The peers, each run as it is best run: `python -m bench.systems NAME FILE --pairs OUT`, one process a system.

Every document is compared with the earlier ones and then added, with --unique only if nothing was found; what a peer
finds is checked by the similarity of the signatures (128 components). With --updates a document takes the place of the
one before that has its id, which is removed first. What is measured starts when the first byte is
read and ends when the last pair is known: imports and the choice of the bands (datasketch integrates for some tenths of
a second) are not charged to the peers.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.corpora import read_documents
from bench.process import own_peak
from bench.tokens import SIZE, TOKENIZERS, shingles

COMPONENTS = 128
BATCH = 128  # documents handed to a library at a time, where it has a call for many

Documents = Iterator[tuple[str, str]]
# Takes (id, text) in order, yields (position of the older, position of the newer).
System = Callable[[Iterator[str]], Iterator[tuple[int, int]]]
# The position of the version that goes with a document, None without one.
Goes = Callable[[int], int | None]


def compared(
    sketches: Iterable[Any], index: Any, threshold: float, *, unique: bool, goes: Goes, check: bool = True
) -> Iterator[tuple[int, int]]:
    """Each sketch looked up, what is found checked by the similarity of the sketches, and then inserted."""
    known: dict[int, Any] = {}
    for newer, sketch in enumerate(sketches):
        if (old := goes(newer)) in known:
            index.remove(old)
            del known[old]
        found = index.query(sketch)
        if check:
            found = [older for older in found if known[older].jaccard(sketch) >= threshold]
        for older in found:
            yield older, newer
        if not (unique and found):
            index.insert(newer, sketch)
            known[newer] = sketch


def datasketch(
    threshold: float, tokenizer: str, *, unique: bool, goes: Goes, fast_hash: bool = False, check: bool = True
) -> System:
    """MinHashLSH with the bands it chooses for the threshold, MinHash.generator (its bulk path), then MinHash.jaccard.

    `fast_hash`: mmh3 instead of the default SHA-1, the change that its documentation advises for speed.
    """
    import mmh3
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=COMPONENTS)
    options = {"hashfunc": mmh3.mmh3_32_uintdigest} if fast_hash else {}
    words, _ = TOKENIZERS[tokenizer]

    def run(texts: Iterator[str]) -> Iterator[tuple[int, int]]:
        encoded = ([shingle.encode() for shingle in shingles(words(text))] for text in texts)
        sketches = MinHash.generator(encoded, num_perm=COMPONENTS, **options)
        return compared(sketches, index, threshold, unique=unique, goes=goes, check=check)

    return run


def datasketch_update(threshold: float, tokenizer: str, *, unique: bool, goes: Goes) -> System:
    """The same as the first example of its documentation does it: MinHash.update, shingle by shingle."""
    from datasketch import MinHash, MinHashLSH

    index = MinHashLSH(threshold=threshold, num_perm=COMPONENTS)
    words, _ = TOKENIZERS[tokenizer]

    def sketch(text: str) -> MinHash:
        made = MinHash(num_perm=COMPONENTS)
        for shingle in shingles(words(text)):
            made.update(shingle.encode())
        return made

    return lambda texts: compared(map(sketch, texts), index, threshold, unique=unique, goes=goes)


def rensa(threshold: float, tokenizer: str, *, unique: bool, goes: Goes, check: bool = True) -> System:
    """RMinHashLSH with 16 bands of 8, RMinHash.from_token_sets for a batch at a time, then RMinHash.jaccard."""
    from rensa import RMinHash, RMinHashLSH

    index = RMinHashLSH(threshold, COMPONENTS, 16)
    words, _ = TOKENIZERS[tokenizer]

    def sketches(texts: Iterator[str]) -> Iterator[RMinHash]:
        while batch := [shingles(words(text)) for text in islice(texts, BATCH)]:
            yield from RMinHash.from_token_sets(batch, num_perm=COMPONENTS, seed=42)

    return lambda texts: compared(sketches(texts), index, threshold, unique=unique, goes=goes, check=check)


def fastsketch(threshold: float, tokenizer: str, *, unique: bool, goes: Goes, check: bool = True) -> System:
    """LSH with 16 bands of 8, FastSimilaritySketch.batch for a batch at a time, then the share of equal components.

    A batch is inserted, then looked up: it is compared with itself, too. With `unique`, a document at a time. Nothing
    can be removed from its index.
    """
    from FastSketchLSH import LSH, FastSimilaritySketch

    sketcher = FastSimilaritySketch(size=COMPONENTS, seed=42)
    index = LSH(num_perm=COMPONENTS, num_bands=16, num_threads=1)
    words, _ = TOKENIZERS[tokenizer]

    def run(texts: Iterator[str]) -> Iterator[tuple[int, int]]:
        known, inserted, first = np.empty((1024, COMPONENTS), np.uint64), list[int](), 0
        while batch := [shingles(words(text)) for text in islice(texts, BATCH)]:
            sketches = sketcher.batch(batch, num_threads=1)
            for at in range(0, len(batch), 1 if unique else BATCH):
                part = sketches[at : at + 1] if unique else sketches
                newest = range(len(inserted), len(inserted) + len(part))
                if newest.stop > len(known):
                    known = np.resize(known, (2 * len(known), COMPONENTS))
                known[newest.start : newest.stop] = part
                inserted += range(first + at, first + at + len(part))
                if not unique:
                    index.insert(part)
                found, ends = index.query(part, format="csr")
                older = found.astype(np.int64)
                newer = newest.start + np.repeat(np.arange(len(part)), np.diff(ends.astype(np.int64)))
                alike = older < newer
                if check:
                    alike &= (known[older] == known[newer]).mean(axis=1) >= threshold
                pairs = [
                    (inserted[one], inserted[other]) for one, other in zip(older[alike], newer[alike], strict=True)
                ]
                yield from pairs
                if unique:
                    if pairs:
                        inserted.pop()
                    else:
                        index.insert(part)
            first += len(batch)

    return run


def gaoya_index(threshold: float, *, lowercase: bool) -> Any:
    """A MinHashStringIndex, 16 bands of 8 and 3-word shingles, without the wrapper in Python around it."""
    from gaoya.minhash import MinHashStringIndex

    return MinHashStringIndex(
        hash_size=32, jaccard_threshold=threshold, num_bands=16, band_size=8, analyzer="word", lowercase=lowercase,
        ngram_range=(SIZE, SIZE), id_container="smallvec",
    ).minhash_index  # fmt: skip


def gaoya(threshold: float, tokenizer: str, *, unique: bool, goes: Goes) -> System:
    """MinHashStringIndex as it is meant: the text as it is; lower case, words, shingles, check, all of it in Rust.

    Not quite the same shingles: its words end at ASCII punctuation (also at _) and ASCII blanks, and nowhere else.
    `tokenizer` does not matter to it.
    """
    index = gaoya_index(threshold, lowercase=True)

    def run(texts: Iterator[str]) -> Iterator[tuple[int, int]]:
        for newer, text in enumerate(texts):
            if (old := goes(newer)) is not None:
                index.remove(old)
            found = index.query(text)
            for older in found:
                yield older, newer
            if not (unique and found):
                index.insert_document(newer, text)

    return run


def gaoya_words(threshold: float, tokenizer: str, *, unique: bool, goes: Goes) -> System:
    """The same with exactly the others' shingles: it is given their words with blanks between them.

    Texts of less than three words, which it has no shingle for, are given as one token.
    """
    index = gaoya_index(threshold, lowercase=False)
    _, line = TOKENIZERS[tokenizer]

    def run(texts: Iterator[str]) -> Iterator[tuple[int, int]]:
        for newer, text in enumerate(texts):
            if (old := goes(newer)) is not None:
                index.remove(old)
            words = line(text)
            first = words.split(None, SIZE - 1)
            tokens = [" ".join(first)]
            found = index.query(words) if len(first) == SIZE else index.query_tokens(tokens)
            for older in found:
                yield older, newer
            if unique and found:
                continue
            if len(first) == SIZE:
                index.insert_document(newer, words)
            else:
                index.insert_tokens(newer, tokens)

    return run


SYSTEMS: dict[str, Callable[..., System]] = {
    "datasketch": datasketch,
    "datasketch-mmh3": partial(datasketch, fast_hash=True),
    "datasketch-update": datasketch_update,
    "datasketch-unchecked": partial(datasketch, check=False),
    "rensa": rensa,
    "rensa-unchecked": partial(rensa, check=False),
    "fastsketch": fastsketch,
    "fastsketch-unchecked": partial(fastsketch, check=False),
    "gaoya": gaoya,
    "gaoya-words": gaoya_words,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.systems", description="Run one peer over one file and print what it took as JSON.",
        epilog="example: python -m bench.systems gaoya posts-5k.jsonl --text-field title,text --pairs found.tsv",
    )  # fmt: skip
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("file", type=Path)
    parser.add_argument("--text-field", default="text", help="comma list; they are joined by a blank (%(default)s)")
    parser.add_argument("--unique", action="store_true", help="insert only documents for which nothing is found")
    parser.add_argument("--updates", action="store_true", help="a document replaces the one before that has its id")
    parser.add_argument("--threshold", type=float, default=0.8)
    parser.add_argument("--tokenizer", choices=TOKENIZERS, default="regex")
    parser.add_argument("--pairs", type=Path, required=True, help="where to write the pairs, id and id a line")
    given = parser.parse_args()
    if given.updates and given.system.startswith("fastsketch"):
        parser.error("FastSketchLSH removes nothing from its index")
    # The Rust libraries read this when they start their pool of threads, which is not before their first call.
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    ids: list[str] = []
    newest: dict[str, int] = {}

    def goes(position: int) -> int | None:
        old = newest.get(ids[position])
        newest[ids[position]] = position
        return old if given.updates else None

    system = SYSTEMS[given.system](given.threshold, given.tokenizer, unique=given.unique, goes=goes)

    def texts() -> Iterator[str]:
        for document, text in read_documents(given.file, tuple(given.text_field.split(","))):
            ids.append(document)
            yield text

    start, cpu = time.perf_counter(), time.process_time()
    found = list(system(texts()))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    given.pairs.write_text("".join(f"{ids[older]}\t{ids[newer]}\n" for older, newer in found), encoding="utf-8")
    json.dump({"seconds": seconds, "cpu": cpu_seconds, "documents": len(ids), "peak": own_peak()}, sys.stdout)


if __name__ == "__main__":
    main()
