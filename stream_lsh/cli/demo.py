"""`stream-lsh demo`: a small news feed, the real job on it, and what it found."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import click

from stream_lsh.cli.demo_kafka import run_on_kafka
from stream_lsh.cli.extra import SERVE_PACKAGES, require
from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import OPTIONS, Command, Option
from stream_lsh.cli.options import FOLDER, option, quiet_option
from stream_lsh.cli.progress import progress_display
from stream_lsh.embedded.temporary import temporary_folder
from stream_lsh.errors import OutputError, UsageError
from stream_lsh.wording import count

EXAMPLES = """
stream-lsh demo
stream-lsh demo --documents 20000 --seed 7 --keep demo
stream-lsh demo --feed --documents 20000 > feed.jsonl
stream-lsh demo --stories
stream-lsh demo --stories --feed > week.jsonl
stream-lsh demo --serve --documents 100000 --rate 50
stream-lsh demo --kafka
stream-lsh demo --kafka --bootstrap-servers kafka-1:9092 --rate 100
"""
DOCUMENTS, ARTICLES = 2000, 1200  # without --stories, and with it


def _number(declared: str, text: str, type: Any, default: int, name: str | None = None) -> Option:
    return option(OPTIONS, declared, text, type, name=name, default=default, show_default=True)


@click.command(
    cls=Command,
    examples=EXAMPLES,
    help="""Make a small news feed, find the near-duplicates in it and show them side by side.

The stories are invented, in eight languages. Some are repeated as a paper would print them: corrected, cut, under
another headline, in the frame of another site. So the true pairs are known, and are compared with the pairs found. One
story spreads, is corrected and withdrawn, with groups and an alert. Nothing stays on the disk without --keep.

--stories makes a week of news in which several papers report the same events in their own words. It shows each event
from begin to end, the words that decided, and how many are right.

--serve sends the feed to a service, whose page shows it live, until Ctrl-C.

