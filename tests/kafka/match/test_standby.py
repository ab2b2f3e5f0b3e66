"""A member that stands by, without a partition: it is healthy while the brokers answer it, and not a moment longer."""

import asyncio
import pkgutil
import time
from pathlib import Path

import pytest
from support.kafka.brokers import settings_for
from support.kafka.proxy import Proxied, Proxy
from support.kafka.stages import running, until
from support.long_form import rotating

from stream_lsh.errors import BrokerError
from stream_lsh.kafka.consumer import group_member
from stream_lsh.kafka.run.metrics import Probe
from stream_lsh.kafka.run.process import STAGES
from stream_lsh.kafka.tools.topics import create

pytestmark = pytest.mark.long


@pytest.fixture
def proxy(proxied: Proxied) -> Proxy:
    return proxied.proxies[1]


@pytest.mark.parametrize("role", rotating(["judge", "forward"], 1))
async def test_who_stands_by_notices_that_the_brokers_are_away(
    proxied: Proxied, proxy: Proxy, prefix: str, tmp_path: Path, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_member, "SILENCE", 2.0)
    monkeypatch.setattr(group_member, "SESSIONS", 0.0)
    monkeypatch.setattr(group_member, "RECENT", 0.5)
    settings = settings_for(proxied.broker, prefix, tmp_path, partitions=1, session_timeout_ms=6000)
    behind = settings.model_copy(update={"bootstrap_servers": f"127.0.0.1:{proxy.port}", "give_up_seconds": 3})
    stage, working, probe = pkgutil.resolve_name(STAGES[role]), Probe(role), Probe(role)

    async def idle(probe: Probe, since: float) -> bool:
        return (probe.last_idle or 0) > since

    await create(settings)
    async with running(stage, settings, working):
        await until(lambda: idle(working, 0), "one works")
        with pytest.raises(BrokerError, match="Given up"):
            async with running(stage, behind, probe) as task:
                await until(lambda: idle(probe, 0), "the other stands by")
                await until(lambda: idle(probe, time.monotonic() - 0.1), "it goes on doing so")
                proxy.freeze()
                frozen = time.monotonic()
                await asyncio.wait_for(task, 60)
        assert probe.last_idle is not None and probe.last_idle < frozen + 1
        assert await idle(working, frozen + 1)
