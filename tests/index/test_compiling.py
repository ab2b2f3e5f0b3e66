"""The process that compiles beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_lsh.index import compiling
from stream_lsh.index.match import match


class _Missing:
    """The kernel, as it is before the first start."""

    @staticmethod
    def ready(*_: object) -> bool:
        return False


def test_it_finds_the_package_and_nothing_of_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stream_lsh", "numba", "json"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compiling, "match", _Missing)
    monkeypatch.setattr(compiling, "_begun", False)
    process = compiling.begin()
    assert process is not None and process.wait() == 0
    assert not (tmp_path / "imported").exists()
    assert match.ready(*compiling.TYPES)


def test_it_is_not_started_when_the_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    match.compile(compiling.TYPES)
    monkeypatch.setattr(compiling, "_begun", False)
    assert compiling.begin() is None
