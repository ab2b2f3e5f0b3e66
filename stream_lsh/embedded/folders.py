"""A folder of text files as an input: each file a document, its relative path the id, its contents the text."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from stream_lsh.documents.columns import LINE_ID, Fields, Position, Rejection
from stream_lsh.documents.dead_letters import KEPT_BYTES, json_line
from stream_lsh.embedded.inputs import Input, InputIdentity, LineRange, stamp_of
from stream_lsh.embedded.lines import Line, Lines
from stream_lsh.errors import InputError, UsageError
from stream_lsh.index.segments.segment import FOLDER
from stream_lsh.index.store.files import is_index

_BOM = b"\xef\xbb\xbf"


class FolderInput(Input):
    """Files are taken in the order of their relative paths; line n is file n, offsets add up their sizes.

    A document's raw bytes are the JSON line {"id", "text"}; of a file that can't be one (not UTF-8, too large), the
    file's own. The names of fields in the settings do not apply here.
    """

    def __init__(self, name: str, fields: Fields) -> None:
        self._limit = fields.max_document_bytes
        parsed = replace(
            fields,
            id_field=LINE_ID if fields.id_field == LINE_ID else "id",
            text_fields=("text",),
            # The limit holds for the file. As JSON a byte takes up to six; the path is short.
            max_document_bytes=6 * self._limit + (1 << 20),
        )
        super().__init__(name, parsed)
        self._files: list[tuple[str, int]] | None = None

    def check(self, *, columns: bool = True) -> None:
        if self.fields.match_within:
            raise UsageError(
                f"{self.name} is a folder of text files, which have no fields to match within "
                f"({', '.join(self.fields.match_within)}): feed it into an index without --match-within."
            )
        if self.fields.item is not None:
            raise UsageError(
                f"{self.name} is a folder of text files, and the index is of {self.fields.item.plural}: give files of "
                f"JSON lines with the field {self.fields.item.name}, or an index of texts (measure = jaccard)."
            )
        if self.fields.set_field is not None or self.fields.time_field is not None:
            remedy = "leave out " + ("--set-field" if self.fields.set_field is not None else "--time-field")
            if not self.fields.timed:
                remedy = "feed it into an index without a window, which goes by times"
            raise UsageError(f"{self.name} is a folder of text files, which have no fields: {remedy}.")
        if (index := index_at(Path(self.name))) is not None:
            raise InputError(
                f"{self.name} is the folder of an index{'' if index.samefile(self.name) else f' ({index})'}, not of "
                f"documents: name the files that it was made from; stream-lsh info --index {index} lists them."
            )
        if not self._list():
            raise InputError(f"there is no file in the folder {self.name}.")
        for path, _ in self._list():
            if not os.access(self._path(path), os.R_OK):
                raise InputError(f"cannot read {self._path(path)}: permission denied.")

    def identity(self) -> InputIdentity | None:
        files = self._list()
        inode, _, *times = stamp_of(self.name)
        return InputIdentity(*self._identity(len(files)), size=len(files), stamp=(inode, len(files), *times))

    def _identity(self, head_bytes: int) -> tuple[str, str, int]:
        files = self._list()[:head_bytes]
        head = hashlib.sha256(b"".join(os.fsencode(path) + b"\0%d\0" % size for path, size in files))
        return str(Path(self.name).resolve()), head.hexdigest(), len(files)

    @property
    def size(self) -> int | None:
        return sum(size for _, size in self._list())

    def lines(self, position: Position) -> Iterator[Lines]:
        files = self._list()
        if len(files) < position.line:
            raise self._shrunk(f"{position.line} files", len(files), "them")
        yield from self._between(position, len(files))

    def again(self, ranges: Sequence[LineRange]) -> Iterator[Lines]:
        for begin, end in ranges:
            yield from self._between(begin, end.line)

    def _between(self, position: Position, last: int) -> Iterator[Lines]:
        """The files from a position on, before the file `last`."""
        offset = position.offset
        self.raw_position = offset
        found, size, number = list[Line](), 0, position.line
        for number, (path, _) in enumerate(self._list()[position.line : last], position.line + 1):
            line, length, rejection = self._read(path)
            found.append(Line(line, number, offset, rejection))
            offset += length
            self.raw_position = offset
            size += len(line)
            if size >= self.max_bytes or len(found) == self.max_documents:
                yield Lines.of(found, Position(offset, number))
                found, size = [], 0
        if found:
            yield Lines.of(found, Position(offset, number))

    def _path(self, path: str) -> Path:
        return Path(self.name) / path

    def _list(self) -> list[tuple[str, int]]:
        """Relative paths and sizes, listed once. A file that appears later is left to the next run."""
        if self._files is None:
            found = []
            try:
                for folder, _, names in os.walk(self.name, onerror=_raise):
                    if is_index(Path(folder), strict=False):
                        raise InputError(
                            f"the folder {self.name} contains the index {folder}, whose files are no documents: "
                            "move the index, or name the folders with the documents."
                        )
                    for name in names:
                        path = Path(folder) / name
                        status = path.stat()
                        if stat.S_ISREG(status.st_mode):
                            found.append((path.relative_to(self.name).as_posix(), status.st_size))
            except OSError as error:
                raise InputError(f"cannot read {error.filename or self.name}: {error.strerror}.") from None
            self._files = sorted(found, key=lambda file: os.fsencode(file[0]))
        return self._files

    def _read(self, path: str) -> tuple[bytes, int, Rejection | None]:
        """The document's raw bytes, the size of its file, and why it can't be a JSON line."""
        limit = self._limit
        try:
            with self._path(path).open("rb") as file:
                data = file.read(limit + 1)
                size = os.fstat(file.fileno()).st_size if len(data) > limit else len(data)
        except OSError as error:
            raise InputError(f"cannot read {self._path(path)}: {error.strerror}.") from None
        if len(data) > limit:
            detail = f"the file {path} has {size} bytes, more than {limit}"
            return data[:KEPT_BYTES], size, Rejection("too_large", detail, size if size > KEPT_BYTES else None)
        try:
            text = data.removeprefix(_BOM).decode("utf-8")
        except UnicodeDecodeError as error:
            return data, size, Rejection("not_utf8", f"byte {error.start + 1} of the file {path} is not UTF-8")
        return json_line({"id": path, "text": text}), size, None


def index_at(path: Path) -> Path | None:
    """The index whose folder, or a part of it, a path is; None if it is no such thing."""
    path = path.resolve()
    for folder in (path, *path.parents):
        parts = path.relative_to(folder).parts
        if is_index(folder, strict=False) and (not parts or parts[0] in ("db", FOLDER)):
            return folder
    return None


def _raise(error: OSError) -> None:
    raise error
