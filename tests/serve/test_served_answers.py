"""A service answers as `dedup` over the order of its numbers, many clients too; answers survive `kill -9`."""

import json
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.raw_clients import serving
from support.serving import JSON, NDJSON, Serving
from support.waiting import PATIENCE

from stream_lsh.demo.feed import feed_lines
from stream_lsh.embedded.job import Job
from stream_lsh.settings.model import Settings

OPTIONS = ("--text-field", "title", "--text-field", "text")
CLIENTS = 50
Line = tuple[bytes, dict[str, Any]]


def dedup(lines: Sequence[bytes], folder: Path, keep: str = "first") -> list[dict[str, Any]]:
    """The verdicts of `dedup` on a feed."""
    folder.mkdir()
    (folder / "feed.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    verdicts = folder / "verdicts.jsonl"
    settings = Settings.model_validate({"text_field": ("title", "text"), "keep": keep})
    Job(settings, [str(folder / "feed.jsonl")], {"verdicts": str(verdicts)}, folder / "index").run()
    return [json.loads(line) for line in verdicts.read_text().splitlines()]


def said(answer: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The number that a document has in the log, and what of its answer must be in the verdict of `dedup`."""
    kept = {name: value for name, value in answer.items() if name not in ("reason", "detail", "redelivered")}
    if "redelivered" not in answer:
        return answer["seq"], kept
    kept |= {"kind": "redelivered", "first_kind": kept["kind"], "seq": answer["redelivered"]}
    return answer["redelivered"], kept


def clients(url: str, lines: Sequence[bytes], after: Callable[[int], None] = lambda _: None) -> list[Line]:
    """Send documents one by one from many clients at once: those that were answered, with their answers. after: called
    with how many were answered so far."""
    answered: list[Line] = []
    waiting = iter(lines)
    lock = threading.Lock()

    def work() -> None:
        with httpx.Client(base_url=url, timeout=PATIENCE) as client:
            while True:
                with lock:
                    line = next(waiting, None)
                if line is None:
                    return
                try:
                    answer = client.post("/v1/documents", headers=JSON, content=line)
                except httpx.TransportError:  # it was killed
                    return
                found = answer.json()
                with lock:
                    answered.append((line, found.get("verdict", found)))
                    after(len(answered))

    threads = [threading.Thread(target=work) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answered


@pytest.mark.parametrize("keep", ["first", pytest.param("newest", marks=pytest.mark.long)])
async def test_lines_are_answered_as_dedup_answers_them(tmp_path: Path, keep: str) -> None:
    lines = [line.rstrip(b"\n") for line in feed_lines(1500, 5)]
    async with (
        serving(tmp_path, text_field=("title", "text"), keep=keep) as (port, _),
        httpx.AsyncClient(timeout=PATIENCE) as client,
    ):
        url = f"http://127.0.0.1:{port}/v1/documents"
        answer = await client.post(url, headers=NDJSON, content=b"\n".join(lines))
    found = [said(json.loads(line)) for line in answer.text.splitlines()]
    verdicts = dedup(lines, tmp_path / "dedup", keep)
    assert any("supersedes" in verdict for _, verdict in found) is (keep == "newest")
    assert [seq for seq, _ in found] == list(range(len(lines)))
    assert [verdict for _, verdict in found] == verdicts


@pytest.mark.long
def test_many_clients_are_answered_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    lines = [line.rstrip(b"\n") for line in feed_lines(1500, 6)]
    with Serving(tmp_path / "index", *OPTIONS) as serving:
        answered = clients(serving.url, lines)
    order = {said(answer)[0]: (line, said(answer)[1]) for line, answer in answered}
    assert sorted(order) == list(range(len(lines)))
    ordered = [order[seq] for seq in range(len(lines))]
    assert dedup([line for line, _ in ordered], tmp_path / "dedup") == [verdict for _, verdict in ordered]


@pytest.mark.long
def test_what_was_answered_survives_a_kill(tmp_path: Path) -> None:
    lines = [line.rstrip(b"\n") for line in feed_lines(1500, 7)]
    serving = Serving(tmp_path / "index", *OPTIONS)

    def kill(count: int) -> None:
        if count == 600:
            serving.process.send_signal(signal.SIGKILL)

    with serving:
        answered = clients(serving.url, lines, kill)
        serving.stop(signal.SIGKILL)
        assert 600 <= len(answered) < len(lines)
        serving.start()
        for line, before in answered:
            again = serving.client.post("/v1/documents", headers=JSON, content=line).json()
            again = again.get("verdict", again)
            if before["kind"] == "rejected":
                assert again["kind"] == "rejected"
            else:
                kept = {name: before[name] for name in ("seq", "kind", "duplicate_of", "similarity", "group")}
                assert kept.items() <= again.items() and "redelivered" in again
