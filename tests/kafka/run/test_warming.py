"""After warming up nothing is left to compile, whatever texts come."""

from pathlib import Path

import pytest
from support.kafka.match_play import frames
from support.long_form import rotating

from stream_lsh import Deduplicator
from stream_lsh.documents.document import Document
from stream_lsh.embedded import job
from stream_lsh.embedded.warming import warm_up
from stream_lsh.kafka.match.replica import Replica
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.settings.model import Settings


def kernels_in_use() -> set[tuple[str, object]]:
    """All kernels of the package that this process has compiled or loaded, with the types they are for."""
    import sys

    from numba.core.dispatcher import Dispatcher

    found = set()
    for name, module in list(sys.modules.items()):
        if name.startswith("stream_lsh."):
            for value in vars(module).values():
                if isinstance(value, Dispatcher):
                    found |= {(f"{value.__module__}.{value.__name__}", signature) for signature in value.overloads}
    return found


def document(id: str, text: str) -> Document:
    """One that indexes of all kinds take."""
    vector = [float(len(text))] * 15 + [ord(text[:1] or "x") % 5]
    return Document(
        id, text, set=text.split() or ["x"], vector=vector, bits=len(text) % 7, within={"lang": len(text) % 2}
    )


@pytest.mark.parametrize(
    "chosen",
    [
        {"normalize": "lower,space,punctuation,markup", "shingles": "chars:9"},
        {"verify": "signature", "shards": 3, "compare_with": "all", "threshold": 0.5},
        {"measure": "hamming", "dimensions": 32, "max_distance": 2, "match_within": ("lang",)},
        *rotating(
            [
                ({},),
                ({"set_field": "tags"},),
                ({"measure": "cosine", "dimensions": 16, "vector_field": "where", "on_conflict": "update"},),
                ({"measure": "euclidean", "dimensions": 16, "max_distance": 2},),
            ],
            1,
        ),
    ],
)
def test_nothing_is_left_to_compile(chosen: dict[str, object], tmp_path: Path) -> None:
    settings = KafkaSettings.model_validate(chosen)
    warm_up(settings)
    before = kernels_in_use()
    assert any("match" in name for name, _ in before)
    texts = [
        "a <b>short</b> one",
        "ein Ärgernis",
        "ΟΔΟΣ İ",
        "由于西边来的风暴，港口于星期二关闭",
        "long words " * 400,
        "",
        "\u0300",
        "x",
    ]
    engine = Settings.model_validate({name: getattr(settings, name) for name in Settings.model_fields})
    engine = engine.model_copy(update={"memtable_documents": 16})
    with Deduplicator(engine, tmp_path / "index") as deduplicator:
        for turn in range(8):
            documents = [document(f"{turn}-{n}", text) for n, text in enumerate(texts)]
            list(deduplicator.process(documents))
    for turn in range(2):  # a shard on Kafka, which is opened again
        documents = [document(f"{turn}-{n}", text) for n, text in enumerate(texts * 3)]
        replica = Replica(settings, 0, tmp_path / "shard")
        replica.activate()
        for data in frames(settings, documents, 8, 3 * turn):
            assert replica.match(data) is not None
        replica.close()
    assert kernels_in_use() - before == set()


@pytest.mark.parametrize("looks", [0, 1])
def test_it_ends_early_when_it_is_not_wanted_any_more(
    looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the engine is started, and in the middle of its work."""
    monkeypatch.setattr(job, "PROGRESS_SECONDS", 0.0)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked > looks

    warm_up(KafkaSettings(), stopped)
    assert asked == 1 + looks
