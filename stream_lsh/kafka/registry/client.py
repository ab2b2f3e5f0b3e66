"""Requests to a Schema Registry (Confluent's protocol), bounded in time and size. Redirects are not followed."""

from __future__ import annotations

import ssl
from threading import Timer
from typing import Any
from urllib.parse import quote

import httpx
import orjson

from stream_lsh.kafka.registry.decoding import Absent, Refused, Unknown
from stream_lsh.kafka.settings import KafkaSettings

READ_SECONDS, WHOLE_SECONDS = 5.0, 15.0  # for a part of an answer, and for a whole answer
MOST_BYTES = 4 << 20
NOT_FOUND = 40401, 40402, 40403
"""Error codes of a 404: no such subject, version, schema. Confluent's registry has 404 for a wrong path."""
_HINTS = {
    401: "; check registry_username and registry_password", 403: "; its user may not read schemas",
    404: " and no error code of a Schema Registry; check the path in registry_url",
}  # fmt: skip
_LATER = (404, 408, 429)  # of the statuses that refuse, those after which a repetition may succeed
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"


class Client:
    """A client of the registry that the settings name. Its messages have no secrets."""

    def __init__(self, settings: KafkaSettings) -> None:
        assert settings.registry_url is not None
        self.url = settings.registry_url.rstrip("/")
        password = settings.registry_password
        self._login = (settings.registry_username or "", password.get_secret_value()) if password is not None else None
        cafile = None if settings.registry_cafile is None else str(settings.registry_cafile)
        self._tls = ssl.create_default_context(cafile=cafile) if self.url.startswith("https:") else True

    def schema(self, id: int) -> dict[str, Any]:
        """A schema with its type and references.

        Raises:
            Absent, Unknown: see there.
        """
        found = self._get(f"/schemas/ids/{id}")
        if found.get("schemaType") == "PROTOBUF":  # as a descriptor: its text would need a compiler
            found = self._get(f"/schemas/ids/{id}?format=serialized")
        return found

    def reference(self, subject: str, version: int, kind: str) -> dict[str, Any]:
        """A schema that another one refers to.

        Raises:
            Absent, Unknown: see there.
        """
        form = "?format=serialized" if kind == "PROTOBUF" else ""
        return self._get(f"/subjects/{quote(subject, safe='')}/versions/{int(version)}{form}")

    def register(self, subject: str, schema: str) -> int:
        """Register an Avro schema, unless the subject has it. Returns its id.

        Raises:
            Refused: the registry does not take it.
            Absent: see there.
        """
        found = self._get(f"/subjects/{quote(subject, safe='')}/versions", {"schema": schema})
        return int(found["id"])

    def _get(self, path: str, sent: dict[str, str] | None = None) -> dict[str, Any]:
        """The answer to a GET, or to a POST of what is sent."""
        where, body = f"the Schema Registry {self.url}", bytearray()
        client = httpx.Client(
            auth=self._login, timeout=READ_SECONDS, headers={"Accept": _ACCEPT}, follow_redirects=False,
            verify=self._tls,
        )  # fmt: skip
        late = Timer(WHOLE_SECONDS, client.close)  # an answer byte by byte has no other limit
        late.daemon = True
        late.start()
        try:
            method = "GET" if sent is None else "POST"
            with client, client.stream(method, self.url + path, json=sent) as response:
                for part in response.iter_bytes(64 << 10):
                    body += part
                    if len(body) > MOST_BYTES:
                        raise Absent(f"{where} answers with more than {MOST_BYTES >> 20} MiB")
                status = response.status_code
        except (httpx.HTTPError, OSError, RuntimeError, ValueError) as error:
            if not late.is_alive():
                raise Absent(f"{where} has not answered completely within {WHOLE_SECONDS:g} s") from None
            raise Absent(f"{where} cannot be read: {type(error).__name__} {error}".rstrip()) from None
        finally:
            late.cancel()
        if sent is not None and 400 <= status < 500 and status not in _LATER:
            raise Refused(f"{where} refuses POST {path} with status {status}: {_said(body)}")
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError:
            found = None
        if sent is None and status == 404 and isinstance(found, dict) and found.get("error_code") in NOT_FOUND:
            raise Unknown
        if status != 200:
            raise Absent(f"{where} answers with status {status}{_HINTS.get(status, '')}")
        name, kind = ("schema", str) if sent is None else ("id", int)
        if not isinstance(found, dict) or not isinstance(found.get(name), kind):
            raise Absent(f"{where} answers with something that is no schema; registry_url may be another service")
        return found


def _said(body: bytearray) -> str:
    """What an error of the registry says."""
    try:
        return " ".join(str(orjson.loads(body)["message"]).split())[:1000]
    except (ValueError, KeyError, TypeError):
        return "without a message"
