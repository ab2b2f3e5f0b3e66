"""Where the tests find real data."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data with exact truth: $STREAM_LSH_DATA, or ../shared/data beside the project."""
    folder = Path(os.environ.get("STREAM_LSH_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        message = f"no real data at {folder}; set STREAM_LSH_DATA"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return folder
