"""Names of corpora, and that their files are unpacked whole, once."""

from __future__ import annotations

import lzma
from pathlib import Path

from bench.corpora import corpus, known_ids, read_documents, unpack


def test_unpack(tmp_path: Path) -> None:
    data, work = tmp_path / "data", tmp_path / "work"
    data.mkdir()
    lines = b"".join(b'{"id":"%d","title":"t","text":"x%d"}\n' % (i, i) for i in range(1500))
    (data / "posts-120k.jsonl.xz").write_bytes(lzma.compress(lines))
    wanted = corpus("posts-1k")
    path = unpack(wanted, data, work)
    assert path.read_bytes() == b"".join(lines.splitlines(keepends=True)[:1000])
    assert list(work.iterdir()) == [path]
    path.write_bytes(b'{"id":"z","title":"t","text":"u"}\n')
    assert unpack(wanted, data, work) == path  # what is there is used
    assert list(read_documents(path, wanted.text_fields)) == [("z", "t u")]
    assert known_ids(path, wanted) == {"z"}
