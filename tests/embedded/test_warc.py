"""Crawls as inputs: pages and texts out of WARC and WET files, whatever is wrong with a record."""

import gzip
import json
import sys
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner
from support import commands
from support.jobs import bytes_of, run
from support.json_lines import read_lines
from support.kills import COMMITTING, kill
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from stream_lsh import Settings
from stream_lsh.cli import main
from stream_lsh.documents.columns import Fields, Position
from stream_lsh.embedded.feed import open_input
from stream_lsh.embedded.lines import Batch
from stream_lsh.errors import InputError
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.tools.produce import LeftOut, Reader

START = Position()
MENU = "".join(f"<li><a href=/{i}>Section {i}</a></li>" for i in range(12))
STORY = " ".join(f"The council of town {{0}} voted on measure {i} for the bridge over the river." for i in range(6))


def page(number: int) -> bytes:
    """A page of a news site: what surrounds the story is the same on all."""
    return (
        f"<html><head><title>Story {number}</title><script>var a = {number};</script></head><body>"
        f"<nav><ul>{MENU}</ul></nav><article><h1>Story {number}</h1><p>{STORY.format(number)}</p></article>"
        "<footer>Subscribe to our newsletter</footer></body></html>"
    ).encode()


def record(
    body: bytes, number: int = 0, type: str = "response", *, http: str | None = "text/html; charset=utf-8",
    status: str = "200 OK", content: str = "text/plain", more: dict[str, str] | None = None,
    warc: dict[str, str] | None = None, url: str | None = None,
) -> bytes:  # fmt: skip
    """The bytes of one record."""
    out = BytesIO()
    writer = WARCWriter(out, gzip=False)
    headers = None
    if type == "response" and http is not None:
        fields = [("Content-Type", http), *(more or {}).items()]
        headers = StatusAndHeaders(status, [field for field in fields if field[1]], protocol="HTTP/1.1")
    made = writer.create_warc_record(
        url or f"https://news.example/{number}", type, payload=BytesIO(body), length=len(body), http_headers=headers,
        warc_content_type=content if headers is None else "",
        warc_headers_dict={
            "WARC-Record-ID": f"<urn:uuid:{number}>", "WARC-Date": f"2026-11-26T10:{number % 60:02}:00Z", **(warc or {})
        },
    )  # fmt: skip
    writer.write_record(made)
    return out.getvalue()


def crawl(count: int) -> list[bytes]:
    """Records of a crawl, with those around the pages."""
    found = [record(b"software: test\r\n", 999, "warcinfo", content="application/warc-fields")]
    for number in range(count):
        found.append(record(b"GET / HTTP/1.1\r\n\r\n", 1000 + number, "request", content="application/http"))
        found.append(record(page(number), number))
        found.append(record(b"fetchTimeMs: 7\r\n", 2000 + number, "metadata", content="application/warc-fields"))
    return found


def write(path: Path, *records: bytes) -> Path:
    if path.suffix.lower() == ".gz":
        path.write_bytes(b"".join(map(gzip.compress, records)))
    elif path.suffix == ".zst":
        path.write_bytes(b"".join(map(zstandard.compress, records)))
    else:
        path.write_bytes(b"".join(records))
    return path


def read(path: Path, position: Position = START, fields: Fields | None = None, most: int = 2048) -> list[Batch]:
    source = open_input(str(path), fields or Fields())
    source.max_documents = most
    return list(source.batches(position))


def rows(batches: list[Batch]) -> list[tuple[bytes, int, int, str | None]]:
    return [
        (
            batch.lines.raw(i), int(batch.lines.numbers[i]), int(batch.lines.offsets[i]),
            batch.rejected[i].reason if i in batch.rejected else None,
        )
        for batch in batches for i in range(len(batch))
    ]  # fmt: skip


def only(path: Path, **fields: Any) -> tuple[Any, str | None, str]:
    """The document of the first record, or the reason and detail of its rejection; a good record follows it."""
    batches = read(path, fields=Fields(**fields))
    found = rows(batches)
    assert found[-1][3] is None and json.loads(found[-1][0])["id"] == "urn:uuid:77", "the record behind it is lost"
    assert len(found) == 2
    why = batches[0].rejected.get(0)
    return (json.loads(found[0][0]), None, "") if why is None else (None, why.reason, why.detail)


@pytest.mark.parametrize("suffix", [".warc", ".warc.gz", ".warc.zst", ".WARC", ".Warc.GZ"])
def test_pages_of_a_crawl(tmp_path: Path, suffix: str) -> None:
    records = crawl(3)
    path = write(tmp_path / f"crawl{suffix}", *records)
    found = rows(read(path))
    assert json.loads(found[1][0]) == {
        "id": "urn:uuid:1", "url": "https://news.example/1", "host": "news.example", "time": "2026-11-26T10:01:00Z",
        "text": f"Story 1\n\n{STORY.format(1)}",
    }  # fmt: skip
    whole = b"".join(records)
    assert [row[1] for row in found] == [3, 6, 9]
    assert all(whole[row[2] :].startswith(b"WARC/1.0\r\n") for row in found)


