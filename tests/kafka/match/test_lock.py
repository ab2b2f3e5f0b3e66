"""The lock of a data folder."""

import errno
import fcntl
import os
from pathlib import Path

import pytest

from stream_lsh.errors import StoreError, UsageError
from stream_lsh.kafka.match.lock import locked


def test_one_has_it_and_gives_it_back(tmp_path: Path) -> None:
    with locked(tmp_path / "data"), pytest.raises(StoreError, match="in use by another worker"):
        locked(tmp_path / "data").__enter__()
    with locked(tmp_path / "data"):
        pass


def test_a_file_system_without_locks_is_named_and_nothing_stays_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    def refuse(descriptor: int, operation: int) -> None:
        taken.append(descriptor)
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(UsageError, match=rf"data_folder {tmp_path} cannot be locked: No locks available"):
        locked(tmp_path).__enter__()
    with pytest.raises(OSError):
        os.fstat(taken[0])
