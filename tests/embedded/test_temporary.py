import tempfile
from pathlib import Path

import pytest

from stream_lsh.embedded import temporary
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import OutputError


def no_folder() -> str:
    raise FileNotFoundError(2, "No usable temporary directory found")


def test_a_folder_that_goes_away() -> None:
    with temporary_folder() as name:
        assert Path(name).is_dir()
    assert not Path(name).exists()


def test_without_a_place_on_disk_it_is_in_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "_get_default_tempdir", no_folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "MEMORY", str(tmp_path))
    with temporary_folder() as name:
        assert Path(name).parent == tmp_path


def test_without_any_place_the_remedy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "_get_default_tempdir", no_folder)
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(temporary, "MEMORY", str(tmp_path / "missing"))
    with pytest.raises(OutputError, match=r"TMPDIR.*--index"):
        temporary_folder()