def test_suffixes_of_outputs_count_in_any_case(tmp_path: Path) -> None:
    path, out = write(tmp_path / "crawl.WET.GZ", record(b"a b c d", 5, "conversion")), tmp_path / "U.JSONL.GZ"
    commands.run("dedup", path, "--unique", out, "--quiet")
    assert gzip.decompress(out.read_bytes()).count(b"\n") == 1
    commands.run("dedup", out, "--unique", tmp_path / "again.jsonl", "--quiet")
    assert (tmp_path / "again.jsonl").read_bytes() == gzip.decompress(out.read_bytes())


def test_texts_of_a_wet_file(tmp_path: Path) -> None:
    text = "Zürich\n日本語\n"
    path = write(tmp_path / "crawl.warc.wet.gz", record(text.encode(), 5, "conversion", url="http://a.example:80/x"))
    (found,) = rows(read(path))
    document = json.loads(found[0])
    assert (document["text"], document["host"], document["id"]) == (text, "a.example", "urn:uuid:5")


@pytest.mark.parametrize("suffix", [".warc", ".warc.gz"])
def test_resuming_from_every_record(tmp_path: Path, suffix: str) -> None:
    path = write(tmp_path / f"crawl{suffix}", *crawl(4), b"rubbish\r\n\r\n", *crawl(2))
    batches = read(path, most=1)
    everything = rows(batches)
    assert len(everything) == 7
    for i, batch in enumerate(batches):
        assert rows(read(path, batch.lines.position)) == everything[i + 1 :]


@pytest.mark.long
def test_killed_run_ends_like_an_uninterrupted_one(tmp_path: Path) -> None:
    path = write(tmp_path / "crawl.warc.gz", *crawl(150), b"rubbish\r\n\r\n", record(b"x", 400, http="image/png"))
    outputs = ("unique", "verdicts", "dead-letters")
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    commands = [
        ["dedup", str(path), "--index", str(tmp_path / name / "index"), "--quiet", "--threshold", "1",
         *(word for output in outputs for word in (f"--{output}", str(tmp_path / name / output)))]
        for name in ("whole", "broken")
    ]  # fmt: skip
    assert CliRunner().invoke(main, commands[0]).exit_code == 0
    small = "from stream_lsh.embedded import warc\nwarc.BATCH_RECORDS = 5\n"
    size = (tmp_path / "whole" / "unique").stat().st_size
    kill([sys.executable, "-c", small + COMMITTING, *commands[1]], tmp_path / "broken" / "unique", size, 1)
    assert bytes_of(tmp_path / "broken", outputs) == bytes_of(tmp_path / "whole", outputs)


def test_output_asked_for_later_gets_the_pages(tmp_path: Path) -> None:
    path = write(tmp_path / "crawl.warc.gz", *crawl(5))
    settings = Settings(threshold=1)
    run(tmp_path / "a", [path], settings)
    again = tmp_path / "a" / "again"
    (tmp_path / "a" / "unique").rename(again)
    run(tmp_path / "a", [path], settings)
    assert (tmp_path / "a" / "unique").read_bytes() == again.read_bytes() != b""


GZIPPED = {"Content-Encoding": "gzip"}
CHUNKED = {"Transfer-Encoding": "chunked"}


def chunked(data: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (data[:10], data[10:])) + b"0\r\n\r\n"


@pytest.mark.parametrize(
    ("first", "text"),
    [
        ({"body": gzip.compress(page(1)), "more": GZIPPED}, None),
        ({"body": zlib.compress(page(1))[2:-4], "more": {"Content-Encoding": "deflate"}}, None),
        ({"body": page(1), "more": GZIPPED}, None),  # stored decompressed, with the header kept
        ({"body": chunked(gzip.compress(page(1))), "more": CHUNKED | GZIPPED}, None),
        ({"body": page(1), "more": CHUNKED}, None),  # stored without the chunks
        ({"body": "Zürich".encode(), "http": "text/plain; charset=iso-8859-1"}, "Zürich"),
        ({"body": "Zürich ß".encode("cp1252"), "http": "text/plain; charset=utf-8"}, "Zürich ß"),
        ({"body": "Zürich".encode("utf-16"), "http": "text/plain"}, "Zürich"),
        ({"body": "Zürich".encode("cp1252"), "http": "text/plain; charset=nonsense"}, "Zürich"),
        ({"body": "<meta charset=koi8-r><p>Правда</p>".encode("koi8-r"), "http": "text/html"}, "Правда"),
        ({"body": b"a\0b", "http": "text/plain"}, "a\0b"),
        ({"body": b"<p>R&amp;D &eacute;", "http": "TEXT/HTML"}, "R&D é"),
        ({"body": b"<i>" * 3000 + b"deep", "http": "text/html"}, "deep"),
        ({"body": b"<p" + b" a=1" * 20000 + b">wide", "http": "text/html"}, " wide"),
    ],
)
def test_text_of_a_page(tmp_path: Path, first: dict[str, Any], text: str | None) -> None:
    document, reason, _ = only(write(tmp_path / "a.warc", record(**first), record(page(2), 77)))
    assert reason is None
    assert document["text"] == (text if text is not None else f"Story 1\n\n{STORY.format(1)}")


