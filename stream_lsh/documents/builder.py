"""Columns of documents that a Python program adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stream_lsh.documents.columns import Columns, Rejection
from stream_lsh.documents.document import Document, record_of
from stream_lsh.documents.engine_errors import rejection_of
from stream_lsh.documents.fields import LINE_ID, Fields, Record, utf8_size
from stream_lsh.documents.refused import Refused
from stream_lsh.documents.times import NO_TIME

_JSON = (str, int, float, bool, list, dict, type(None))


class Builder:
    """Columns of documents, which are added one by one.

    Args:
        fields: where the parts of a document are in a mapping, and which of its parts are compared.
    """

    def __init__(self, fields: Fields) -> None:
        self._fields = fields
        self._records: list[Record] = []
        self._rejected: dict[int, Rejection] = {}

    def __len__(self) -> int:
        return len(self._records)

    def add(self, document: object) -> None:
        """Add a `Document`, or a mapping, which is read like a JSON object of a file. A document that cannot be
        processed is rejected, and keeps its place.

        Raises:
            TypeError: it is neither, or a value has a type that it cannot have. In a mapping these are types that JSON
                does not have; null in place of a text is rejected, as in a file.
        """
        if not isinstance(document, (Document, dict)) and isinstance(document, Mapping):
            document = dict(document)  # here: an exception of the caller's mapping is the caller's
        try:
            record = self._record(document)
        except TypeError:
            raise
        except Refused as refused:
            if refused.reason == "wrong_type" and isinstance(document, Document):
                raise TypeError(refused.detail) from None
            if not isinstance(refused.value, _JSON):
                raise TypeError(refused.detail) from None
            self._rejected[len(self._records)] = Rejection(refused.reason, refused.detail)
            record = Record(refused.id, "", NO_TIME)
        except Exception as error:
            self._rejected[len(self._records)] = rejection_of(error)
            record = Record(b"null", "", NO_TIME)
        self._records.append(record)

    def _record(self, document: object) -> Record:
        if isinstance(document, Document):
            record = record_of(document, self._fields)
        elif not isinstance(document, dict):
            raise TypeError(
                f"this is a {type(document).__name__}, not a Document or a mapping with the fields of a document"
            )
        elif self._fields.id_field == LINE_ID:
            raise TypeError(f"a mapping has no line to be its id (id_field = {LINE_ID!r}): give a Document")
        else:
            record = self._fields.extract(document)
        if not record.deleted:
            size, most = utf8_size(record), self._fields.max_document_bytes
            if size > most:
                raise Refused("too_large", f"the document has {size} bytes, more than {most}", record.id)
        return record

    def columns(self) -> Columns:
        """The documents added."""
        sources = any(record.source for record in self._records)
        return Columns.of_records(self._records, self._rejected, self._fields, sources=sources)


def columns(documents: Iterable[Document], fields: Fields | None = None) -> Columns:
    """Columns of documents.

    Raises:
        TypeError: a value has a type that it cannot have.
    """
    builder = Builder(Fields() if fields is None else fields)
    for document in documents:
        builder.add(document)
    return builder.columns()
