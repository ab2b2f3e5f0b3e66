"""The options of commands that read web feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from stream_lsh.cli.failures import complain
from stream_lsh.cli.options import CONFIG_FILE, FILE, option
from stream_lsh.documents.times import seconds_of
from stream_lsh.embedded.output_paths import check_outputs
from stream_lsh.errors import UsageError

if TYPE_CHECKING:
    from stream_lsh.webfeeds.reader import WebFeeds

FEEDS, RETENTION = "Web feeds", "30d"
FIELDS = {"source_field": "feed", "time_field": "time"}
"""The fields of an entry that are its source and its event time."""


def feed_options() -> list[click.Parameter]:
    """`--feed`, `--every`, `--feed-log` and `--feed-retention`."""
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
        option(
            FEEDS, "--feed-retention DURATION",
            "how long the feed log keeps an entry, and knows an entry that its feed does not show any more; "
            f"default: {RETENTION}", common=False,
        ),
    ]  # fmt: skip


def chosen_feeds(given: dict[str, Any], *, versions: bool) -> WebFeeds | None:
    """The feeds that the options name; None without --feed. versions: a changed entry is an entry again.

    Raises:
        UsageError: an option is missing, or wrong.
    """
    urls: Sequence[str] = given["feeds"]
    if not urls:
        if alone := [name for name in ("every", "feed_log", "feed_retention") if given[name] is not None]:
            raise UsageError(f"--{alone[0].replace('_', '-')} is for feeds: add --feed URL")
        return None
    if given["feed_log"] is None:
        raise UsageError("--feed needs --feed-log FILE, to which new entries are appended")
    read = {"--config": given.get("config") or CONFIG_FILE, "--rules": given.get("rules")}
    check_outputs({"--feed-log": str(given["feed_log"])}, folder=given.get("folder"), read=read)
    every = _seconds("--every", given["every"]) if given["every"] is not None else None
    retention = _seconds("--feed-retention", given["feed_retention"] or RETENTION)
    if every is not None and retention < 2 * every:
        raise UsageError("--feed-retention must be at least twice --every, or entries come again")
    from stream_lsh.webfeeds.reader import WebFeeds

    return WebFeeds(urls, given["feed_log"], every, versions, complain, retention=retention)


def _seconds(option: str, value: str) -> int:
    """Those of a duration. Raises UsageError."""
    try:
        return seconds_of(value)
    except ValueError as error:
        raise UsageError(f"{option} {error}") from None
