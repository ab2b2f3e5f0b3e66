"""What somebody does with the page all day: rows that hold still, filters, addresses, timelines, comparisons."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from support.browsing import CSS, ENTER, ID, clear, go, instead, open_row, point_at, row, state, wait_for_row
from support.serving import Serving

from bench.browser import show, value

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.long
OPTIONS = ("--text-field", "title", "--text-field", "body", "--source-field", "from", "--time-field", "ts")
NOON = 1_700_000_000
WAITING = "document.querySelector('#more-pairs:not([hidden])')?.textContent === 'Show 1 new row'"
BODY = (
    "The council of {0} has voted for the new bridge over the river. Work begins in spring and takes two years. The "
    "mayor of {0} says so, and the papers of {0} say so too, as all who live there have known for months. What {0} "
    "pays for it was not said; an engineer of the state expects forty million, and a vote on the money for the ramps "
    "follows in the autumn, when the budget of {0} is due and the ferry that it replaces has its last season."
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("reading") / "index", *OPTIONS) as it:
        yield it


@pytest.fixture
def page(chrome: Chrome, served: Serving) -> Chrome:
    """The page, open and listening, with the mouse away from its rows. Nothing is seen yet."""
    chrome.get("about:blank")
    show(chrome, 1280, 900)
    point_at(chrome, 1, 1)
    chrome.get(served.url)
    chrome.execute_script("localStorage.clear()")
    chrome.refresh()
    state(chrome, "live")
    return chrome


def article(id: str | int, town: str, title: str = "", source: str = "agency", minute: int = 0) -> dict[str, Any]:
    return {
        "id": id, "title": title or f"Bridge for {town}", "body": BODY.format(town), "from": source,
        "ts": NOON + 60 * minute,
    }  # fmt: skip


def pair(served: Serving, town: str, id: str | int | None = None) -> str | int:
    """Add an article and a copy of it; the id of the copy."""
    copy = f"{town}-2" if id is None else id
    served.add(article(f"{town}-1", town))
    edited = article(copy, town, f"A bridge at last for {town}", f"{town}-post", 5)
    served.add({**edited, "body": edited["body"].replace("two years", "ten winters")})
    return copy


def shown(driver: Chrome) -> list[str]:
    """The headlines of the rows that are shown."""
    return [one.text for one in driver.find_elements(CSS, "#pairs li:not([hidden]) .title")]


def test_rows_have_headline_source_time_and_similarity(page: Chrome, served: Serving) -> None:
    id = pair(served, "Rowan")
    wait_for_row(page, id)
    value(page, f"{row(id)}.querySelector('.of b')")
    text = page.execute_script(f"return {row(id)}.innerText").replace("\n", " ")
    assert "A bridge at last for Rowan" in text and "Rowan-post" in text and "14 Nov 2023" in text
    assert "Like Bridge for Rowan" in text and "agency" in text and " %" in text and "Rowan-2" not in text


def test_rows_appear_with_their_headlines(page: Chrome, served: Serving) -> None:
    script = """
    window.first = [];
    const look = (row) => window.first.push(row.querySelector(".title").textContent);
    new MutationObserver((changes) => changes.forEach(({ addedNodes }) => addedNodes.forEach(look)))
      .observe(document.getElementById("pairs"), { childList: true });
    """
    page.execute_script(script)
    wait_for_row(page, pair(served, "Swift"))
    first = page.execute_script("return window.first")
    assert "A bridge at last for Swift" in first and "Swift-2" not in first


def test_ids_beyond_53_bits_stay_exact(page: Chrome, served: Serving) -> None:
    big = 2**63 + 7
    pair(served, "Large", big)
    value(page, f"[...document.querySelectorAll('#pairs li')].some((li) => li.dataset.id === '{big}')")
    link = f"[...document.querySelectorAll('#pairs li')].find((li) => li.dataset.id === '{big}').querySelector('a')"
    value(page, f"{link}.textContent === 'A bridge at last for Large'")
    page.execute_script(f"{link}.click()")
    value(page, f"[...document.querySelectorAll('#compare-body code')].some((one) => one.textContent === '{big}')")


def test_rows_are_filtered_and_the_address_keeps_the_filter(page: Chrome, served: Serving) -> None:
    for town in ("Filey", "Filton"):
        wait_for_row(page, pair(served, town))
    page.find_element(ID, "filter-q").send_keys("last filey")
    value(page, "document.querySelectorAll('#pairs li:not([hidden])').length === 1")
    assert shown(page) == ["A bridge at last for Filey"]
    page.refresh()
    value(page, "document.querySelectorAll('#pairs li:not([hidden])').length === 1")
    assert shown(page) == ["A bridge at last for Filey"]
    page.find_element(ID, "filter-q").clear()
    go(page, "#/?source=Filton-post")
    value(page, "document.querySelectorAll('#pairs li:not([hidden])').length === 1")
    assert shown(page) == ["A bridge at last for Filton"]
    go(page, "#/?min=100")
    value(page, "!document.getElementById('no-matching').hidden")


def test_search_and_older_rows_find_what_is_not_loaded(page: Chrome, served: Serving) -> None:
    id = pair(served, "Farne")
    crowd = BODY.format("Crowdham")
    served.add_all({**article(f"crowd-{n}", "Crowdham"), "body": crowd + " x" * n} for n in range(150))
    page.refresh()
    wait_for_row(page, "crowd-149")
    assert not page.execute_script(f"return {row(id)}")
    page.find_element(ID, "filter-q").send_keys("LAST farne")
    wait_for_row(page, id)
    assert shown(page) == ["A bridge at last for Farne"] and "q=LAST+farne" in page.current_url
    pair(served, "Unwanted")
    pair(served, "Farnett")
    value(page, "document.querySelectorAll('#pairs li').length === 2")
    assert shown(page) == ["A bridge at last for Farnett", "A bridge at last for Farne"]
    go(page, "#/")
    value(page, "document.querySelectorAll('#pairs li').length > 100")
    value(page, "!document.getElementById('older-pairs').disabled")
    page.execute_script("document.getElementById('older-pairs').click()")
    wait_for_row(page, id)
    go(page, "#/groups?q=bridge+farnett")
    value(page, "document.querySelectorAll('#groups li').length === 1")
    go(page, "#/groups?min=100")
    value(page, "!document.getElementById('no-groups').hidden")


def test_rows_stay_under_the_mouse_and_while_paused(page: Chrome, served: Serving) -> None:
    wait_for_row(page, pair(served, "Still"))
    box = page.execute_script("return document.querySelector('#pairs li').getBoundingClientRect()")
    under = "document.elementFromPoint(arguments[0], arguments[1]).closest('li').dataset.id"
    x, y = box["left"] + 40, box["top"] + 10
    point_at(page, x, y)
    new = pair(served, "Stiller")
    value(page, WAITING)
    assert page.execute_script(f"return {under}", x, y) == '"Still-2"'
    point_at(page, 1, 1)  # the mouse leaves
    wait_for_row(page, new)
    page.execute_script("document.getElementById('pause').click()")
    newer = pair(served, "Stillest")
    value(page, WAITING)
    page.execute_script("document.getElementById('more-pairs').click()")
    wait_for_row(page, newer)


def test_back_returns_to_the_row(page: Chrome, served: Serving) -> None:
    for n in range(12):
        wait_for_row(page, pair(served, f"Back{n}"))
    page.execute_script("scrollTo(0, 300)")
    open_row(page, "Back3-2")
    page.refresh()
    value(page, "document.querySelectorAll('#compare-body .text').length === 2")  # the view has an address
    go(page, "#/")
    wait_for_row(page, "Back3-2")
    value(page, "[...document.querySelectorAll('#pairs li')].every((li) => li.querySelector('.meta b'))")
    page.execute_script("scrollTo(0, 300)")
    open_row(page, "Back3-2")
    page.back()
    value(page, f"document.activeElement === {row('Back3-2')}.querySelector('a') && scrollY === 300")


def test_seen_rows_are_remembered(page: Chrome, served: Serving) -> None:
    id = pair(served, "Seen")
    open_row(page, id)
    page.refresh()
    go(page, "#/")
    value(page, f"{row(id)}?.classList.contains('is-seen')")
    go(page, "#/?unseen=1")
    value(page, f"{row(id)}.hidden")


def test_differences_are_marked_and_stepped_through(page: Chrome, served: Serving) -> None:
    long = [f"Paragraph {n} of the long report says {n * 7} things about {n * 13} matters." for n in range(80)]
    changed = list(long)
    changed[2] = changed[2].replace("things", "curious things")
    changed[70] = changed[70].replace("matters", "affairs")
    for id, title, lines in (("long-1", "A long report", long), ("long-2", "A longer report", changed)):
        served.add({"id": id, "title": title, "body": "\n\n".join(lines), "from": "agency", "ts": NOON})
    open_row(page, "long-2")
    marks = [mark.text for mark in page.find_elements(CSS, "#compare-body mark")]
    assert marks == ["A long", "matters", "A longer", "curious", "affairs"]
    said = page.find_element(ID, "view-compare").text
    assert "960 of 963 words of the first text" in said and "shingles" not in said
    assert page.find_element(CSS, "#compare-body article h2").text == "A long report"
    page.switch_to.active_element.send_keys("nn")
    assert page.find_element(ID, "step-count").text == "difference 2 of 2"
    tops = "[...document.querySelectorAll('#compare-body .text')].map((one) => one.scrollTop)"
    heights = "[...document.querySelectorAll('mark.current')].map((one) => Math.round(one.getBoundingClientRect().top))"
    one, other = page.execute_script(f"return {heights}")
    assert one == other and min(page.execute_script(f"return {tops}")) > 1000
    page.execute_script("setTimeout(() => document.querySelector('#compare-body .text').scrollTo(0, 0), 400)")
    value(page, f"Math.max(...{tops}) < 5")  # the other one follows


def test_a_group_is_a_timeline_from_its_first_source_on(page: Chrome, served: Serving) -> None:
    served.add(article("Time-1", "Time", source="agency", minute=60))
    for n, source in enumerate(("herald", "radio"), 2):
        served.add(article(f"Time-{n}", "Time", f"Time and again {n}", source, 60 + 45 * n))
    served.add(article("Time-4", "Time", "It arrives late and was first", "gazette", 10))
    (group,) = [
        one["group"]
        for one in served.client.get("/v1/groups?order=newest").json()["groups"]
        if one["representative"]["id"] == "Time-1"
    ]
    for order in ("growing", "newest", "largest"):
        go(page, f"#/groups?order={order}")
        value(page, f"document.querySelector('#groups [data-group=\"{group}\"]')?.textContent.includes('4 members')")
    page.execute_script(f"document.querySelector('#groups [data-group=\"{group}\"] a').click()")
    value(page, "document.querySelector('.timeline .first a')?.textContent === 'It arrives late and was first'")
    entries = [one.text.replace("\n", " ") for one in page.find_elements(CSS, ".timeline li")]
    assert "gazette" in entries[0] and "first" in entries[0]
    assert [entry.split(" 2023, ")[1].split(" ", 1)[1][:6] for entry in entries[1:]] == ["+50 mi", "+2 h 2", "+3 h 5"]
    said = page.find_element(ID, "view-group").text
    assert "4 members · 4 sources · spread within 3 h 5 min" in said and "representative" in said
    served.add(article("Time-5", "Time", "The group grows while it is read", "radio", 300))
    value(page, "!document.getElementById('more-members').hidden")
    page.execute_script("document.getElementById('more-members').click()")
    value(page, "document.querySelectorAll('.timeline li').length === 5")
    page.find_element(CSS, ".timeline li:nth-child(3) a").click()
    value(page, "document.querySelectorAll('#compare-body .text').length === 2")
    assert [one.text for one in page.find_elements(CSS, ".order")] == ["First", "Later, by 1 h 30 min"]
    assert page.find_element(CSS, "nav [aria-current]").text == "Groups" and "Time and again 2" in page.title
    page.find_element(ID, "compare-group").click()
    value(page, "document.querySelectorAll('.timeline li').length === 5")


def test_rows_are_worked_through_by_keys(page: Chrome, served: Serving) -> None:
    for id in (pair(served, "Keyone"), pair(served, "Keytwo")):
        wait_for_row(page, id)
    body = page.find_element(CSS, "body")
    headline = "document.querySelector('#compare-body article:last-child h2')?.textContent.trim()"
    body.send_keys("j")  # before anything has the focus
    page.switch_to.active_element.send_keys("m")
    value(page, f"{row('Keytwo-2')}.classList.contains('is-seen')")
    page.switch_to.active_element.send_keys("m", ENTER)
    value(page, f"{headline} === 'A bridge at last for Keytwo'")
    page.execute_script("document.activeElement.blur()")
    body.send_keys("j")
    value(page, f"{headline} === 'A bridge at last for Keyone'")
    body.send_keys("k")
    value(page, f"{headline} === 'A bridge at last for Keytwo' && document.getElementById('newer-row').hidden")
    assert page.title.endswith("A bridge at last for Keytwo – stream_lsh")
    go(page, "#/")
    value(page, f"{row('Keyone-2')}.classList.contains('is-seen')")


def test_the_title_counts_unseen_rows(page: Chrome, served: Serving) -> None:
    look = "Object.defineProperty(document, 'hidden', {value: %s, configurable: true});"
    wait_for_row(page, pair(served, "Seenham"))  # the rows before it do not count
    page.execute_script(look % "true")
    pair(served, "Hidden")
    value(page, "document.title === '(1) Duplicates – stream_lsh'")
    page.execute_script(look % "false" + "document.dispatchEvent(new Event('visibilitychange'))")
    value(page, "document.title === 'Duplicates – stream_lsh'")


def test_a_search_that_failed_is_repeated(page: Chrome, served: Serving) -> None:
    id = pair(served, "Nettham")
    added = instead(page, {"v1/pairs": (0, {})})
    try:
        page.refresh()
        go(page, "#/?q=nettham")
        value(page, "document.getElementById('search-problem').textContent.startsWith('The service cannot be reached')")
        assert not page.find_element(ID, "no-matching").is_displayed()
        page.execute_script("window.answers = {}")
        wait_for_row(page, id)
        page.find_element(ID, "no-filters").click()
        value(page, "document.getElementById('no-filters').hidden && document.querySelector('#pairs li')")
    finally:
        clear(page, added)


def stats(**seconds: Any) -> dict[str, Any]:
    """Statistics of a service with one second of work."""
    kinds = dict.fromkeys(
        ("unique", "near_duplicate", "exact_duplicate", "redelivered", "rejected", "deleted", "outdated"), 0
    )
    return {
        "index": {
            "documents": 1, "next_seq": 1, "stream_time": None, "jumps": 0, "bytes": 1, "checks": True, "texts": True,
            "groups": True, "settings": {"text_field": ["text"], "id_field": "id", "threshold": 0.8},
        },
        "service": {
            "waiting": 0, "started": "2026-11-26T10:00:00+00:00", "now": "2026-11-26T10:05:00+00:00", "listeners": 1,
            "limits": {"waiting_documents": 20000},
        },
        "totals": {
            "documents": 1, "kinds": kinds, "rejected": {}, "pairs": 0, "truncated": 0, "not_compared": 3,
            "replaced": 0, "group_events": 0, "alerts": 0, "refused_requests": 7,
        },
        "seconds": [{"at": 1_795_687_490, "kinds": {}, "p50_ms": 5, "p99_ms": 10, "max_ms": 10, **seconds}],
    }  # fmt: skip


def problem(status: int, detail: str, **more: str) -> tuple[int, Any]:
    return status, {"title": "", "status": status, "detail": detail, **more}


@pytest.fixture
def told(chrome: Chrome, served: Serving) -> Iterator[Chrome]:
    """A page that gets answers which the test gives, and no stream of events."""
    chrome.get("about:blank")
    identifier = instead(chrome, {"v1/stats": (200, stats()), "v1/events": (0, None)})
    chrome.get(served.url + "#/service")
    value(chrome, "document.querySelector('#tiles dd')")
    yield chrome
    clear(chrome, identifier)


def test_it_says_why_it_is_not_live(told: Chrome) -> None:
    for answer, word, said in (
        (problem(429, "20,000 documents wait"), "overloaded", "20,000 documents wait."),
        (problem(503, "it opens its index", health="starting"), "starting", "it opens its index."),
        (problem(403, "the token does not have the scope 'read'"), "refused", "the scope 'read'."),
        ((0, None), "gone", "cannot be reached"),
    ):
        told.execute_script("window.answers['v1/events'] = arguments[0]", answer)
        state(told, word)
        assert said in told.find_element(ID, "why-text").text


def test_old_numbers_look_old(told: Chrome) -> None:
    assert not told.find_element(ID, "as-of").is_displayed()
    told.execute_script("window.answers['v1/stats'] = [503, {detail: 'it does not answer'}]")
    value(told, "document.body.classList.contains('stale') && !document.getElementById('as-of').hidden")
    assert told.find_element(ID, "as-of").text.startswith("These numbers are old")
    told.execute_script("window.answers['v1/stats'] = [200, arguments[0]]", stats())
    value(told, "document.getElementById('as-of').hidden")


def test_latency_is_the_true_maximum_and_limits_that_were_met_are_named(told: Chrome) -> None:
    told.execute_script(
        "window.answers['v1/stats'] = [200, arguments[0]]", stats(p50_ms=7500, p99_ms=7500, max_ms=7512.3)
    )
    value(told, "document.getElementById('tiles').textContent.includes('7.5 s')")
    told.execute_script("window.answers['v1/stats'] = [200, arguments[0]]", {**stats(), "seconds": []})
    value(told, "document.getElementById('tiles').textContent.includes('slowest answer–')")
    met = told.find_element(ID, "limits").text
    assert "7\nRequests refused" in met and "3\nCandidates not compared" in met and "rejected" not in met


def test_a_hidden_tab_does_not_grow(told: Chrome) -> None:
    script = """
    const done = arguments[0];
    import("./page/rows.js").then(({ Rows }) => {
      const [list, more] = [document.createElement("ol"), document.createElement("button")];
      const rows = new Rows({ list, more, most: 50, element: () => document.createElement("li") });
      for (let i = 0; i < 5000; i += 1) rows.add(i);
      done(rows.size);
    });
    """
    assert told.execute_async_script(script) == 50


def test_words_that_recur_do_not_shift_what_belongs_together(told: Chrome) -> None:
    script = """
    const done = arguments[0], one = "Yes yes yes yes. A dog ran far away, yes yes yes.", other = "A Dog ran far away.";
    import("./page/alignment.js").then(({ align }) => done(align(one, other)));
    """
    assert told.execute_async_script(script) == [[17, 19, 23, 27, 31], [0, 2, 6, 10, 14]]