--kafka sends it to a pipeline on Kafka: it starts a broker, topics, a worker and the page, and prints pairs and alerts
until Ctrl-C. The feed then has stories that spread, are corrected and withdrawn. The broker needs Java 17 and Maven.
With --bootstrap-servers, or STREAM_LSH_BOOTSTRAP_SERVERS, the demo uses your brokers instead, with the other variables
of the connection. Its topics have a prefix of their own, and are deleted at the end; with --keep everything stays.""",
    params=[
        option(
            OPTIONS, "--documents N", f"documents of the feed  [{DOCUMENTS}; {ARTICLES} with --stories]",
            click.IntRange(40, 200_000),
        ),
        _number("--seed", "number that the feed is made from", int, 1),
        option(OPTIONS, "--keep DIR", "folder for the feed, its true pairs, the outputs and the index", FOLDER),
        _number("--pairs", "pairs to show; with --kafka, every five seconds", click.IntRange(0, 20), 4, "examples"),
        option(OPTIONS, "--feed", "only print the feed, as JSON lines"),
        option(OPTIONS, "--stories", "a week of news in different words, grouped by event"),
        option(OPTIONS, "--serve", "serve the feed live, with a page", name="live"),
        option(OPTIONS, "--kafka", "the same with a pipeline on Kafka, and a broker of its own"),
        option(
            OPTIONS, "--bootstrap-servers HOST:PORT", "with --kafka, your brokers instead of its own", name="servers"
        ),
        _number("--rate", "with --serve or --kafka, documents per second", click.IntRange(1, 10_000), 20),
        _number("--port", "with --serve or --kafka, port of the page", click.IntRange(0, 65535), 8765),
        quiet_option(),
    ],
)  # fmt: skip
def demo(
    documents: int | None,
    seed: int,
    keep: Path | None,
    examples: int,
    feed: bool,
    stories: bool,
    live: bool,
    kafka: bool,
    servers: str | None,
    rate: int,
    port: int,
    quiet: bool,
) -> None:
    if kafka and (feed or stories or live):
        raise UsageError("--kafka is a demo of its own, without --feed, --stories and --serve; give one of them")
    if servers is not None and not kafka:
        raise UsageError("--bootstrap-servers names the brokers of --kafka; give --kafka too, or leave it out")
    if feed and live:
        raise UsageError("--feed only prints the feed, --serve serves it; give one of them")
    if stories and live:
        raise UsageError("--stories shows a week that is over, --serve a feed as it flows; give one of them")
    if documents is None:
        documents = ARTICLES if stories else DOCUMENTS
    if feed:
        if keep is not None:
            raise UsageError("--feed only prints the feed, --keep DIR keeps the whole demo; give one of them")
        _print_feed(documents, seed, stories)
        return
    with ExitStack() as stack:
        folder = _new_folder(keep) if keep is not None else Path(stack.enter_context(temporary_folder()))
        if kafka:
            run_on_kafka(
                folder, documents, seed, rate, port, examples, servers, kept=keep is not None, quiet=quiet
            )  # fmt: skip
            return
        if live:
            _serve(folder, documents, seed, rate, port, quiet)
            return
        show = _show_stories if stories else partial(_show, examples=examples)
        show(folder, documents, seed, kept=keep is not None, quiet=quiet)


def _show(folder: Path, documents: int, seed: int, *, kept: bool, quiet: bool, examples: int) -> None:
    """Run the job on the feed, and show what it found."""
    if not quiet:
        complain(f"making {documents:,} documents of news and looking for near-duplicates among them")
    from rich.console import Console

    from stream_lsh.demo.display import show  # here, because it takes numba with it
    from stream_lsh.demo.run import run_demo

    with progress_display(quiet=quiet, writes_standard_output=False) as progress:
        run = run_demo(folder, documents, seed, progress, kept=kept)
    show(Console(highlight=False), run, examples)


def _show_stories(folder: Path, documents: int, seed: int, *, kept: bool, quiet: bool) -> None:
    """The same of a week of stories."""
    if not quiet:
        complain(f"making a week of {documents:,} articles and looking for those that tell of the same event")
    from rich.console import Console

    from stream_lsh.demo.diary import show
    from stream_lsh.demo.stories import run_week

    with progress_display(quiet=quiet, writes_standard_output=False) as progress:
        diary = run_week(folder, documents, seed, progress, kept=kept)
    show(Console(highlight=False), diary)


def _serve(folder: Path, documents: int, seed: int, rate: int, port: int, quiet: bool) -> None:
    """Serve the feed while it flows."""
    require("serve", "serve", SERVE_PACKAGES)
    from stream_lsh.serve.address import Address, listen

    listening, address = listen(Address(port=port))
    if not quiet:
        complain(f"making {count(documents, 'document')} of news; {address.url} is starting")

    # Here, because they take long.
    from stream_lsh.demo.live import Flow, service
    from stream_lsh.serve.server import serve

    flows: list[Flow] = []

    def started(url: str) -> None:
        flows.append(Flow(url, documents, seed, rate))
        if not quiet:
            complain(f"{count(documents, 'document')} of news, {rate} a second: open {url} (Ctrl-C ends it)")

    try:
        serve(lambda failed: service(folder / "index", failed), address, listening, started=started)
    finally:
        for flow in flows:
            flow.stop()


def _print_feed(documents: int, seed: int, stories: bool) -> None:
    """The lines that a run of this size and seed would work on; without stories they come as they are made."""
    from stream_lsh.demo.feed import feed_lines
    from stream_lsh.demo.week import make_week

    lines = make_week(documents, seed).feed.lines() if stories else feed_lines(documents, seed)
    click.get_binary_stream("stdout").writelines(lines)


def _new_folder(keep: Path) -> Path:
    try:
        if keep.exists() and any(keep.iterdir()):
            raise UsageError(f"--keep {keep}: the folder is not empty; name a new one")
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--keep {keep}: {error.strerror}; name a folder that can be written") from None
    return keep
