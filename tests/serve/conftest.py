"""What the tests of the page share: a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.missing import missing

from bench.browser import browser, installed

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    """A headless Chromium."""
    if not installed():
        missing("there is no chromium with chromedriver (CONTRIBUTING.md)")
    with browser() as driver:
        yield driver
