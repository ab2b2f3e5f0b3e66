"""Receivers of alerts that hang, fail, answer slowly or redirect."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from support.listening import Quiet, listening


@dataclass
class Receiver:
    """What it got, and what it answers to request number n: a status, or something that it does instead."""

    answer: Callable[[int], int | str] = lambda _: 204
    got: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""
    ended: threading.Event = field(default_factory=threading.Event)

    @property
    def keys(self) -> list[str]:
        return [headers["Idempotency-Key"] for headers, _ in self.got]


@contextmanager
def receiving(
    answer: Callable[[int], int | str] = lambda _: 204, headers: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Receiver]:
    receiver = Receiver(answer)

    class Handler(Quiet):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            receiver.got.append((dict(self.headers), body))
            does = receiver.answer(len(receiver.got) - 1)
            if does == "hang":
                receiver.ended.wait(20)
            elif does == "drip":
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not receiver.ended.wait(0.05):
                    self.wfile.write(b"x")
            elif does == "close":
                pass
            elif does == "nonsense":
                self.wfile.write(b"what is HTTP?\r\n\r\n")
            else:
                self.send_response(int(does))
                if does in (301, 302, 307, 308):
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except (BrokenPipeError, ConnectionResetError):  # a sender that had enough
                self.close_connection = True

    with listening(Handler) as receiver.url:
        try:
            yield receiver
        finally:
            receiver.ended.set()
