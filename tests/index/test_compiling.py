"""The process that compiles beside the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_lsh.hashing import kernels
from stream_lsh.index import compiling


def test_it_finds_the_package_and_nothing_of_where_the_caller_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stream_lsh", "numba", "json"):
        (tmp_path / f"{name}.py").write_text("import pathlib\npathlib.Path('imported').touch()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(kernels, "cold", lambda: True)
    monkeypatch.setattr(compiling, "_process", None)
    compiling.begin()
    compiling.wait()
    assert compiling._process is not None and compiling._process.returncode == 0
    assert not (tmp_path / "imported").exists()
