"""The real texts to measure with, unpacked once into a work folder, and their exact truth.

The benchmarks read plain .jsonl files, so that no system is charged for the decompression of another one's choice.
"""

from __future__ import annotations

import lzma
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

PROJECT = Path(__file__).parents[1]
TRUTH_POSTS = 40_000  # the first posts, the ones that posts-40k.word3.pairs.tsv compares
EXAMPLE_NAMES = "posts-40k, posts-120k, posts-5k (any number of thousands up to 120), terms-3k"


@dataclass(frozen=True)
class Corpus:
    """One file of documents. `known`: the truth covers the pairs among this many first documents."""

    name: str
    source: str
    documents: int
    text_fields: tuple[str, ...]
    truth: str
    known: int


def corpus(name: str) -> Corpus:
    """The corpus of a name: `posts-<thousands>k` is the first so many posts, `terms-3k` all legal pages.

    Raises:
        ValueError: there is no such corpus.
    """
    if name == "terms-3k":
        return Corpus(name, "terms-3k.jsonl.xz", 3000, ("text",), "terms-3k.word3.pairs.tsv.xz", 3000)
    match = re.fullmatch(r"posts-(\d+)k", name)
    if match is None or not 1 <= int(match[1]) <= 120:
        raise ValueError(f"there is no corpus {name!r}; there are {EXAMPLE_NAMES}")
    size = 1000 * int(match[1])
    return Corpus(
        name, "posts-120k.jsonl.xz", size, ("title", "text"), "posts-40k.word3.pairs.tsv", min(size, TRUTH_POSTS)
    )


def default_data() -> Path:
    """The folder of real data: $STREAM_LSH_DATA, or ../shared/data beside the project."""
    return Path(os.environ.get("STREAM_LSH_DATA") or PROJECT.parent / "shared" / "data")


def default_work() -> Path:
    """Where unpacked and made files are kept between runs: the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "stream-lsh" / "bench"


def unpack(wanted: Corpus, data: Path, work: Path) -> Path:
    """The documents as a plain .jsonl file in `work`, made if it is not there yet.

    Raises:
        FileNotFoundError: the compressed file is not in `data`.
    """
    target = work / f"{wanted.name}.jsonl"
    if target.exists():
        return target
    source = data / wanted.source
    if not source.exists():
        raise FileNotFoundError(f"{source} is not there; give the folder of the real data with --data")
    work.mkdir(parents=True, exist_ok=True)
    # Under another name until it is whole: a run that was stopped must not leave half a corpus behind.
    unfinished = target.with_suffix(f".{os.getpid()}.part")
    with lzma.open(source, "rb") as packed, unfinished.open("wb") as plain:
        if wanted.documents >= 120_000 or wanted.name == "terms-3k":
            shutil.copyfileobj(packed, plain, 1 << 20)
        else:
            plain.writelines(islice(packed, wanted.documents))
    return unfinished.replace(target)


def read_documents(path: Path, text_fields: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """(id, text) of each line; the text fields joined by one blank, as the truth files do it."""
    with path.open("rb") as lines:
        for line in lines:
            document = orjson.loads(line)
            yield document["id"], " ".join([document[field] for field in text_fields])


def known_ids(path: Path, wanted: Corpus) -> set[str]:
    """The ids that the truth file knows about: pairs with another id can't be scored."""
    with path.open("rb") as lines:
        return {orjson.loads(line)["id"] for line in islice(lines, wanted.known)}
