"""`stream-lsh kafka set-stream-time`: the way back after wrong event times."""

from __future__ import annotations

import click

from stream_lsh.cli.kafka.command import PIPELINE, pipeline_command, result_of
from stream_lsh.cli.options import RUNNING, Number, option
from stream_lsh.documents.times import milliseconds, moment
from stream_lsh.errors import StreamLshError, UsageError
from stream_lsh.kafka.settings import KafkaSettings

EXAMPLES = """
stream-lsh kafka set-stream-time 2026-11-22T03:00:00Z
stream-lsh kafka set-stream-time 2026-11-22T03:00:00Z --yes
"""


@pipeline_command(
    PIPELINE,
    examples=EXAMPLES,
    help="""Set stream time back to TIME after wrong event times have moved it ahead. Stop the sender of the wrong times
first.

TIME is the event time of the documents that arrive now: in a live feed the present time. Documents with that event time
are then compared with what is in the window, and the window moves on with them. What the jump has removed from the
window stays removed. A TIME that is too early is a jump again, as soon as later documents arrive. Alerts count from
TIME, also without a window.

The command shows what changes. With --yes it writes an order into the topic of signatures, where it takes effect at its
place in the log, and waits until the sequencer has read it.""",
    params=[
        option(RUNNING, "--yes", "write the order; default: only show the change"),
        option(
            RUNNING, "--timeout SECONDS", "seconds to wait for the sequencer", Number(min=0), default=30.0,
            show_default=True,
        ),
    ],
)  # fmt: skip
@click.argument("time")
def set_stream_time(settings: KafkaSettings, time: str, yes: bool, timeout: float) -> None:
    from stream_lsh.kafka.tools import stream_time as tool

    try:
        to = milliseconds(time)
    except ValueError as error:
        raise UsageError(f"TIME: {error}") from None
    if not yes:
        change = result_of(settings, tool.look(settings, to))
        click.echo(f"stream time: {moment(change.before)}, then {moment(to)}")
        raise UsageError("nothing was changed; give --yes to set stream time back")
    change, read = result_of(settings, tool.set_back(settings, to, timeout))
    click.echo(f"stream time: {moment(change.before)}, then {moment(to)}")
    if not read:
        raise StreamLshError(
            f"the order is in the topic of signatures at offset {change.offset}, and no sequencer has read it within "
            f"{timeout:.0f} s: it takes effect when a worker of the role sequence gets there"
        )
