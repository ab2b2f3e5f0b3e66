"""The options of commands that read web feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.options import FILE, option
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
        option(
            FEEDS, "--feed URL", "RSS or Atom feed whose new entries are documents; repeatable", name="feeds",
            multiple=True, brief="RSS or Atom feed to read, with --feed-log FILE",
        ),
        option(
            FEEDS, "--every DURATION",
            "fetch each feed again after so long (5m, 1h), until the command is stopped; default: once", common=False,
        ),
        option(
            FEEDS, "--feed-log FILE",
            "JSON lines to which new entries are appended, made if missing; needed with --feed", FILE, common=False,
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
