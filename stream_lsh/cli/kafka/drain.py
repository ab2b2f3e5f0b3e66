"""`stream-lsh kafka drain`: nothing new is read, and what was read is finished."""

from __future__ import annotations

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.kafka.command import PIPELINE, of_pipeline, pipeline_command, result_of
from stream_lsh.cli.options import RUNNING, Number, option, quiet_option
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh kafka drain
stream-lsh kafka drain --topic-prefix news --timeout 600
stream-lsh kafka drain --resume
"""


@pipeline_command(
    PIPELINE,
    examples=EXAMPLES,
    help="""Let the pipeline finish what it has read, and read nothing new: before an upgrade with other formats, before
another number of shards, before the end.

The workers keep running: the signers pause, and the other roles finish. The exit code is 0 when everything that was
read has its verdict and outputs. After --timeout it is 1, and the command names the roles that are not finished. The
signers pause until --resume, also in workers that start later. Documents wait in their topic.""",
    params=[
        option(RUNNING, "--resume", "let the signers read again"),
        option(
            RUNNING, "--timeout SECONDS", "seconds to wait", Number(min=0), default=300.0, show_default=True
        ),
        quiet_option(),
    ],
)  # fmt: skip
def drain(settings: KafkaSettings, resume: bool, timeout: float, quiet: bool) -> None:
    from stream_lsh.kafka.tools import drain as tool

    settings = of_pipeline(settings)
    if resume:
        paused = result_of(settings, tool.resume(settings))
        click.echo("the signers read again" if paused else "the signers do not pause: nothing to resume")
        return
    said: list[str] = []

    def report(left: list[str]) -> None:
        if left != said and not quiet:
            complain("; ".join(left))
        said[:] = left

    async def run() -> tool.Standing:
        return await tool.follow(settings, await tool.begin(settings), timeout, report)

    found = result_of(settings, run())
    whole = "" if found.forward is not None else ", but for what forward would do, which has never run"
    click.echo(
        f"drained: {count(found.documents, 'document')} read, each with its verdict and its outputs{whole}; "
        "stream-lsh kafka drain --resume has the signers read again"
    )
