"""The receivers of a service's alerts."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from stream_lsh.alerts.receivers import Receiver, variable
from stream_lsh.embedded.alert_journal import AlertJournal
from stream_lsh.embedded.backups import WEBHOOKS
from stream_lsh.embedded.webhook import Webhook
from stream_lsh.errors import OutputError, UsageError
from stream_lsh.serve.problems import Problem
from stream_lsh.serve.sender import Sender


class Webhooks:
    """All receivers, from `start` to `stop`. Used in the event loop.

    Args:
        journal: that of the index. It is another one after the disk was full. folder: of the index.

    Raises:
        UsageError: an address cannot be used, or an environment variable is missing.
        StoreError: a state is damaged. OutputError: it cannot be written.
    """

    def __init__(self, receivers: Sequence[Receiver], journal: Callable[[], AlertJournal], folder: Path) -> None:
        # Two for each: a test does not wait for an alert.
        self._pool = ThreadPoolExecutor(2 * len(receivers), thread_name_prefix="webhook")
        try:
            (folder / WEBHOOKS).mkdir(exist_ok=True)
        except OSError as error:
            raise OutputError(f"cannot make {folder / WEBHOOKS}: {error.strerror}") from None
        self._senders = {
            receiver.name: Sender(
                receiver, webhook_of(receiver), journal, folder / WEBHOOKS / f"{receiver.name}.json", self._pool
            )
            for receiver in receivers
        }
        self._tasks: list[asyncio.Task[None]] = []

    def measure(self, registry: CollectorRegistry) -> None:
        """Add metrics of each receiver."""
        waiting = Gauge(
            "stream_lsh_serve_webhook_waiting_alerts", "Alerts that are not sent yet.", ("webhook",), registry=registry
        )
        dead = Gauge(
            "stream_lsh_serve_webhook_dead_letters", "Alerts that were not accepted.", ("webhook",), registry=registry
        )
        for name, sender in self._senders.items():
            waiting.labels(name).set_function(partial(getattr, sender, "waiting"))
            dead.labels(name).set_function(partial(getattr, sender, "dead_letters"))

    def start(self) -> None:
        self._tasks = [asyncio.create_task(sender.run()) for sender in self._senders.values()]

    def wake(self) -> None:
        """There are new alerts."""
        for sender in self._senders.values():
            sender.wake()

    async def stop(self) -> None:
        """Send nothing more. An alert whose answer is not there yet is sent again after the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._pool.shutdown(wait=False, cancel_futures=True)

    @property
    def described(self) -> list[dict[str, Any]]:
        return [sender.described for sender in self._senders.values()]

    async def test(self, name: str | None) -> list[dict[str, Any]]:
        """Send a test alert to one receiver or all, once; their answers. Raises Problem if there is no such one."""
        body = {
            "key": f"test-{secrets.token_hex(8)}", "rule": "test", "kind": "test", "time": int(1000 * time.time()),
            "seq": None, "id": None, "source": None, "group": None,
        }  # fmt: skip
        line, loop = json.dumps(body, separators=(",", ":")).encode(), asyncio.get_running_loop()
        senders = list(self._senders.values()) if name is None else [self._sender(name, "webhook")]
        answers = await asyncio.gather(
            *(loop.run_in_executor(self._pool, sender.webhook.post, line, str(body["key"])) for sender in senders)
        )
        return [
            {"name": sender.receiver.name, "taken": answer.taken, "said": answer.said}
            for sender, answer in zip(senders, answers, strict=True)
        ]

    async def resend(self, name: str) -> int:
        """Send the dead letters of a receiver again; how many. Raises Problem if there is no such receiver, and
        OutputError."""
        return await self._sender(name, "name").resend()

    def _sender(self, name: str, field: str) -> Sender:
        if name not in self._senders:
            why = f"there is no webhook {name[:80]!r}; there are {', '.join(self._senders)}"
            raise Problem(404, why, code="unknown_webhook", field=field)
        return self._senders[name]


def webhook_of(receiver: Receiver) -> Webhook:
    """The address and secret of a receiver. Raises UsageError."""
    where = f"webhook {receiver.name}: "
    url, secret = receiver.url, None
    if (name := receiver.url_env) is not None:
        url = variable(f"{where}url_env = {name!r}", name)
    if (name := receiver.secret_env) is not None:
        secret = variable(f"{where}secret_env = {name!r}", name).encode()
    try:
        return Webhook(str(url), secret, receiver.timeout)
    except UsageError as error:
        raise UsageError(f"{where}{error}") from None
