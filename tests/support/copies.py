"""Texts in families of copies that are changed and withdrawn, and settings with which the engine finds all of them."""

import random
from typing import Any

START, SECOND = 1_700_000_000_000, 1000
# All that is similar is found, and no limit is met, so that the model's answers are the engine's.
SURE: dict[str, Any] = {
    "shingles": "words:1", "threshold": 0.45, "bands": 64, "rows": 1, "signature_size": 128, "max_bucket_rows": 4096,
    "max_candidates": 65536, "max_verified_matches": 1000, "memtable_documents": 64, "segment_documents": 250,
    "on_conflict": "update",
}  # fmt: skip
FIELDS = {"time_field": "at", "source_field": "outlet", "deleted_field": "deleted"}
TEXT = "the council has voted for the new bridge over the river work begins in spring and takes two years"
OTHER = "an old oak fell on the road to the harbour last night and nobody was hurt the fire brigade says so"


def copies(seed: int, n: int) -> list[dict[str, Any]]:
    """So many records, a minute apart, by more sources than a group names; some come late."""
    chance = random.Random(seed)
    words = [f"w{i}" for i in range(200)]
    families = [chance.sample(words, 8) for _ in range(n // 20 + 5)]
    texts: dict[Any, list[str]] = {}
    out: list[dict[str, Any]] = []
    for i in range(n):
        what, id = chance.random(), chance.choice(out[-100:])["id"] if out else "begin"
        at = START + 60 * SECOND * (i - 30 * (chance.random() < 0.1))
        source = {} if chance.random() < 0.1 else {"outlet": f"outlet {chance.randrange(40)}"}
        if what < 0.25:
            out.append({"id": id, "deleted": True, **({"at": at} if what < 0.1 else {}), **source})
            continue
        id = id if what < 0.55 else f"d{i}"
        text = list(texts.get(id, [])) if chance.random() < 0.6 else []
        text = text or list(families[0] if chance.random() < 0.2 else chance.choice(families[i // 20 :][:5]))
        for _ in range(chance.choice((0, 0, 1, 2, 4))):
            text[chance.randrange(8)] = chance.choice(words)
        texts[id] = text
        out.append({"id": id, "text": " ".join(text), "at": at, **source})
    return out
