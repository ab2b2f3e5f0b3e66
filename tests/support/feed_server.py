"""A server of web feeds on loopback, which does what a test says."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler

from support.listening import Quiet, listening

Does = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FeedServer:
    """answers: what is done for a path. got: the path and headers of each request. most: requests at the same time."""

    url: str = ""
    answers: dict[str, Does] = field(default_factory=dict)
    got: list[tuple[str, Message]] = field(default_factory=list)
    now: int = 0
    most: int = 0
    ended: threading.Event = field(default_factory=threading.Event)

    def shows(self, path: str, data: bytes, status: int = 200, **headers: str) -> str:
        """Have a path answer so, with headers as etag="x" or retry_after="1". Returns its URL."""
        self.answers[path] = lambda handler: send(handler, status, data, headers)
        return self.url + path


def send(handler: BaseHTTPRequestHandler, status: int, data: bytes, headers: Mapping[str, str]) -> None:
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(data)))
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    handler.wfile.write(data)


@contextmanager
def serving_feeds() -> Iterator[FeedServer]:
    server, lock = FeedServer(), threading.Lock()

    class Handler(Quiet):
        def do_GET(self) -> None:
            with lock:
                server.got.append((self.path, self.headers))
                server.now += 1
                server.most = max(server.most, server.now)
            try:
                server.answers[self.path](self)
            except (BrokenPipeError, ConnectionResetError):  # a reader that had enough
                self.close_connection = True
            finally:
                with lock:
                    server.now -= 1

    with listening(Handler) as server.url:
        try:
            yield server
        finally:
            server.ended.set()


def rss(*items: str, head: str = "") -> bytes:
    """An RSS file with these items."""
    return (
        f'<?xml version="1.0" encoding="utf-8"?>{head}<rss version="2.0"><channel><title>News</title>'
        + "".join(f"<item>{item}</item>" for item in items) + "</channel></rss>"
    ).encode()  # fmt: skip


def item(number: int, text: str | None = None, day: int = 1) -> str:
    """An item: it has an id, a link, a title, a text and a date."""
    body = text if text is not None else f"The council of town {number} votes on the bridge over the river {number}."
    return (
        f"<guid>n{number}</guid><link>https://news.example/{number}</link><title>Story {number}</title>"
        f"<description>{body}</description><pubDate>Thu, {day:02} Oct 2026 10:00:00 GMT</pubDate>"
    )
