"""Texts of old rows are read for many documents at once, and no answer depends on it."""

import random
from pathlib import Path
from typing import Any

import pytest
from support.feeds import WORDS
from support.indexes import fed, opened

from stream_lsh.documents.document import Document
from stream_lsh.index import batch_run
from stream_lsh.index.rows.texts import Texts
from stream_lsh.settings.model import Settings

N = 400


def feed(seed: int) -> tuple[list[Document], list[Document]]:
    """Texts, and each again with a word replaced, or as it was, some under the old ids."""
    chance = random.Random(seed)
    old = [Document(i, " ".join(chance.choices(WORDS, k=60))) for i in range(N)]
    new = []
    for document in old:
        words = document.text.split()
        if chance.random() < 0.8:
            words[chance.randrange(len(words))] = chance.choice(WORDS)
        new.append(Document(document.id if chance.random() < 0.5 else f"again-{document.id}", " ".join(words)))
    return old, new


def run(folder: Path, settings: Settings, documents: tuple[list[Document], list[Document]]) -> list[dict[str, Any]]:
    """The verdicts on the second half, given by an index that has nothing of the first half at hand."""
    first, second = documents
    with opened(settings, folder) as index:
        fed(index, first, 0, N)
        index.commit({})
    with opened(settings, folder) as index:
        return fed(index, second, N, N)


@pytest.mark.parametrize("compare_with", ["kept", "all"])
def test_reading_ahead_changes_no_answer_and_reads_seldom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compare_with: str
) -> None:
    settings = Settings(
        threshold=0.7, compare_with=compare_with, on_conflict="update" if compare_with == "kept" else "reject"
    )
    reads: list[int] = []
    read = Texts.read

    def counted(texts: Texts, rows: Any, most: int) -> Any:
        found = read(texts, rows, most)
        reads.append(len(found))
        return found

    monkeypatch.setattr(Texts, "read", counted)
    ahead = run(tmp_path / "ahead", settings, feed(1))
    many = list(reads)
    reads.clear()
    monkeypatch.setattr(batch_run, "GUESSED", 1)
    assert run(tmp_path / "one by one", settings, feed(1)) == ahead
    assert sum(verdict["kind"] != "unique" or "replaces" in verdict for verdict in ahead) > 0.9 * N
    assert len(reads) > 0.9 * N / 2 > 10 * len(many)
    assert max(many) > 100
