"""What tests of the index share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.in_memory import temporary_folder


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: the tests look at what is in files, and kill processes; they do not cut the power."""
    with temporary_folder() as folder:
        yield folder
