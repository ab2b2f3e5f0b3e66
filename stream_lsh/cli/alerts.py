"""`stream-lsh alerts test|send|resend`: the alerts that rules would have raised, and sending alerts."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from stream_lsh.cli.extra import require_kafka
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Command, Group
from stream_lsh.cli.options import (
    KAFKA,
    KAFKA_SECTIONS,
    PATH,
    Number,
    config_of,
    index_option,
    json_option,
    load_settings,
    option,
    quiet_option,
    settings_options,
)
from stream_lsh.documents.times import moment
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

if TYPE_CHECKING:
    from stream_lsh.embedded.rehearsal import Rehearsed
    from stream_lsh.embedded.sending import Courier

COMPRESSED = (".gz", ".xz", ".zst")
TEST_EXAMPLES = """
stream-lsh alerts test rules.toml --index index
stream-lsh alerts test rules.toml --index index --json | jq -r .rule | sort | uniq -c
"""
SEND_EXAMPLES = """
stream-lsh alerts send alerts.jsonl --url https://hooks.example.org/copies --secret-env HOOK_SECRET
stream-lsh alerts send alerts.jsonl --url-env HOOK_URL --position hook.sent --until-end
stream-lsh alerts send --url-env HOOK_URL --topic-prefix news --receiver desk
"""
RESEND_EXAMPLES = """
stream-lsh alerts resend desk --index index
"""
RECEIVER = "webhook"
SENDING = "Sending"
NOT_KNOWN = (
    "this test reads only what the index stores, so a run can raise slightly different alerts. "
    "`stream-lsh alerts test --help-all` lists the differences."
)


def _receiver(_: click.Context, __: click.Parameter, name: str | None) -> str | None:
    if name is not None and re.fullmatch(r"[A-Za-z0-9._-]{1,40}", name) is None:
        raise UsageError(f"--receiver {name!r}: up to 40 letters, digits, dots, underscores and hyphens")
    return name


@click.group(
    cls=Group,
    examples=TEST_EXAMPLES + SEND_EXAMPLES + RESEND_EXAMPLES,
    help="Try the rules of alerts on an index, or send alerts to a receiver.",
)
def alerts() -> None:
    pass


@alerts.command(
    cls=Command,
    examples=TEST_EXAMPLES,
    help="""Show the alerts that rules would have made for the documents of an index. The index must keep groups, and
does not change. Another process may be writing to it.

The command uses what the index stores, so three things differ. Stream time is made without redelivered and rejected
documents and without --max-future. `group` is only a number. The id of a kept document without copies is null.

The alerts are sentences on a terminal, and JSON lines elsewhere.""",
    params=[
        index_option(required=True),
        json_option(),
        quiet_option(),
    ],
)
@click.argument("rules", type=PATH)
def test(rules: Path, folder: Path, as_json: bool, quiet: bool) -> None:
    from stream_lsh.alerts.rules import read_rules

    found = read_rules(rules)
    from stream_lsh.embedded.rehearsal import rehearse  # here, because it takes RocksDB with it

    rehearsed = rehearse(folder, found)
    lines = as_json or not sys.stdout.isatty()
    for alert in rehearsed.alerts:
        click.echo(alert.line if lines else sentence(alert), nl=not lines)
    if not quiet:
        forgotten = f"; {count(rehearsed.forgotten, 'time')} a rule had no room for a group or a source"
        documents = count(rehearsed.documents, "document")
        complain(f"{count(len(rehearsed.alerts), 'alert')} in {documents}{forgotten if rehearsed.forgotten else ''}")
        complain(NOT_KNOWN)


@alerts.command(
    cls=Command,
    examples=SEND_EXAMPLES,
    help="""Send alerts to a receiver as they are written, until Ctrl-C: those of a file that `dedup --alerts` writes,
or without a file those of a pipeline on Kafka. Each is a POST of the line as JSON, one after the other.

The position is in --position, or on Kafka in the consumer group PREFIX.send-RECEIVER. The writer of the alerts does
not wait for the receiver.

