"""The figures of `status` as Prometheus metrics. Workers cannot report these, least of all one that is down."""

from __future__ import annotations

import asyncio
import signal
from contextlib import AsyncExitStack, suppress

from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.kafka.client.connection import explained
from stream_lsh.kafka.run.metrics import answering
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.observer import observing
from stream_lsh.kafka.tools.status import Report, report


def metrics(found: Report) -> bytes:
    """A report in Prometheus' text format."""
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"stream_lsh_{name}", text, labels, registry=registry)

    members = gauge("role_members", "Members of the consumer group of a role.", "role")
    waiting = gauge("role_lag_documents", "Documents that wait for a role.", "role")
    seconds = gauge("role_lag_seconds", "Age of the first waiting document or record.", "role")
    left = gauge("role_retention_left_ratio", "Share of its retention that is left.", "role")
    for role in found.roles:
        members.labels(role.name).set(len(role.working) + len(role.standing_by))
        if role.unit == "document":
            waiting.labels(role.name).set(role.waiting)
        seconds.labels(role.name).set(role.seconds)
        left.labels(role.name).set(1 if role.left is None else role.left[1])
    unanswered = [shard for shard in found.shards if shard.owner is None]
    gauge("unanswered_shards", "Shards without a worker.").set(len(unanswered))
    gauge("provisional_documents", "Documents without a verdict.").set(found.provisional)
    gauge("oldest_provisional_seconds", "Age of the first document without a verdict.").set(found.oldest)
    gauge("window_limit_documents", "Limit of documents in comparison (decision_lag).").set(found.window)
    gauge("paused_seconds", "Time since the signers were paused (drain), 0 if they read.").set(found.paused or 0)
    if found.under_way is not None:
        gauge("window_documents", "Documents in comparison.").set(found.under_way)
    return generate_latest(registry)


async def exporting(settings: KafkaSettings, port: int) -> None:
    """Serve /metrics and /health until SIGTERM or SIGINT.

    Each request of /metrics makes an observation. If that fails, the status is 503 with the reason. /health answers as
    for a worker without roles. Workers are not asked: Prometheus does that itself.

    Raises:
        UsageError: the port is taken, or the host is not one of this machine.
    """
    looking = asyncio.Lock()

    async def answer(_: web.Request) -> web.Response:
        try:
            with explained(settings):
                async with looking, observing(settings, None) as observer:
                    found = report(await observer.look(), settings.decision_lag)
        except StreamLshError as error:
            return web.Response(status=503, text=f"{error}\n")
        return web.Response(body=metrics(found), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4})

    async def answer_health(_: web.Request) -> web.Response:
        return web.json_response({"live": True, "roles": {}, "ports": [port]})

    stop = asyncio.Event()
    async with AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(answering(answer_health, answer, settings.http_host, port))
        except OSError as error:
            raise UsageError(f"--serve {port} on http_host {settings.http_host} cannot be used: {error}") from None
        for number in (signal.SIGTERM, signal.SIGINT):
            with suppress(NotImplementedError):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await stop.wait()
