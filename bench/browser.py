"""A headless Chromium, for the tests of the page and for its pictures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the real ones take half a second, which only who opens a browser pays
    from selenium.webdriver import Chrome

PATIENCE = 300.0  # seconds; a machine that others use may be slow


def installed() -> bool:
    """Whether there is one (Debian: chromium, chromium-driver)."""
    return shutil.which("chromium") is not None and shutil.which("chromedriver") is not None


@contextmanager
def browser(width: int = 1280, height: int = 900) -> Iterator[Chrome]:
    """A window of a browser that remembers all requests of its pages, and what they complain of."""
    from selenium.webdriver import Chrome, ChromeOptions
    from selenium.webdriver.chrome.service import Service

    options = ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--disable-extensions",
        "--disable-background-networking", "--lang=en", f"--window-size={width},{height}",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, Service(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def show(driver: Chrome, width: int, height: int, *, dark: bool = False, phone: bool = False) -> None:
    """Give the page another size and another taste."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    taste = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [taste]})


def value(driver: Chrome, script: str) -> object:
    """What a script gives, as soon as it gives something."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(driver, PATIENCE, 0.02).until(lambda _: driver.execute_script(f"return {script}"), script)


def requests(driver: Chrome) -> list[str]:
    """The addresses that were asked for since the last call."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    return [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
