"""The tutorial docs/tutorials/ten-feeds.md, walked on feeds on loopback, with the service at its end."""

import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.pages import Page
from support.serving import NDJSON, Serving
from support.waiting import until

ADDRESS = "127.0.0.1:8321"


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.long
def test_the_tutorial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    listening = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(tmp_path / "feeds")))
    threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
    address = f"127.0.0.1:{listening.server_address[1]}"
    page = Page("tutorials/ten-feeds", tmp_path, capfd)
    page.blocks = [(language, body.replace(ADDRESS, address)) for language, body in page.blocks]
    try:
        page.run()
    finally:
        listening.shutdown()
        listening.server_close()
    assert page.examples >= 7
    with Serving(tmp_path / "index") as service:
        until(lambda: service.client.get("/v1/groups").status_code == 200)
        group = service.client.get("/v1/groups").json()["groups"][0]
        assert [Path(url).stem for url in group["first_sources"]] == ["wire", "herald", "gazette", "today"]
        entries = (tmp_path / "entries.jsonl").read_bytes()
        again = service.client.post("/v1/documents", content=entries, headers=NDJSON).text.splitlines()
        assert len(again) == 21 and all('"redelivered"' in line for line in again)
