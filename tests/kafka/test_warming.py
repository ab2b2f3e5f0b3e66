"""After warming up nothing is left to compile, whatever texts come."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_lsh.deduplicator import Deduplicator
from stream_lsh.documents import Document
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.warming import warm_up
from stream_lsh.settings import Settings


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


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"verify": "signature", "shards": 3, "threshold": 0.5},
        {"normalize": "lower,space,punctuation,markup", "shingles": "chars:9"},
        {"set_field": "tags"},
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
    engine = engine.model_copy(update={"memory_documents": 16})
    with Deduplicator(engine, tmp_path / "index") as deduplicator:
        for turn in range(8):
            documents = [Document(f"{turn}-{n}", text, set=text.split() or ["x"]) for n, text in enumerate(texts)]
            list(deduplicator.process(documents))
    assert kernels_in_use() - before == set()
