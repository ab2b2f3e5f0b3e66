"""What a test needs and a machine may lack."""

import importlib.util
import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test with this reason; where CI is set, fail."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)


def extra(module: str) -> None:
    """What the extra `bench` brings: skip the test without it; where CI is set, fail."""
    if importlib.util.find_spec(module) is None:
        missing(f"there is no {module}: pip install 'stream-lsh[bench]'")
