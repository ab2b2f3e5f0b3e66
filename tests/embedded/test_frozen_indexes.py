"""Indexes of earlier versions: a run goes on with them, and says what they said."""

from pathlib import Path

import pytest
from support.frozen import FOLDER, lines_of, unpacked
from support.jobs import OUTPUTS, run

from stream_lsh import Settings
from stream_lsh.embedded.information import information

ARCHIVES = sorted(FOLDER.glob("*/index-*.tar.xz"))


def test_there_are_some() -> None:
    assert ARCHIVES


@pytest.mark.parametrize("archive", ARCHIVES, ids=lambda path: f"{path.parent.name}-{path.name.partition('.')[0]}")
def test_a_run_continues_with_an_index_of_an_earlier_version(archive: Path, tmp_path: Path) -> None:
    unpacked(archive.read_bytes(), tmp_path)
    information(tmp_path / "index", check=True)
    run(tmp_path, [tmp_path / "feed.jsonl"], Settings())
    for output in OUTPUTS:
        assert lines_of(tmp_path, output) == (tmp_path / "after" / output).read_bytes()
    information(tmp_path / "index", check=True)
