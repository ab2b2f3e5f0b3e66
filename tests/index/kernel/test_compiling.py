"""The process that compiles beside the others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stream_lsh.index.kernel import compiling
from stream_lsh.index.kernel.match import match
from stream_lsh.settings.model import Settings


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
    monkeypatch.setattr(compiling, "_process", None)
    process = compiling.begin(Settings())
    assert process is not None and process.wait() == 0
    assert not (tmp_path / "imported").exists()
    assert match.ready(*compiling.TYPES)


def test_it_is_not_started_when_the_kernel_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    match.compile(compiling.TYPES)
    monkeypatch.setattr(compiling, "_process", None)
    assert compiling.begin(Settings()) is None


def test_what_it_compiles_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until it is there, or the process has ended."""
    looks = iter([False, False, True])

    class Kernel:
        def ready(self, *_: object) -> bool:
            return next(looks)

    class Process:
        asked = 0

        def poll(self) -> int | None:
            return None

        def wait(self, seconds: float) -> None:
            self.asked += 1
            raise subprocess.TimeoutExpired("compiling", seconds)

    process = Process()
    monkeypatch.setattr(compiling, "_process", process)
    compiling._wait(Kernel())  # type: ignore[arg-type]
    assert process.asked == 2
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    monkeypatch.setattr(compiling, "_process", ended)
    compiling._wait(_Missing())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, []),
        ({"measure": "tf-idf"}, ["tf-idf"]),
        ({"measure": "containment"}, ["samples", "measures"]),
        ({"measure": "hamming", "dimensions": 16, "max_distance": 1}, ["measures"]),
        ({"shards": 2}, ["late"]),
        ({"on_conflict": "update", "deleted_field": "gone"}, ["updates", "deletions"]),
    ],
)
def test_what_settings_need_besides(chosen: dict[str, object], names: list[str]) -> None:
    assert compiling.needed(Settings.model_validate(chosen)) == names
