"""The codes of problems. They are stable: programs compare them. docs/reference/problems.md describes each one."""

from __future__ import annotations

from typing import NamedTuple


class Code(NamedTuple):
    """status: of the response. title: one sentence without its full stop. remedy: what to do."""

    status: int
    title: str
    remedy: str


CODES = {
    "bad_request": Code(400, "The request is not valid HTTP, or its body ends early", "Send a complete request."),
    "bad_cursor": Code(400, "The cursor is not one of this list and its parameters", "Begin without a cursor."),
    "unauthorized": Code(401, "There is no valid token", "Send `Authorization: Bearer TOKEN` with a valid token."),
    "forbidden": Code(403, "The request is not allowed", "Use a token with the permission; check host and origin."),
    "not_found": Code(404, "There is no such address", "Look at `/docs`."),
    "unknown_document": Code(404, "There is no document with this id", "Check the id and `id_type`."),
    "unknown_group": Code(404, "There is no such group", "Take the number from a verdict or from `GET /v1/groups`."),
    "unknown_webhook": Code(404, "There is no webhook with this name", "Take a name from `GET /v1/webhooks`."),
    "method_not_allowed": Code(405, "The address has other methods", "Use a method of the header `Allow`."),
    "unsupported": Code(409, "The settings of the index do not allow this", "`field` names the setting."),
    "id_reused": Code(409, "The id belongs to another text", "Use `on_conflict = \"update\"` for new versions."),
    "backup_exists": Code(409, "There is a backup with this name", "Use another name."),
    "record_deleted": Code(410, "The record was deleted from its topic", "Keep records of the topic for longer."),
    "version_changed": Code(412, "The document has another version", "Read the document, and decide again."),
    "too_large": Code(413, "The body, a document or the number of lines is too large", "Send less at a time."),
    "unsupported_media_type": Code(415, "The body has another type or encoding", "Use a type that `detail` names."),
    "invalid": Code(422, "A parameter, a header or an id is wrong", "`field` names it."),
    "document_rejected": Code(422, "The document cannot be processed", "`verdict` has the reason."),
    "idempotency_key_reused": Code(422, "The key belongs to another request", "Use a new key for each new request."),
    "too_many_waiting": Code(429, "Too many documents wait for their verdicts", "Try again after `Retry-After`."),
    "headers_too_large": Code(431, "The request line and headers are too large", "Send at most 64 KiB of them."),
    "internal_error": Code(500, "The service has a fault", "Send the log to the maintainers."),
    "unknown_transfer_coding": Code(501, "The transfer coding is not chunked", "Use `Content-Encoding`."),
    "unavailable": Code(503, "The service starts, stops or cannot continue", "Try again after `Retry-After`."),
    "disk_full": Code(507, "The disk of the index is full", "Make room; reads go on, and writes then work again."),
}  # fmt: skip


def code_of(status: int) -> str:
    """The general code of a status, which is the first one."""
    return next((name for name, code in CODES.items() if code.status == status), _nearest(status))


def _nearest(status: int) -> str:
    return "internal_error" if status >= 500 else "bad_request"
