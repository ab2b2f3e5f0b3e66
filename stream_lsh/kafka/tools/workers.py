"""Asking workers over HTTP: /health and /metrics of each of their processes; and services whether they are ready."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

SECONDS = 5.0  # time limit of a response
OTHER = "what answers at"
EVERY_ADDRESS = ("0.0.0.0", "::")
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_AT_ONCE = 16
MOST_PROCESSES = 5  # of a worker


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a process.

    Attributes:
        error: why there is no answer.
        roles: as in /health.
        shards: by shard, its documents, bytes and remaining changelog records, as far as they are reported.
    """

    host: str
    port: int
    error: str | None = None
    roles: Mapping[str, Any] = field(default_factory=dict)
    version: str | None = None
    shards: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{_bracketed(self.host)}:{self.port}"


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def health(host: str, port: int) -> dict[str, Any] | str:
    """The /health of a process, or why there is none."""
    where = f"http://{_bracketed(host)}:{port}"
    try:
        found = json.loads(_get(f"{where}/health"))
        if isinstance(found, dict) and "roles" in found:
            return found
    except ValueError:
        pass
    except OSError as error:
        reason = getattr(error, "reason", error)
        return f"no answer from {where} ({getattr(reason, 'strerror', None) or reason})"
    except http.client.HTTPException as error:  # an incomplete response, or not HTTP at all
        return f"no answer from {where} ({error!r:.100})"
    return f"{OTHER} {where} is not a worker"


def service_health(host: str, port: int, https: bool) -> tuple[bool, str] | None:
    """Whether a service (`stream-lsh serve`) accepts documents, and what it says; None if nothing like it answers."""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unverified)
    )  # fmt: skip
    try:
        found = json.loads(_get(f"http{'s' * https}://{_bracketed(host)}:{port}/health/ready", opener))
    except (OSError, ValueError, http.client.HTTPException):
        return None
    if not isinstance(found, dict) or "status" not in found:
        return None
    return found.get("status") == "ready", str(found.get("detail", found["status"]))


def _get(url: str, opener: urllib.request.OpenerDirector = _DIRECT) -> bytes:
    try:
        with opener.open(url, timeout=SECONDS) as answer:
            body: bytes = answer.read()
    except urllib.error.HTTPError as error:  # an unhealthy process answers with an error status and a report
        body = error.read()
    return body


def ask(firsts: Iterable[tuple[str, int]]) -> list[Answer]:
    """Ask all processes of some workers, many at once.

    Args:
        firsts: host and port of the first process of each worker, which lists the ports of the others. If it does not
            answer, the next ports are asked.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = dict(pool.map(_one, dict.fromkeys(firsts)))
        silent = [(host, port) for (host, port), report in found.items() if isinstance(report, str)]
        behind = [(host, port + n) for host, port in silent for n in range(1, MOST_PROCESSES)]
        found |= {place: report for place, report in pool.map(_one, behind) if not isinstance(report, str)}
        others = [
            (host, port)
            for (host, _), report in found.items()
            if isinstance(report, dict)
            for port in report.get("ports", ())
        ]
        found |= dict(pool.map(_one, [place for place in dict.fromkeys(others) if place not in found]))
        return [*pool.map(_whole, sorted(found), [found[place] for place in sorted(found)])]


def _one(place: tuple[str, int]) -> tuple[tuple[str, int], dict[str, Any] | str]:
    return place, health(*place)


def _whole(place: tuple[str, int], report: dict[str, Any] | str) -> Answer:
    if isinstance(report, str):
        return Answer(*place, error=report)
    from prometheus_client.parser import text_string_to_metric_families

    version, shards = None, dict[int, dict[str, int]]()
    try:
        text = _get(f"http://{_bracketed(place[0])}:{place[1]}/metrics").decode()
        samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    except (OSError, ValueError, http.client.HTTPException) as error:
        return Answer(*place, error=f"no metrics from {place[0]}:{place[1]} ({error})", roles=report["roles"])
    for sample in samples:
        if sample.name == "stream_lsh_build_info":
            version = sample.labels["version"]
        elif sample.name in _OF_SHARDS:
            shards.setdefault(int(sample.labels["shard"]), {})[_OF_SHARDS[sample.name]] = int(sample.value)
    return Answer(*place, roles=report["roles"], version=version, shards=shards)


_OF_SHARDS = {
    "stream_lsh_index_documents": "documents",
    "stream_lsh_index_bytes": "bytes",
    "stream_lsh_recovery_remaining_records": "recovering",
}
