"""`stream-lsh kafka reindex`: the same documents, other settings, under another prefix."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import click
from click.core import ParameterSource

from stream_lsh.cli.extra import PACKAGES, require_kafka
from stream_lsh.cli.failures import complain, set_resumes
from stream_lsh.cli.group import Command
from stream_lsh.cli.kafka.command import log_level_option, result_of
from stream_lsh.cli.kafka.tail import FOLDED, OUTPUTS
from stream_lsh.cli.options import (
    COMMON,
    KAFKA_SETTINGS,
    OF_TOPICS,
    RUNNING,
    load_settings,
    option,
    quiet_option,
    settings_options,
)
from stream_lsh.cli.progress import Speed, progress_display
from stream_lsh.embedded.report import Progress
from stream_lsh.embedded.signals import interruption
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.wording import count, duration, per_second

EXAMPLES = """
stream-lsh kafka reindex --to-prefix news-2 --compare-with all --shards 4
stream-lsh kafka reindex --to-prefix news-2 --topic-prefix news --threshold 0.7 --data-folder /var/lib/stream-lsh-2
stream-lsh kafka reindex --to-prefix news-2 --topic-prefix news --compare-with all --shards 4 --from-changelog
"""
Work = tuple[Sequence[str], int | None, Callable[[asyncio.Event, Callable[[int], object]], Coroutine[None, None, bool]]]
"""Roles that are needed, documents to be done where that is known, and what tells how far it is until all are."""
EXCLUDED = ("partitions", "http_port", "http_host")  # of no use here, or in the way of the worker beside


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Rebuild the index and the outputs under a new prefix, with another number of shards or other settings.

The command makes the topics of the new prefix, and processes the documents topic from its beginning up to its present
end. Everything under the old prefix (--topic-prefix) stays, and its workers may keep running. At the end the command
says how to switch: start workers with the new prefix, and read the new topics. Every document is judged anew. After an
interruption, run the same command again.

Documents that the documents topic has deleted cannot be rebuilt, so their duplicates may become unique. A new prefix in
use with other settings is refused.

With --from-changelog the documents are read from the changelogs of the shards instead (verify = exact), so none is
missing. Only the number of shards may change. Verdicts and pairs are written anew; unique begins with the next
documents. Run `stream-lsh kafka drain` before.""",
    params=[
        option(RUNNING, "--to-prefix NAME", "the new prefix", required=True),
        option(
            RUNNING, "--from-changelog",
            "change only the number of shards, and read the changelogs instead of the documents topic",
        ),
        log_level_option("warning"),
        quiet_option(),
        *settings_options([name for name in KAFKA_SETTINGS + COMMON if name not in EXCLUDED], KafkaSettings),
    ],
)  # fmt: skip
@click.pass_context
def reindex(
    context: click.Context, /, to_prefix: str, from_changelog: bool, log_level: str, quiet: bool, **_: Any
) -> None:  # fmt: skip
    settings = load_settings(context, KafkaSettings)
    require_kafka(*PACKAGES)
    from stream_lsh.kafka.run.supervisor import plan, work
    from stream_lsh.kafka.tools.reindex import target

    folder = context.params["data_folder"] if _given(context, "data_folder") else None
    new = target(settings, to_prefix, folder)
    set_resumes(context, new.data_folder)
    roles, total, follow = (_from_changelog if from_changelog else _from_documents)(settings, new, quiet)
    began, finished = time.monotonic(), False
    display = progress_display(
        quiet=quiet, writes_standard_output=False, words=_words, idle="no documents judged yet; the stages start"
    )
    with display as show:

        def report(done: int) -> None:
            if done:  # the time until the first one says nothing about the speed
                show(Progress(done, 0, 0, 0, 0, done, total, time.monotonic() - began))

        async def watch(stop: asyncio.Event) -> None:
            nonlocal finished
            finished = await follow(stop, report)

        signals = work(plan(roles, "groups", None, log_level, together=True), new, beside=watch)
    if not finished:
        raise interruption(signals[-1])
    if not quiet:
        what = "all documents" if total is None else count(total, "document")
        said = f"{what} judged in {duration(time.monotonic() - began)}"
        complain("\n".join([said + ", everything up to now. To switch:", *switching(settings, new, _options(context))]))


def _from_documents(settings: KafkaSettings, new: KafkaSettings, quiet: bool) -> Work:
    from stream_lsh.kafka.tools.reindex import follow, prepare

    goal = result_of(new, prepare(new))
    if goal.deleted and not quiet:
        complain(
            f"retention has deleted {count(goal.deleted, 'document')} of {', '.join(new.by_topic)}: they are not in "
            "the rebuilt index"
        )
    return new.roles, goal.total, lambda stop, report: follow(new, goal, stop, report)


def _from_changelog(settings: KafkaSettings, new: KafkaSettings, quiet: bool) -> Work:
    from stream_lsh.kafka.tools.from_changelog import RESTORING, look, restore

    changelogs = result_of(new, look(settings, new))
    total = None if changelogs.accepted is None else changelogs.accepted.documents
    return RESTORING, total, lambda stop, report: restore(changelogs, new, stop, report)


def switching(old: KafkaSettings, new: KafkaSettings, options: str) -> list[str]:
    """What to do at the end, line by line. options: the settings that were given, as a command line has them."""
    prefix = new.topic_prefix
    outputs = [f"{prefix}.{name}" for name in OUTPUTS if new.groups or name not in FOLDED]
    named = "" if new.documents_topic is None else f"--documents-topic {new.documents_topic} "
    return [
        f"  1. Start workers with the new prefix; they go on from here (this machine has the shards in "
        f"{new.data_folder}, others read them from the changelog):",
        f"     stream-lsh kafka worker --topic-prefix {prefix} {named}--data-folder {new.data_folder}{options}",
        f"  2. Let consumers read {', '.join(outputs)}.",
        f"  3. Stop the workers of {old.topic_prefix}. Its topics can go, but not {', '.join(new.by_topic)}.",
    ]


def _words(report: Progress, speed: Speed) -> list[str]:
    rate = speed.documents()
    total = report.bytes_total
    done = (
        count(report.documents, "document") if total is None else f"{report.documents:,} of {count(total, 'document')}"
    )
    return [f"{done} judged", *([per_second(rate)] if rate else [])]


def _given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def _options(context: click.Context) -> str:
    """The settings that were given on the line, without those that `switching` names itself."""
    words = []
    for name in (*KAFKA_SETTINGS, *COMMON, "properties", "config"):
        if name in context.params and _given(context, name):
            if name in ("topic_prefix", "documents_topic", "data_folder") or name in OF_TOPICS:
                continue
            value, flag = context.params[name], name.replace("_", "-")
            if name == "properties":
                words += [f"-X {part}" for part in value]
            elif isinstance(value, bool):
                words.append(f"--{'' if value else 'no-'}{flag}")
            else:
                words += [f"--{flag} {part}" for part in (value if isinstance(value, tuple) else (value,))]
    return "".join(f" {word}" for word in words)
