"""Conditions of requests on the version of a document: `If-Match` and `If-None-Match` (RFC 9110). The version is the
`seq` of the document's current text, and its ETag."""

from __future__ import annotations

import re
from dataclasses import dataclass

from fastapi import Request

from stream_lsh.serve.problems import Problem

_LIST = re.compile(r'\s*"(\d{1,18})"\s*(?:,\s*"(\d{1,18})"\s*)*')
_TAG = re.compile(r'"(\d{1,18})"')


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on the version of a document.

    Attributes:
        versions: the allowed ones; None = any, and the document has to exist.
        new: the document must not exist.
    """

    versions: frozenset[int] | None = None
    new: bool = False

    @classmethod
    def of(cls, request: Request) -> Condition | None:
        """That of a request, None if it has none.

        Raises:
            Problem: a header is not a list of ETags or `*`.
        """
        match, none = request.headers.get("if-match"), request.headers.get("if-none-match")
        if match is not None and none is not None:
            raise Problem(422, "give If-Match or If-None-Match, not both", field="If-None-Match")
        if none is not None:
            if none.strip() != "*":
                raise Problem(422, "If-None-Match: give *", field="If-None-Match")
            return cls(new=True)
        if match is None or match.strip() == "*":
            return None if match is None else cls()
        if _LIST.fullmatch(match) is None:
            raise Problem(422, 'If-Match: give * or versions, as in "17"', field="If-Match")
        return cls(frozenset(map(int, _TAG.findall(match))))

    def check(self, version: int | None) -> None:
        """Raise Problem if a document with this version does not meet the condition; None = there is no document."""
        if self.new:
            if version is not None:
                raise Problem(
                    412, f"the document exists, with version {version}", code="version_changed", field="If-None-Match"
                )
        elif version is None:
            raise Problem(412, "the document does not exist", code="version_changed", field="If-Match")
        elif self.versions is not None and version not in self.versions:
            raise Problem(
                412, f"the document has version {version}", code="version_changed", field="If-Match",
                headers={"ETag": tag(version)},
            )  # fmt: skip


def tag(version: int) -> str:
    """The ETag of a version."""
    return f'"{version}"'
