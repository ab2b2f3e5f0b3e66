"""The text of a web page: its charset, its compression, and the main text of HTML."""

from __future__ import annotations

import codecs
import re
import zlib
from typing import NamedTuple

from stream_lsh.text.markup import strip_markup

HTML = frozenset(("text/html", "application/xhtml+xml"))
TEXTS = HTML | {"text/plain"}
MAX_DEPTH, MAX_ATTRIBUTES = 2048, 10_000
"""Elements in each other, and attributes of one. HTML with more takes too long to parse: all of its text is taken."""
_TAG = re.compile(r"""<[a-zA-Z](?:[^>"']++|"[^"]*+"|'[^']*+')*+""")
_NESTED = re.compile(
    r"<(/?)(?!(?:p|li|td|th|tr|dt|dd|option|br|hr|img|input|meta|link|wbr|source|area|base|col|embed|param|track)\b)"
    "[a-z]",
    re.IGNORECASE,
)  # not those that have no end tag, or need none
_GZIP = b"\x1f\x8b"
_META_BYTES = 4096


class Content(NamedTuple):
    """What a text is made from: the bytes of a page, its media type without parameters, and the charset it declares."""

    data: bytes
    type: str
    charset: str | None


class Refusal(Exception):
    """A page has no text. The message says why, as the end of a sentence."""


class TooLarge(Exception):
    """A page has more bytes, decompressed, than are allowed."""


def media_type(header: str | None) -> tuple[str, str | None]:
    """The type and the charset in a Content-Type header."""
    first, _, rest = (header or "").partition(";")
    for parameter in rest.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return first.strip().lower(), value.strip().strip("\"'") or None
    return first.strip().lower(), None


def decompressed(data: bytes, encoding: str | None, limit: int) -> bytes:
    """The bytes of a response without its Content-Encoding. limit: most bytes.

    Raises:
        Refusal: another encoding than gzip and deflate. TooLarge.
    """
    name = (encoding or "").strip().lower()
    if name in ("", "identity"):
        return data
    if name not in ("gzip", "x-gzip", "deflate"):
        raise Refusal(f"its content encoding {name!r} is neither gzip nor deflate")
    # A header of zlib or gzip; some servers send deflate without one.
    for bits in (47, -15) if name == "deflate" else (47,):
        inflater = zlib.decompressobj(bits)
        try:
            found = inflater.decompress(data, limit + 1)
        except zlib.error:
            continue
        if len(found) > limit:
            raise TooLarge
        if inflater.eof:
            return found
    if name != "deflate" and data[:2] != _GZIP:
        return data  # crawlers store a page decompressed, and keep the header
    raise Refusal(f"its {name} is damaged, or ends in the middle")


def text_of(page: Content) -> str:
    """The text of a page; of HTML the main text, as resiliparse finds it. Raises Refusal."""
    if page.type not in TEXTS:
        what = f"its content type is {page.type}" if page.type else "it has no content type"
        raise Refusal(f"{what}, neither HTML nor plain text")
    text = decoded(page)
    if page.type not in HTML:
        return text
    if _depth(text) > MAX_DEPTH or _attributes(text) > MAX_ATTRIBUTES:
        return strip_markup(text)
    from resiliparse.extract.html2text import extract_plain_text

    try:
        return str(extract_plain_text(text, main_content=True, alt_texts=False))
    except Exception as error:  # of a parser of C, for any bytes
        raise Refusal(f"its HTML cannot be parsed ({error})") from None


def _depth(text: str) -> int:
    """How deep elements are nested that only an end tag closes; 0 if it is surely at most MAX_DEPTH."""
    if text.count("<") <= MAX_DEPTH:
        return 0
    depth = deepest = 0
    for match in _NESTED.finditer(text):
        depth = max(0, depth + (-1 if match[1] else 1))
        deepest = max(deepest, depth)
    return deepest


def _attributes(text: str) -> int:
    """At least as many as the longest tag has attributes; 0 if these are surely at most MAX_ATTRIBUTES."""
    tags = (match[0] for match in _TAG.finditer(text) if match.end() - match.start() > 2 * MAX_ATTRIBUTES)
    return max((len(tag.replace("/", " ").split()) + tag.count('"') + tag.count("'") for tag in tags), default=0)


def decoded(page: Content) -> str:
    """The characters of a page. Bytes that are UTF-8 are read as UTF-8, whatever is declared. Others are read as
    declared by the header or by HTML, or, if that is wrong, as the charset that they look like."""
    from resiliparse.parse.encoding import detect_encoding, map_encoding_to_html5

    declared = page.charset
    if declared is None and page.type in HTML:
        # Without a declaration this guesses from the bytes, which do not decide against UTF-8.
        declared = detect_encoding(page.data[:_META_BYTES], from_html_meta=True)
    escapes = (declared or "").lower().startswith(("iso-2022", "hz", "utf-16", "utf-7"))
    for bom, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if page.data.startswith(bom):
            return page.data[len(bom) :].decode(name, "replace")
    for charset in (declared, "utf-8") if escapes else ("utf-8", declared):
        try:
            if charset is not None:
                return page.data.decode(map_encoding_to_html5(charset) or charset)
        except (UnicodeDecodeError, LookupError):
            continue
    found = detect_encoding(page.data) or "windows-1252"
    try:
        return page.data.decode(found, "replace")
    except LookupError:
        return page.data.decode("utf-8", "replace")
