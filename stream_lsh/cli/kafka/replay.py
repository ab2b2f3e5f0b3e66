"""`stream-lsh kafka replay`: rejected documents are sent again."""

from __future__ import annotations

from datetime import datetime

import click

from stream_lsh.cli.kafka.command import PIPELINE, of_pipeline, pipeline_command, result_of
from stream_lsh.cli.options import RUNNING, option
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

TIMES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M%z", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M")
EXAMPLES = """
stream-lsh kafka replay --dry-run
stream-lsh kafka replay --reason too_large --since 2026-11-01
"""


@pipeline_command(
    PIPELINE,
    examples=EXAMPLES,
    help="""Send rejected documents to the documents topic again, once you have removed the cause: after a larger
max_document_bytes, for example. Key, value, headers, timestamp and partition stay the same.

The command reads the present dead letters, and stores its position for each reason. Repeated or restarted, it sends no
document twice. Dead letters that --since and --until leave out count as done. The header stream-lsh-replays counts how
often a document was sent again.""",
    params=[
        option(RUNNING, "--reason NAME", "only documents rejected for this reason; repeatable", multiple=True),
        option(
            RUNNING, "--since TIME", "only documents from this timestamp on (2026-11-22 or 2026-11-22T10:00:00Z)",
            click.DateTime(TIMES),
        ),
        option(RUNNING, "--until TIME", "only documents before this timestamp", click.DateTime(TIMES)),
        option(
            RUNNING, "--most N", "leave out documents that were sent again N times", click.IntRange(min=1), default=3,
            show_default=True,
        ),
        option(RUNNING, "--from-beginning", "also dead letters that were read before"),
        option(RUNNING, "--dry-run", "only show what would be sent"),
    ],
)  # fmt: skip
def replay(
    settings: KafkaSettings, reason: tuple[str, ...], since: datetime | None, until: datetime | None, most: int,
    from_beginning: bool, dry_run: bool,
) -> None:  # fmt: skip
    from stream_lsh.kafka.tools.replay import Wanted, replay

    settings = of_pipeline(settings)
    wanted = Wanted(frozenset(reason), _milliseconds(since), _milliseconds(until), most)
    counts = result_of(settings, replay(settings, wanted, from_beginning=from_beginning, dry_run=dry_run))
    sent = ", ".join(f"{number:,} {name}" for name, number in counts.sent.most_common())
    done = "would be sent again" if dry_run else "sent again"
    click.echo(f"{count(counts.sent.total(), 'document')} {done}{f': {sent}' if sent else ''}")
    for number, why in (
        (counts.other_time, "outside of the time asked for"),
        (counts.too_often, f"sent again {count(most, 'time')} already"),
        (counts.foreign, "no dead letters of this program"),
    ):
        if number:
            click.echo(f"left: {number:,}, {why}")


def _milliseconds(time: datetime | None) -> int | None:
    """Of a time that says no zone, by the clock of this machine."""
    return None if time is None else int(time.timestamp() * 1000)
