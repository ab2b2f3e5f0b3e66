"""Crawls as an input: files of WARC records, pages (WARC) or their texts (WET), one document a record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from io import BytesIO
from urllib.parse import urlsplit

from stream_lsh.documents.columns import Position, Rejection
from stream_lsh.documents.dead_letters import KEPT_BYTES, json_line
from stream_lsh.embedded.blocks import Blocks
from stream_lsh.embedded.checksums import Checksums
from stream_lsh.embedded.inputs import LineInput, check_packages
from stream_lsh.embedded.lines import Line, Lines
from stream_lsh.embedded.pages import Content, Refusal, TooLarge, decompressed, media_type, text_of

SUFFIXES = tuple(f".{name}{packed}" for name in ("warc", "wet") for packed in ("", ".gz", ".xz", ".zst"))
HEAD_BYTES = 64 * 1024  # most bytes of a record's header
BATCH_RECORDS, BATCH_BYTES = 256, 1 << 20
_PIECE = 1 << 16
_NEWLINES = b"\r\n"


class WarcInput(LineInput):
    """Records of a WARC file. Line n is record n; offsets are those of the records, decompressed.

    Documents are the records `response`, `resource` and `conversion` of http and https: as a JSON line with `id`,
    `url`, `host`, `time` and `text`. Records of other types are counted, and are no documents.
    """

    unit = "record"

    def check(self, *, columns: bool = True) -> None:
        super().check(columns=columns)
        check_packages(f"{self.name} is a crawl, which", "crawl", "resiliparse", "warcio")

    def _splitter(self, position: Position, *, mid_line: bool, checksums: Checksums | None = None) -> RecordSplitter:
        return RecordSplitter(
            position, self.fields.max_document_bytes, self.max_documents, growing=self.growing, checksums=checksums
        )


class _Bytes(Blocks):
    """Blocks that are read by lines. seen: gets what has been read."""

    def __init__(self, blocks: Iterator[bytes], offset: int, seen: Callable[[bytes], None]) -> None:
        super().__init__(blocks, offset)
        self._seen = seen

    def piece(self, most: int) -> bytes:
        piece = super().piece(most)
        self._seen(piece)
        return piece

    def line(self, most: int) -> bytes:
        """The next line with its newline, or so many bytes of it."""
        found = b""
        while len(found) < most and not found.endswith(b"\n") and self.peek(1):
            end = self._block.find(b"\n", self._at, self._at + most - len(found)) + 1
            found += self.piece(end - self._at if end else most - len(found))
        return found

    def read(self, count: int) -> bytes:
        """So many bytes, fewer at the end."""
        return b"".join(self.pieces(count))

    def at_record(self) -> bool:
        """Whether a record begins here."""
        while len(found := self.peek(6)) < 6:  # at the end of a block
            block = next(self._blocks, None)
            if block is None:
                break
            self._block, self._at = found + block, 0
        return _begins(found)

    def skip_newlines(self) -> None:
        while (byte := self.peek(1)) and byte in _NEWLINES:
            self.piece(1)


class RecordSplitter:
    """Cuts blocks into records from a position on, as `LineSplitter` cuts lines.

    A record of more than `max_record` bytes is passed over and rejected; only its beginning is in memory. Bytes that
    are no record are rejected together, up to the next record.

    Attributes:
        left: bytes of a last record that is not complete, which are left to a later run if the file may be growing.
    """

    def __init__(
        self, position: Position, max_record: int, max_records: int, *, growing: bool = False,
        checksums: Checksums | None = None,
    ) -> None:  # fmt: skip
        self.position = position
        self.left = 0
        self._max_record = max_record
        self._max_records = min(max_records, BATCH_RECORDS)
        self._growing = growing
        self._checksums = checksums
        self._found: list[Line] = []

    def split(self, blocks: Iterable[bytes]) -> Iterator[Lines]:
        """The records of the blocks."""
        add = self._checksums.add if self._checksums is not None else lambda piece: None
        source = _Bytes(iter(blocks), self.position.offset, add)
        size = begun = 0
        while True:
            source.skip_newlines()
            begin = source.offset
            try:
                row = self._record(source)
            except Exception:  # a damaged file: what was read of it counts
                if self._found:
                    yield self._lines()
                raise
            if source.offset == begin:
                break
            if row is None and self.left:
                break
            if row is not None:
                self._found.append(Line(row[0], self.position.line + 1, begin, row[1]))
                size += len(row[0])
            source.skip_newlines()
            crc = self._checksums.begun if self._checksums is not None else 0
            self.position = Position(source.offset, self.position.line + 1, crc)
            begun += source.offset - begin
            if len(self._found) >= self._max_records or max(size, begun // 16) >= BATCH_BYTES:
                if self._found:
                    yield self._lines()
                size = begun = 0
        if self._found:
            yield self._lines()

    def _lines(self) -> Lines:
        found, self._found = self._found, []
        return Lines.of(found, self.position)

    def _record(self, source: _Bytes) -> tuple[bytes, Rejection | None] | None:
        """The JSON line of the next record, or the beginning of the record and why it is rejected. None for a record
        that is no document, for one that is left (`left`), and at the end."""
        first = source.line(HEAD_BYTES)
        if not first:
            return None
        if not _begins(first):
            return self._rubbish(source, first, "there is no WARC record")
        head = first
        while (line := source.line(HEAD_BYTES)) not in (b"", b"\n", b"\r\n"):
            head += line
            if len(head) > HEAD_BYTES:
                return self._rubbish(source, head, f"the header of the record has more than {HEAD_BYTES} bytes")
        headers = _headers(head)
        length = headers.get("content-length", "").strip()
        if line and not (length.isascii() and length.isdigit() and len(length) < 19):
            return self._rubbish(source, head, f"the record has no number as Content-Length: {length[:40]!r}")
        expected = int(length) if line else 1
        if expected > self._max_record:
            begin = source.offset
            body = source.read(KEPT_BYTES)
            source.skip(expected - len(body))
            count = source.offset - begin
        else:
            body = source.read(expected)
            count = len(body)
        if count < expected:
            if self._growing:
                self.left = len(head) + len(line) + count
                return None
            return _rejected("bad_record", "the file ends in the middle of the record", head + line + body)
        if _no_document(headers):
            return None
        if expected > self._max_record:
            detail = f"the record has {expected} bytes, more than {self._max_record}"
            return _rejected("too_large", detail, head + line + body, len(head) + len(line) + expected)
        return self._document(headers, head + line, body)

    def _rubbish(self, source: _Bytes, found: bytes, detail: str) -> tuple[bytes, Rejection]:
        """Pass over all before the next record, and reject it."""
        size = len(found)
        while not source.at_record() and (line := source.line(_PIECE)):
            found = found if len(found) > KEPT_BYTES else found + line
            size += len(line)
        return _rejected("bad_record", detail, found, size)

    def _document(self, headers: dict[str, str], head: bytes, body: bytes) -> tuple[bytes, Rejection | None]:
        try:
            if headers.get("warc-segment-number"):
                raise Refusal("it is the first segment of several")
            content = _content(headers, body, self._max_record)
            text = text_of(content)
        except TooLarge:
            detail = f"the page has more than {self._max_record} bytes, decompressed"
            return _rejected("too_large", detail, head, len(head) + len(body))
        except Refusal as refusal:
            # The content is no text: the dead letter has the headers.
            begin = body[: body.find(b"\r\n\r\n") + 4] if body.startswith(b"HTTP/") else b""
            return _rejected("no_page", f"the record has no page: {refusal}", head + begin, len(head) + len(body))
        return _json_line(headers, text), None


def _begins(line: bytes) -> bool:
    return line[:5].upper() == b"WARC/" and line[5:6].isdigit()


def _headers(head: bytes) -> dict[str, str]:
    """The fields of a record, by their names in lower case; the first of several."""
    from warcio.statusandheaders import StatusAndHeadersParser

    found = StatusAndHeadersParser(["WARC/"]).parse(BytesIO(head))
    return {name.lower(): value for name, value in reversed(found.headers)}


def _url(headers: dict[str, str]) -> str:
    return headers.get("warc-target-uri", "").strip().strip("<>")


def _no_document(headers: dict[str, str]) -> bool:
    """Whether a record is no document: of another type, or of another protocol, such as DNS."""
    type = headers.get("warc-type", "").strip().lower()
    return type not in ("response", "resource", "conversion") or _url(headers).lower().startswith(("dns:", "whois:"))


def _content(headers: dict[str, str], body: bytes, limit: int) -> Content:
    """The content of a record, or of the response of HTTP in it. Raises Refusal and TooLarge."""
    type, charset = media_type(headers.get("content-type"))
    if type != "application/http":
        return Content(body, type, charset)
    from warcio.bufferedreaders import BufferedReader, ChunkedDataReader
    from warcio.statusandheaders import StatusAndHeadersParser, StatusAndHeadersParserException

    stream = BufferedReader(BytesIO(body))
    try:
        response = StatusAndHeadersParser(["HTTP/1.0", "HTTP/1.1", "HTTP/2"]).parse(stream)
    except (StatusAndHeadersParserException, EOFError):
        raise Refusal("it has no response of HTTP") from None
    status = response.get_statuscode()
    if not status.startswith("2"):
        raise Refusal(f"the status of HTTP is {status[:20] or 'missing'}")
    if (response.get_header("transfer-encoding") or "").strip().lower() == "chunked":
        stream = ChunkedDataReader(stream)
    type, charset = media_type(response.get_header("content-type"))
    return Content(decompressed(stream.read(), response.get_header("content-encoding"), limit), type, charset)


def _json_line(headers: dict[str, str], text: str) -> bytes:
    url, time = _url(headers), headers.get("warc-date")
    try:
        host = urlsplit(url).hostname
    except ValueError:
        host = None
    id = headers.get("warc-record-id", "").strip().strip("<>")
    cut = headers.get("warc-truncated")  # why the crawler has only the beginning
    fields = {"id": id, "url": url, "host": host, "time": time, "truncated": cut, "text": text}
    return json_line({name: value for name, value in fields.items() if value or name == "text"})


def _rejected(reason: str, detail: str, found: bytes, size: int = 0) -> tuple[bytes, Rejection]:
    size = max(size, len(found))
    kept = found[:KEPT_BYTES]
    return kept, Rejection(reason, detail, size if size > len(kept) else None)
