"""Feeds of documents: what is nasty, what drifts, what is changed and withdrawn."""

import random
from collections.abc import Sequence
from dataclasses import replace

from stream_lsh.documents.document import Document
from stream_lsh.documents.times import LAST_TIME

WORDS = [f"w{i}" for i in range(300)]
EMPTY = ("", "  ", "\u00a0\t\n")
START, SECOND, MINUTE = 1_700_000_000_000, 1000, 60_000
"""An event time in ms, and durations."""


def nasty(
    seed: int, n: int, *, sizes: Sequence[int] = (1, 2, 5, 30, 45), words: Sequence[str] = WORDS
) -> list[Document]:
    """Copies, templates, chains of edits, texts of one word, empty ones, redeliveries, ids that are used again."""
    chance = random.Random(seed)

    def fresh() -> list[str]:
        return [chance.choice(words) for _ in range(chance.choice(sizes))]

    templates, drifting = [fresh() for _ in range(4)], fresh()
    hot = fresh()
    out: list[Document] = []
    for number in range(n):
        dice = chance.random()
        id: int | str = number if chance.random() < 0.8 else f"d{number}"
        if dice < 0.06 and out:
            out.append(chance.choice(out))  # delivered again
            continue
        if dice < 0.1 and out:
            id = chance.choice(out).id
        if dice < 0.13:
            out.append(Document(id, chance.choice(EMPTY)))
            continue
        if dice < 0.25:
            text = fresh()
        elif dice < 0.35:
            text = hot
        elif dice < 0.55:
            drifting = edited(drifting, 1, chance, words)
            text = drifting
        elif dice < 0.65 and out:
            text = (chance.choice(out).text or "").split() or fresh()
        else:
            text = edited(chance.choice(templates), chance.choice((0, 1, 1, 2, 4, 8)), chance, words)
        joined = " ".join(text)
        out.append(Document(id, joined.upper() if chance.random() < 0.1 else joined))
    return out


def changing(seed: int, n: int, *, words: Sequence[str] = WORDS) -> list[Document]:
    """The same under few ids, of which many are deleted."""
    chance, documents = random.Random(seed), nasty(seed, n, words=words)
    ids = chance.choice((3, 20, 100))
    out = [Document(chance.randrange(ids), d.text) if chance.random() < 0.7 else d for d in documents]
    return [Document(d.id, deleted=True) if chance.random() < 0.2 else d for d in out]


def edited(text: Sequence[str], edits: int, chance: random.Random, words: Sequence[str] = WORDS) -> list[str]:
    """A text with some words replaced."""
    text = list(text)
    for _ in range(edits):
        text[chance.randrange(len(text))] = chance.choice(words)
    return text


def drifting(seed: int, n: int) -> list[Document]:
    """Families of copies and drifting texts over hours, with gaps, late ones, redeliveries and a few absurd times."""
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(400)]
    families = [chance.sample(words, 12) for _ in range(6)]
    out, now = [Document("begin", "to begin with", time=START)], START
    for i in range(1, n):
        now += chance.choice((0, 100, 300, 1000, 2000)) + (chance.random() < 0.002) * 40 * MINUTE
        text = list(chance.choice(families)) if chance.random() < 0.8 else chance.sample(words, 12)
        text = edited(text, chance.choice((0, 0, 1, 2, 4)), chance, words)
        if chance.random() < 0.01:
            families[chance.randrange(6)] = text
        time = {0: None, 1: LAST_TIME - 1, 2: now - 20 * MINUTE, 3: 5}.get(chance.randrange(40), now)
        id = str(i)
        if chance.random() < 0.05 and i > 50:
            again = out[-chance.randrange(1, 50)]
            id, text = str(again.id), (again.text or "").split() if chance.random() < 0.7 else text
        out.append(Document(id, " ".join(text), time=time))
    return out


def drifting_and_changing(seed: int, n: int) -> list[Document]:
    """The same, of which many are changed and withdrawn, some again and again."""
    chance, documents = random.Random(seed), drifting(seed, n)
    for i in range(100, n):
        what, old = chance.random(), documents[chance.randrange(max(1, i - 400), i)]
        time = documents[i].time
        if what < 0.15:
            documents[i] = Document(old.id, documents[i].text, time=time)
        elif what < 0.3:
            documents[i] = Document(old.id, time=None if chance.random() < 0.3 else time, deleted=True)
        elif what < 0.35:
            documents[i] = Document("again", documents[i].text, time=time)
    return documents


def families(seed: int, n: int) -> list[Document]:
    """Families of 5 to 30 ids; each version is an edit of the family's text, or of what another of it said before."""
    chance = random.Random(seed)
    words = WORDS[:120]
    known: list[tuple[list[str], list[list[str]], list[str]]] = []  # text, versions, ids
    out, now = [Document("begin", "to begin with", time=START)], START
    pace = chance.choice((500, 1000, 3000))
    while len(out) < n:
        if len(known) < 3 or chance.random() < 0.02:
            name, size = f"{len(known)}", chance.randrange(5, 31)
            base = chance.sample(words, chance.choice((18, 20, 22)))
            known.append((base, [base], [f"f{name}-{i}" for i in range(size)]))
        base, versions, ids = chance.choice(known[-6:] if chance.random() < 0.8 else known)
        burst = chance.choice((1, 1, 3, len(ids)))
        what = chance.choice(("new", "new", "same", "levenshtein", "delete", "delete", "return", "again"))
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
            text = of if what == "same" else edited(of, chance.randrange(4), chance, words)
            versions.append(text)
            out.append(Document(id, " ".join(text), time=time))
        if chance.random() < 0.03:
            now += 5 * MINUTE
    return out[:n]


def ranked(documents: list[Document], chance: random.Random) -> list[Document]:
    """Each with one of four ranks, of which 0 is also the rank of a deletion; of one of two sources, or of none."""
    return [
        document
        if document.deleted
        else replace(document, rank=chance.randrange(4), source=chance.choice((None, "x", "x", "y")))
        for document in documents
    ]


def improving(seed: int, n: int) -> list[Document]:
    """Copies of a few texts, of one length, each of which is similar to the two beside it. Ranks rise slowly."""
    chance, words = random.Random(seed), [f"word{i:02}" for i in range(60)]
    starts = [3 * chance.randrange(12) for _ in range(n)]
    return [
        Document(
            str(i), " ".join(words[start : start + 20]), rank=i // 20 + chance.randrange(5), source=chance.choice("xy")
        )
        for i, start in enumerate(starts)
    ]
