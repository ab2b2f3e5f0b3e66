"""Alive is who has committed, or had nothing to do, within a minute: asked over real HTTP."""

import asyncio
import json
import urllib.error
import urllib.request

from stream_lsh.kafka.run.health import LIVE_SECONDS, Health
from stream_lsh.kafka.run.metrics import Probe, Registry, served


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def get(port: int, path: str) -> tuple[int, str, bytes]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=20) as answer:
            return answer.status, answer.headers["Content-Type"], answer.read()
    except urllib.error.HTTPError as answer:
        return answer.code, answer.headers["Content-Type"], answer.read()


async def test_over_http() -> None:
    clock = Clock()
    health, registry = Health(clock), Registry()
    sign, judge = Probe("sign", registry, health), Probe("judge", registry, health)
    async with served(health, registry, "127.0.0.1", 0) as port:
        status, kind, body = await asyncio.to_thread(get, port, "/health")
        assert status == 200 and kind.startswith("application/json")
        assert json.loads(body)["roles"]["sign"] == {
            "live": True,
            "seconds_since": {"started": 0, "committed": None, "idle": None},
        }
        clock.now += LIVE_SECONDS - 1
        sign.committed()
        clock.now += 2
        status, _, body = await asyncio.to_thread(get, port, "/health")
        found = json.loads(body)
        assert status == 503 and not found["live"]
        assert found["roles"]["sign"]["live"] and not found["roles"]["judge"]["live"]
        assert found["roles"]["sign"]["seconds_since"]["committed"] == 2
        judge.idle()
        assert (await asyncio.to_thread(get, port, "/health"))[0] == 200
        clock.now += LIVE_SECONDS + 1
        assert (await asyncio.to_thread(get, port, "/health"))[0] == 503
        status, kind, body = await asyncio.to_thread(get, port, "/metrics")
        assert status == 200 and kind.startswith("text/plain") and b"stream_lsh_documents_total" in body
        assert (await asyncio.to_thread(get, port, "/"))[0] == 404
