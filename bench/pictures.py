"""The pictures of the page for README.md and docs/how-to/serve.md, of the demo's feed as it flows."""

from __future__ import annotations

import argparse
import base64
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from selenium.webdriver import Chrome

from bench.browser import browser, show, value
from bench.engine import COMMAND

IMAGES = Path(__file__).parents[1] / "docs" / "images"
MOST_DOCUMENTS = 200_000  # of a demo
DESK, PHONE = (1280, 860), (390, 844)


@contextmanager
def demo(rate: int) -> Iterator[str]:
    """The demo, served; its URL."""
    documents = min(600 * rate, MOST_DOCUMENTS)
    command = [*COMMAND, "demo", "--serve", "--port", "0", "--rate", str(rate), "--documents", str(documents)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"open (http://\S+)", line):
                    yield found[1]
                    break
        finally:
            process.terminate()


def picture(driver: Chrome, path: Path) -> None:
    """What is seen."""
    driver.execute_script("scrollTo(0, 0); document.getAnimations().forEach((animation) => animation.finish())")
    found = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    path.write_bytes(base64.b64decode(found["data"]))
    print(f"{path}: {path.stat().st_size / 1e3:,.0f} kB", flush=True)


def take(driver: Chrome, folder: Path) -> None:
    """All pictures of an open page."""
    for name, size, dark in (("page", DESK, False), ("page-dark", DESK, True), ("page-phone", PHONE, False)):
        show(driver, *size, dark=dark, phone=size == PHONE)
        time.sleep(2.5)  # headlines are asked for after their rows
        picture(driver, folder / f"{name}.png")
    show(driver, *DESK)
    near = """
    const near = [...document.querySelectorAll('#pairs li')].filter((li) => !li.textContent.startsWith('100.0 %'));
    (near.find((li) => /^8.\\.. %[A-Za-z]/.test(li.textContent)) ?? near[0]).querySelector('a').click();
    """
    driver.execute_script(near)
    value(driver, "document.querySelector('#compare-body .sides mark')")
    driver.execute_script("document.getElementById('next').click()")
    time.sleep(1)
    picture(driver, folder / "page-compare.png")
    driver.execute_script("location.hash = '#/groups?order=growing'")
    value(driver, "document.querySelector('#groups a')")
    driver.execute_script("document.querySelector('#groups a').click()")
    value(driver, "document.querySelector('.timeline .first b')")
    time.sleep(1)
    picture(driver, folder / "page-group.png")
    driver.execute_script("location.hash = '#/service'")
    value(driver, "document.querySelector('#rate rect')")
    time.sleep(1)
    picture(driver, folder / "page-service.png")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench.pictures", description=__doc__, epilog="example: python -m bench.pictures --seconds 60"
    )
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures (docs/images)")
    parser.add_argument("--seconds", type=float, default=125, help="that the feed flows before (%(default)s)")
    parser.add_argument("--rate", type=int, default=20, help="documents a second (%(default)s)")
    given = parser.parse_args()
    with demo(given.rate) as url, browser(*DESK) as driver:
        show(driver, *DESK)
        driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        driver.get(url)
        value(driver, "document.querySelector('#pairs li')")
        time.sleep(given.seconds)
        take(driver, given.out)


if __name__ == "__main__":
    main()