@pytest.mark.parametrize(
    ("first", "reason", "detail"),
    [
        (record(b"\x89PNG", http="image/png"), "no_page", "content type is image/png"),
        (record(b"x", http=""), "no_page", "no content type"),
        (record(page(1), status="404 Not Found"), "no_page", "status of HTTP is 404"),
        (record(page(1), more={"Content-Encoding": "br"}), "no_page", "'br' is neither gzip nor deflate"),
        (record(gzip.compress(page(1))[:-9], more=GZIPPED), "no_page", "ends in the middle"),
        (record(gzip.compress(bytes(300_000)), more=GZIPPED), "too_large", "more than 100000 bytes, decompressed"),
        (record(page(1) * 200), "too_large", "bytes, more than 100000"),
        (record(page(1), warc={"WARC-Segment-Number": "1"}), "no_page", "first segment of several"),
        (record(page(1)).replace(b"HTTP/1.1", b"PTTH/1.1"), "no_page", "no response of HTTP"),
        (record(b" <p> </p>"), "empty", "white space"),
        (b"rubbish\n" * 3 + b"\r\n", "bad_record", "there is no WARC record"),
        (
            record(page(1)).replace(b"Content-Length: ", b"Content-Length: -"),
            "bad_record",
            "no number as Content-Length",
        ),
        (b"WARC/1.0\r\nX: " + b"y" * 70_000 + b"\r\n\r\n", "bad_record", "header of the record has more than"),
        (record(page(1)).replace(b"WARC-Record-ID", b"X"), "missing_field", 'there is no field "id"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_rejected_record(tmp_path: Path, first: bytes, reason: str, detail: str) -> None:
    _, found, why = only(write(tmp_path / "a.warc", first, record(page(2), 77)), max_document_bytes=100_000)
    assert found == reason and detail in why


def test_records_that_are_no_documents(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.warc",
        record(b"", 1, "revisit", content="application/http"),
        record(b"1.2.3.4", 2, "response", http=None, content="text/dns", url="dns:news.example"),
        record(b"x", 3, "of-the-future"),
        record(page(4), 4),
    )
    assert [(row[1], row[3]) for row in rows(read(path))] == [(4, None)]


def test_dead_letter_of_an_image_has_the_headers_only(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc", record(b"\x89PNG" * 1000, http="image/png"))
    letter = json.loads(read(path)[0].dead_letter(0))
    assert letter["original"].startswith("WARC/1.0") and letter["original"].endswith("image/png\r\n\r\n")
    assert letter["truncated"] and letter["size"] > 4000


def test_truncated_gzip_member(tmp_path: Path) -> None:
    path = write(tmp_path / "a.warc.gz", *crawl(20))
    path.write_bytes(path.read_bytes()[:-30])  # in the last record, which is no page
    found: list[Batch] = []
    with pytest.raises(InputError, match=r"60 records before it were read.*whole one"):
        for batch in open_input(str(path), Fields()).batches(START):
            found.append(batch)
    assert len(rows(found)) == 20


def test_record_that_is_still_written(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.warc", tmp_path / "whole.warc"
    one, two = record(page(1), 1), record(page(2), 2)
    path.write_bytes(one + two[:-200])
    (row, cut) = rows(read(path))
    assert (row[3], cut[3]) == (None, "bad_record")
    settings = Settings(threshold=1)
    summary = run(tmp_path / "a", [path], settings)
    assert (summary.documents, dict(summary.unfinished)) == (1, {str(path): len(two) - 200})
    path.write_bytes(one + two)
    assert run(tmp_path / "a", [path], settings).documents == 1
    whole.write_bytes(one + two)
    run(tmp_path / "b", [whole], settings)
    assert read_lines(tmp_path / "a" / "unique") == read_lines(tmp_path / "b" / "unique")


def test_record_is_produced_with_its_id_as_key(tmp_path: Path) -> None:
    reader = Reader(KafkaSettings(), None, LeftOut())
    (found,) = reader.records(reader.open(str(write(tmp_path / "a.warc.gz", *crawl(2)))))
    assert [(line.key, line.line) for line in found] == [(b"urn:uuid:0", 3), (b"urn:uuid:1", 6)]


def test_missing_package_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.warc", record(page(1)))
    monkeypatch.setitem(sys.modules, "resiliparse", None)
    with pytest.raises(InputError, match=r"stream-lsh\[crawl\]"):
        open_input(str(path), Fields()).check()
