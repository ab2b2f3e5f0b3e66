"""The entries of an RSS or Atom file, as documents."""

from __future__ import annotations

import calendar
import hashlib
from io import BytesIO
from typing import Any, NamedTuple
from urllib.parse import urljoin

import orjson

from stream_lsh.embedded.pages import Refusal
from stream_lsh.text.markup import decode_entities, strip_markup

_LATEST = calendar.timegm((2199, 12, 31, 0, 0, 0))
_LONGEST_ID = 1024  # characters of an entry's own id; of a longer one the hash is taken
_MARKUP = ("text/html", "application/xhtml+xml")


class Entry(NamedTuple):
    """An entry. feed: its URL. key: the hash of its id; version: of its text. time: seconds since 1970. line: JSON,
    with a newline."""

    feed: str
    key: bytes
    version: bytes
    time: int
    line: bytes


def entries_of(data: bytes, feed: str, base: str, type: str, now: float) -> tuple[list[Entry], str | None]:
    """The entries of a file, its last one first, because feeds begin with the newest; and what is wrong with the file,
    if the rest of it is missing.

    Args:
        feed: its URL, as it was given. base, type: its URL behind redirects and its Content-Type. now: seconds since
            1970, the time of entries that have none.

    Raises:
        Refusal: there is no feed in it.
    """
    import feedparser

    try:
        parsed = feedparser.parse(
            BytesIO(data), response_headers={"content-type": type}, sanitize_html=False, resolve_relative_uris=False,
        )  # fmt: skip
    except Exception as error:  # of a parser, for any bytes
        raise Refusal(f"it cannot be parsed ({error})") from None
    wrong = str(parsed.get("bozo_exception", "")) if parsed.bozo and not _harmless(parsed) else None
    if not parsed.entries and (wrong is not None or not parsed.get("version")):
        raise Refusal(f"it is no feed{f' ({wrong})' if wrong else ''}")
    return [_entry(entry, feed, base, now) for entry in reversed(parsed.entries)], wrong


def _harmless(parsed: Any) -> bool:
    """Whether only the declaration of the charset or type is wrong, and all of the file was read."""
    import feedparser

    kinds = (feedparser.CharacterEncodingOverride, feedparser.NonXMLContentType)
    return isinstance(parsed.get("bozo_exception"), kinds)


def _entry(entry: Any, feed: str, base: str, now: float) -> Entry:
    title = _plain(entry.get("title_detail"))
    bodies = [_plain(part) for part in (*entry.get("content", ()), entry.get("summary_detail")) if part]
    text = "\n\n".join(part for part in (title, max(bodies, key=len, default="")) if part)
    own = entry.get("id") or entry.get("link") or ""
    if not own or len(own) > _LONGEST_ID:
        own = "sha256:" + hashlib.sha256((own or text).encode("utf-8", "replace")).hexdigest()
    seconds = _time(entry) or int(now)
    document = {
        "id": f"{feed}#{own}", "feed": feed, "url": _joined(base, entry.get("link")), "title": title, "time": seconds,
        "text": text,
    }  # fmt: skip
    line = orjson.dumps(_whole(document), option=orjson.OPT_APPEND_NEWLINE)
    return keyed(line)


def keyed(line: bytes) -> Entry:
    """The entry of a line. Raises ValueError if it has none."""
    document = orjson.loads(line)
    try:
        id, text, time = document["id"].encode(), document["text"].encode(), int(document["time"])
        return Entry(str(document["feed"]), _hash(id), _hash(text), time, line)
    except (KeyError, TypeError, AttributeError):
        raise ValueError("no entry") from None


def _hash(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def _plain(part: Any) -> str:
    """The text of a title, summary or content."""
    value = (part or {}).get("value") or ""
    text = strip_markup(value) if part and part.get("type") in _MARKUP else decode_entities(value)
    return " ".join(text.split())


def _joined(base: str, link: str | None) -> str | None:
    try:
        return urljoin(base, link) if link else None
    except ValueError:
        return link


def _time(entry: Any) -> int | None:
    """Seconds since 1970."""
    for name in ("published_parsed", "updated_parsed", "created_parsed"):
        value = dict.get(entry, name)  # its own `get` takes one for the other
        try:
            seconds = calendar.timegm(value) if value is not None else -1
        except (ValueError, OverflowError, TypeError):
            continue
        if 0 < seconds <= _LATEST:
            return seconds
    return None


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    """The same without lone surrogates, which have no UTF-8."""
    return {
        name: value.encode("utf-8", "replace").decode() if isinstance(value, str) else value
        for name, value in document.items()
    }  # fmt: skip