Each alert is sent at least once. The header Idempotency-Key has its key. With --secret-env the header
X-Stream-Lsh-Signature has the time of sending, and the HMAC of time and body. After a failure the alert is sent again
in 1, 2, 4 ... 300 seconds or after Retry-After, up to --attempts times. A refused alert is not sent again: redirects,
and 400 to 499 except 408, 425 and 429. In the end the alert is a dead letter, and the next one is sent.""",
    params=[
        option(SENDING, "--url URL", "address of the receiver"),
        option(SENDING, "--url-env NAME", "environment variable with a secret URL"),
        option(
            SENDING, "--secret-env NAME",
            "environment variable with the secret that signs the alerts; default: they are not signed",
        ),
        option(
            SENDING, "--position FILE", "file with the position in ALERTS, one for each receiver  [ALERTS.sent]", PATH
        ),
        option(
            SENDING, "--receiver NAME",
            f"on Kafka, last part of the consumer group, one for each receiver  [{RECEIVER}]", callback=_receiver,
        ),
        option(
            SENDING, "--dead-letters FILE",
            "file for alerts that were not accepted  [ALERTS.dead-letters; on Kafka alerts.dead-letters]", PATH,
        ),
        option(
            SENDING, "--timeout SECONDS", "seconds that a request may take", Number(min=0.1, max=300),
            default=10,
        ),
        option(
            SENDING, "--attempts N", "attempts before an alert is a dead letter", click.IntRange(min=1, max=1000),
            default=10,
        ),
        option(SENDING, "--until-end", "stop at the present end of the file or topic"),
        quiet_option(),
        *settings_options((*KAFKA_SECTIONS[KAFKA], "session_timeout_ms", "give_up_seconds"), KafkaSettings),
    ],
)  # fmt: skip
@click.argument("alerts", type=PATH, required=False)
@click.pass_context
def send(
    context: click.Context, /, alerts: Path | None, url: str | None, url_env: str | None, secret_env: str | None,
    position: Path | None, receiver: str | None, dead_letters: Path | None, timeout: float, attempts: int,
    until_end: bool, quiet: bool, **_: Any,
) -> None:  # fmt: skip
    from stream_lsh.alerts.receivers import variable
    from stream_lsh.embedded.sending import Courier
    from stream_lsh.embedded.webhook import Webhook

    if (url is None) == (url_env is None):
        raise UsageError("name the receiver with --url, or with --url-env the environment variable that has its URL")
    if alerts is not None and alerts.suffix in COMPRESSED:
        raise UsageError(f"{alerts} is compressed, and cannot be followed: give dedup --alerts a name without a suffix")
    if (receiver if alerts is not None else position) is not None:
        raise UsageError("--position is for a file of alerts, --receiver for those on Kafka: leave the other one out")
    address = url if url_env is None else variable(f"--url-env {url_env}", url_env)
    secret = None if secret_env is None else variable(f"--secret-env {secret_env}", secret_env).encode()
    webhook = Webhook(str(address), secret, timeout)
    name = "alerts" if alerts is None else str(alerts)
    dead_letters, position = dead_letters or Path(name + ".dead-letters"), position or Path(name + ".sent")
    written = {"--dead-letters": dead_letters, **({} if alerts is None else {"--position": position})}
    check_outputs(
        {flag: str(path) for flag, path in written.items()}, [] if alerts is None else [str(alerts)],
        read={"--config": config_of(context)},
    )  # fmt: skip
    courier = Courier(webhook, dead_letters, attempts, (lambda _: None) if quiet else complain)
    if alerts is None:
        _send_from_kafka(load_settings(context, KafkaSettings), receiver or RECEIVER, courier, until_end=until_end)
    else:
        _send_from_file(alerts, position, courier, until_end=until_end)
    if not quiet:
        sent = courier.sent
        complain(f"{count(sent.taken, 'alert')} sent to {webhook.name}, {count(sent.dead_letters, 'dead letter')}")


@alerts.command(
    cls=Command,
    examples=RESEND_EXAMPLES,
    help="""Send the dead letters of a webhook again, and the alert that waits for its next attempt now. A running
service with --webhooks must have the index.

The keys of the alerts stay the same.""",
    params=[index_option(required=True)],
)
@click.argument("webhook")
def resend(webhook: str, folder: Path) -> None:
    from stream_lsh.serve.beside import ask

    found = ask(folder, "POST", f"/v1/webhooks/{quote(webhook, safe='')}/resend")
    complain(f"{count(found['resent'], 'dead letter')} of {webhook} sent again")


def _send_from_file(alerts: Path, position: Path, courier: Courier, *, until_end: bool) -> None:
    from stream_lsh.embedded import sending

    with sending.Journal(position) as journal:
        sending.send(alerts, courier, journal, until_end=until_end)


def _send_from_kafka(settings: KafkaSettings, receiver: str, courier: Courier, *, until_end: bool) -> None:
    require_kafka()
    from stream_lsh.embedded.signals import Signals
    from stream_lsh.kafka.client.connection import explained
    from stream_lsh.kafka.run.metrics import Probe
    from stream_lsh.kafka.run.restarts import keep_running
    from stream_lsh.kafka.tools.sending import ROLE, SendStage, check

    async def work(stop: asyncio.Event, _: asyncio.Event) -> None:
        with explained(settings):
            await check(settings)
        probe = Probe(ROLE)
        await keep_running(
            lambda: SendStage(settings, probe, receiver, courier, until_end=until_end), stop, settings, probe
        )

    with Signals() as signals:
        signals.run(work)


def sentence(found: Rehearsed) -> str:
    """An alert as a person reads it."""
    alert = found.alert
    what = ", ".join(f"{name} {value}" for name, value in alert.found.items())
    where = f"group {alert.subject}" if isinstance(alert.subject, int) else f"source {alert.subject}"
    return f"{moment(alert.time)}  {alert.rule.name}: {where}, {what}, at document {found.seq} {found.id.decode()}"
