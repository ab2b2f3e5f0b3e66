"""The feed of the soak benchmark."""

from pathlib import Path

import orjson

from bench.serve import endless
from bench.serve_soak import COPY_EACH, varied


def test_near_copies_do_not_grow(tmp_path: Path) -> None:
    feed = tmp_path / "feed.jsonl"
    feed.write_bytes(b"".join(b'{"id":%d,"text":"word %d"}\n' % (n, n) for n in range(15)))
    coming = varied(endless(feed))
    texts = [orjson.loads(next(coming))["text"] for _ in range(300)]
    copies = texts[COPY_EACH - 1 :: COPY_EACH]
    assert copies == [f"{text} once more" for text in texts[::COPY_EACH]]
    assert max(map(len, texts)) < 40
    assert len(set(texts)) > 100  # not only those of the first turn again
