"""The page in a real browser: what it shows, and what it is told instead of what a service says."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.browser import value
from support.missing import missing

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

# WebDriver's words, as selenium.webdriver.common has them: only the gate installs it.
XPATH, ID, CSS = "xpath", "id", "css selector"
TAB, SPACE, ENTER = "\ue004", "\ue00d", "\ue007"
WCAG_AA = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]


def state(driver: Chrome, word: str) -> None:
    """Wait until the page says so of itself."""
    value(driver, f"document.getElementById('state').dataset.state === '{word}'")


def point_at(driver: Chrome, x: float, y: float) -> None:
    """Move the mouse there."""
    driver.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})


def row(id: str | int) -> str:
    """A script: the row of a duplicate."""
    key = json.dumps(json.dumps(id))
    return f"[...document.querySelectorAll('#pairs li')].find((li) => li.dataset.id === {key})"


def wait_for_row(driver: Chrome, id: str | int) -> None:
    """Wait until a duplicate is shown, with what is known of it."""
    value(driver, f"{row(id)}?.querySelector('.similarity')")


def open_row(driver: Chrome, id: str | int) -> None:
    """Compare a duplicate with the document that it is like."""
    wait_for_row(driver, id)
    script = f"const link = {row(id)}.querySelector('a'); link.focus({{preventScroll: true}}); link.click()"
    driver.execute_script(script)
    value(driver, "document.querySelectorAll('#compare-body .text').length === 2")


def go(driver: Chrome, hash: str) -> None:
    """Open a view by its address."""
    driver.execute_script("location.hash = arguments[0]", hash)


def instead(driver: Chrome, answers: dict[str, tuple[int, Any]]) -> str:
    """Answer requests of all pages from now on without a service: status and JSON, by the part of a path.

    Returns:
        What `clear` takes. A page changes the answers as `window.answers`.
    """
    script = """
    window.answers = %s;
    const asked = window.fetch;
    window.fetch = async (path, options) => {
      for (const [part, [status, body]] of Object.entries(window.answers)) {
        if (!String(path).includes(part)) continue;
        if (status === 0) throw new TypeError("network error");
        return new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
      }
      return asked(path, options);
    };
    """
    added = driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": script % json.dumps(answers)})
    return str(added["identifier"])


def clear(driver: Chrome, identifier: str) -> None:
    """Take `instead` back."""
    driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": identifier})


def axe() -> str:
    """The script that finds what keeps people out."""
    for folder in (Path(sys.prefix), Path(__file__).parents[2] / ".venv", Path(__file__).parents[2]):
        if (script := folder / "node_modules" / "axe-core" / "axe.min.js").exists():
            return script.read_text(encoding="utf-8")
    missing("there is no axe-core (CONTRIBUTING.md)")


def violations(driver: Chrome, axe: str) -> list[str]:
    """What WCAG AA forbids on the page as it is."""
    driver.execute_script("document.getAnimations().forEach((animation) => animation.finish())")
    driver.execute_script(axe)
    found = driver.execute_async_script(
        "axe.run({runOnly: {type: 'tag', values: arguments[0]}}).then(arguments[1])", WCAG_AA
    )
    assert found["passes"]
    return [f"{one['id']}: {[node['html'] for node in one['nodes']]}" for one in found["violations"]]
