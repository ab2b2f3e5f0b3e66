"""Updates and deletions as the model has it, with hardly any memory: families of long texts of shared words, whose ids
go and come again with what others of the family said, between restarts, lost work and erasing."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.long_form import seeds
from test_window import ANY, MINUTE, START, SURE, UNIQUE, comparable, fed, modelled, opened, same

from stream_lsh.documents.columns import Document
from stream_lsh.embedded.information import information
from stream_lsh.settings import Settings

LATER = 10**9  # seconds: everything is due
WORDS = [f"w{i}" for i in range(120)]


def edited(words: list[str], chance: random.Random, most: int = 3) -> list[str]:
    """The same, but for a few words."""
    out = list(words)
    for _ in range(chance.randrange(most + 1)):
        out[chance.randrange(len(out))] = chance.choice(WORDS)
    return out


def family_history(seed: int, n: int) -> list[Document]:
    """Families of 5 to 30 ids; each version is an edit of the family's text, or of what another of it said before."""
    chance = random.Random(seed)
    families: list[tuple[list[str], list[list[str]], list[str]]] = []  # text, versions, ids
    out, now = [Document("begin", "to begin with", time=START)], START
    pace = chance.choice((500, 1000, 3000))
    while len(out) < n:
        if len(families) < 3 or chance.random() < 0.02:
            name, size = f"{len(families)}", chance.randrange(5, 31)
            base = chance.sample(WORDS, chance.choice((18, 20, 22)))
            families.append((base, [base], [f"f{name}-{i}" for i in range(size)]))
        base, versions, ids = chance.choice(families[-6:] if chance.random() < 0.8 else families)
        burst = chance.choice((1, 1, 3, len(ids)))
        what = chance.choice(("new", "new", "same", "edit", "delete", "delete", "return", "again"))
        some = ids[:burst] if chance.random() < 0.3 else chance.sample(ids, min(burst, len(ids)))
        for id in some:
            now += chance.randrange(0, pace)
            time = {0: None, 1: now - 3 * MINUTE}.get(chance.randrange(25), now)
            if what in ("delete", "return"):
                out.append(Document(id, time=chance.choice((None, time)), deleted=True))
            if what == "delete":
                continue
            if what == "again" and len(out) > 20:
                out.append(out[-chance.randrange(1, 20)])
                continue
            of = {"same": versions[-1], "new": base}.get(what, chance.choice(versions[-12:]))
            text = of if what == "same" else edited(of, chance)
            versions.append(text)
            out.append(Document(id, " ".join(text), time=time))
        if chance.random() < 0.03:
            now += 5 * MINUTE
    return out[:n]


def pressed(documents: list[Document], settings: Settings, folder: Path, chance: random.Random) -> list[Any]:
    """Through batches, commits and restarts of any size, as the feed that is told again what was not committed."""
    out: list[Any] = []
    while len(out) < len(documents):
        with opened(settings, folder) as index:
            done = len(out)
            for _ in range(chance.choice((1, 1, 2, 5, 20))):
                batch = documents[len(out) : len(out) + chance.choice((1, 2, 7, 30, 100, 300))]
                if not batch:
                    break
                out += fed(index, batch, len(out))
                if chance.random() < 0.5:
                    index.commit({}, now=chance.choice((0, LATER)))
                    done = len(out)
                    if chance.random() < 0.4:
                        index.erase(LATER, everything=chance.random() < 0.7)
            if chance.random() < 0.5:
                index.commit({}, now=0)
                done = len(out)
            if chance.random() < 0.3:
                index.erase(LATER)
            if done == 0:
                index.commit({}, now=0)
                done = len(out)
            del out[done:]  # what was not committed is told again
        if chance.random() < 0.1:
            for postings in folder.glob("generations/*/postings"):
                shutil.rmtree(postings)
    return out


def run(seed: int, against: dict[str, Any], shards: int, folder: Path, n: int = 700) -> None:
    chance = random.Random(seed)
    settings = Settings(
        **{
            **SURE,
            "threshold": chance.choice((0.45, 0.6, 0.75)),
            "generation_documents": chance.choice((40, 200, 1000, 10**6)),
        },
        **against,
        shards=shards,
        on_same_id="update",
        window=chance.choice((None, None, "1m", "4m", "15m")),
        decided_after=chance.choice((2, 10, 100)),
        memory_documents=chance.choice((16, 16, 16, 64)),
    )
    documents = family_history(seed, n)
    found = pressed(documents, settings, folder, chance)
    same(*(comparable(side, settings) for side in (found, modelled(documents, settings))))
    facts: Any = information(folder, check=True)
    assert facts["health"]["problems"] == []


@pytest.mark.parametrize(
    ("against", "shards"), [(UNIQUE, 1), (UNIQUE, 2), (UNIQUE, 3), (ANY, 1), (ANY, 2), (ANY, 3)],
    ids=["unique", "unique-2", "unique-3", "any", "any-2", "any-3"],
)  # fmt: skip
@pytest.mark.parametrize("seed", seeds(2, 10, 20))
def test_families(tmp_path: Path, seed: int, against: dict[str, Any], shards: int) -> None:
    run(seed, against, shards, tmp_path)
