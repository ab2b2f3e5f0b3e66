"""The options of commands that read web feeds."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.group import Option
from stream_lsh.documents.times import seconds_of
from stream_lsh.errors import UsageError

if TYPE_CHECKING:
    from stream_lsh.webfeeds.reader import WebFeeds

FEEDS = "Web feeds"
FIELDS = {"source_field": "feed", "time_field": "time"}
"""The fields of an entry that are its source and its event time."""


def feed_options() -> list[click.Parameter]:
    """`--feed`, `--every` and `--feed-log`."""
    return [
        Option(
            ["--feed", "feeds"], multiple=True, metavar="URL", section=FEEDS,
            brief="RSS or Atom feed to read, with --feed-log FILE",
            help="RSS or Atom feed whose new entries are documents; repeatable",
        ),
        Option(
            ["--every"], metavar="DURATION", section=FEEDS, common=False,
            help="fetch each feed again after so long (5m, 1h), until the command is stopped; default: once",
        ),
        Option(
            ["--feed-log"], type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", section=FEEDS,
            common=False,
            help="JSON lines to which new entries are appended, made if missing; needed with --feed",
        ),
    ]  # fmt: skip


def chosen_feeds(given: dict[str, Any], *, versions: bool) -> WebFeeds | None:
    """The feeds that the options name; None without --feed. versions: a changed entry is an entry again.

    Raises:
        UsageError: an option is missing, or wrong.
    """
    urls: Sequence[str] = given["feeds"]
    if not urls:
        if (option := next((name for name in ("every", "feed_log") if given[name] is not None), None)) is not None:
            raise UsageError(f"--{option.replace('_', '-')} is for feeds: add --feed URL")
        return None
    if given["feed_log"] is None:
        raise UsageError("--feed needs --feed-log FILE, to which new entries are appended")
    try:
        every = seconds_of(given["every"]) if given["every"] is not None else None
    except ValueError as error:
        raise UsageError(f"--every {error}") from None
    from stream_lsh.webfeeds.reader import WebFeeds

    return WebFeeds(urls, given["feed_log"], every, versions, complain)
