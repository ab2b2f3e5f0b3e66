"""What a test needs and a machine may lack."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test with this reason; where CI is set, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
