"""The process that compiles beside the others."""

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


def test_this_process_compiles_instead_of_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it needs itself, then the last kernels of a long list; the other process has compiled the first ones."""
    done: list[object] = []

    class Kernel:
        def __init__(self, name: str) -> None:
            self.name = name

        def ready(self, *_: object) -> bool:
            return self.name in done or len(done) == 3

        def load(self) -> None:
            if not self.ready():
                done.append(self.name)

        def compile(self, _: object) -> None:
            self.load()

    class Process:
        def poll(self) -> int | None:
            return None

    monkeypatch.setattr(compiling, "_process", Process())
    monkeypatch.setattr(compiling, "match", Kernel("match"))
    monkeypatch.setattr(compiling, "FAR", {"some": tuple(map(Kernel, "abc")), "more": tuple(map(Kernel, "de"))})
    compiling.have(["some", "more"], lambda: done.append("own"))
    assert done == ["own", "e", "d"]


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ({}, ["general"]),
        ({"measure": "tf-idf"}, ["tf-idf"]),
        ({"measure": "containment"}, ["general", "samples", "measures"]),
        ({"measure": "hamming", "dimensions": 16, "max_distance": 1}, ["general", "measures"]),
        ({"shards": 2}, ["general", "late"]),
        ({"on_conflict": "update", "deleted_field": "gone"}, ["general", "updates", "deletions"]),
    ],
)
def test_what_settings_need_besides(chosen: dict[str, object], names: list[str]) -> None:
    assert compiling.needed(Settings.model_validate(chosen)) == names
