"""The report of an audit in a real browser: labels by keys, no request, no barrier."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browsing import CSS, axe, violations
from support.commands import run
from support.json_lines import read_lines, write_lines
from support.waiting import until

from bench.browser import requests, show, value

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.long
HOSTILE = "<img src=x onerror=document.title='caught'>"
TEXT = f"The council {HOSTILE} has voted for the new bridge over the river; work begins in spring and takes two years"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    edits = [TEXT, f"{TEXT} {HOSTILE}", f"{TEXT} שלום עולם", f"{TEXT} or so", *[f"{TEXT} {n} x" for n in range(26)]]
    documents = [
        {
            "id": 2**60 + n if n > 3 else f"{HOSTILE}{n}" + "y" * 400 * (n == 3),
            "text": text,
            "from": HOSTILE,
            "at": 1_700_000_000 + 3600 * n,
        }
        for n, text in enumerate(edits)
    ]
    run(
        "dedup", write_lines(folder / "feed", documents), "--index", folder / "index", "--unique", folder / "unique",
        "--source-field", "from", "--time-field", "at", "--quiet",
    )  # fmt: skip
    run("audit", "--index", folder / "index", "--html", folder / "report.html")
    return folder


@pytest.fixture
def page(chrome: Chrome, folder: Path) -> Chrome:
    requests(chrome)
    show(chrome, 1280, 900)
    chrome.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    chrome.get((folder / "report.html").as_uri())
    value(chrome, "document.getElementById('wrong')")
    return chrome


def test_labels_by_keys_are_saved_and_given_back(page: Chrome, folder: Path) -> None:
    data = json.loads(page.execute_script("return document.getElementById('data').textContent"))
    sample = data["pairs"]["sample"]
    region = page.find_element(CSS, ".labelling")
    for key in "ynjkny":
        region.send_keys(key)
    assert "Pair 5 of" in page.find_element(CSS, "#labels .summary").text
    page.find_element(CSS, "body").send_keys("y")  # keys count in that part only
    region.send_keys("s")
    value(page, "document.querySelector('#labels .summary').textContent.includes('all saved')")
    saved = folder / "labels.jsonl"
    until(lambda: saved.exists() and len(saved.read_bytes().splitlines()) == 4)
    labels = read_lines(saved)
    assert [(one["seq"], one["id"], one["wrong"]) for one in labels] == [
        (sample[n]["seq"], sample[n]["id"], wrong) for n, wrong in enumerate([False, True, True, False])
    ]
    said = run("audit", "--index", folder / "index", "--labels", saved).stdout
    assert "by 4 labels" in said and "left out" not in said


def test_texts_are_text_and_nothing_is_asked_for(page: Chrome, folder: Path) -> None:
    page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
    value(
        page, "document.querySelectorAll('#above .two').length === document.querySelectorAll('#above details').length"
    )
    assert HOSTILE in page.find_element(CSS, "#above .text").text and page.find_elements(CSS, "#above mark")
    assert page.title != "caught" and not page.find_elements(CSS, "img")
    assert [url.partition(":")[0] for url in requests(page)] == ["file"]
    blocked = page.execute_async_script("""
        const done = arguments[0];
        addEventListener('securitypolicyviolation', () => done(true));
        const script = document.createElement('script');
        script.textContent = 'document.title = "caught"';
        document.body.append(script);
        setTimeout(() => done(false), 5000);""")
    assert blocked and page.title != "caught"


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_keeps_people_out(page: Chrome, dark: bool) -> None:
    for width in (1280, 768, 390):
        show(page, width, 900, dark=dark)
        page.execute_script("for (const one of document.querySelectorAll('details')) one.open = true")
        assert page.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert violations(page, axe()) == []
