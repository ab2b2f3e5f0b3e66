"""The latest verdicts of a pipeline: by source position, for waiting requests, and by id. Pure."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from typing import Any

from stream_lsh.judging.verdicts import Kind

Id = str | int
Place = tuple[int, int]  # partition and offset in the documents topic
STORED = {kind.label for kind in (Kind.UNIQUE, Kind.NEAR_DUPLICATE, Kind.EXACT_DUPLICATE)}
ARRIVED = 20_000  # limit of stored verdicts for requests that do not have their source position yet


class Verdicts:
    """The latest verdicts.

    Args:
        most: number of documents that are found by id.
        keeps: whether only representatives are kept (`compare_with = "kept"`).
        topic: of the documents that requests wait for; None: there is one.
    """

    def __init__(self, most: int, *, keeps: bool, topic: str | None = None) -> None:
        self._most = most
        self._topic = topic
        self._keeps = keeps
        self._known: OrderedDict[Id, dict[str, Any]] = OrderedDict()
        # By id and seq of a document, and by id: the seq of the latest verdict that says so.
        self._representatives: OrderedDict[tuple[Id, int], int] = OrderedDict()
        self._superseded: OrderedDict[Id, int] = OrderedDict()
        self._arrived: OrderedDict[Place, bytes] = OrderedDict()
        self._waiting: dict[Place, asyncio.Future[bytes]] = {}

    def clear(self) -> None:
        """Drop everything: the topics were recreated."""
        self._known.clear()
        self._representatives.clear()
        self._superseded.clear()
        self._arrived.clear()

    def add(self, value: bytes, verdict: dict[str, Any]) -> None:
        """Add the next verdict of a partition. value: the record; verdict: the same, parsed."""
        source = verdict["source"]
        place = source["partition"], source["offset"]
        answer = self._answer(value, verdict)
        self._remember(verdict)
        if source["topic"] != (self._topic or source["topic"]):
            return
        self._arrived[place] = answer
        if len(self._arrived) > ARRIVED:
            self._arrived.popitem(last=False)
        if (waiting := self._waiting.pop(place, None)) is not None and not waiting.done():
            waiting.set_result(answer)

    def wait(self, place: Place) -> asyncio.Future[bytes]:
        """The future answer to the document at a source position."""
        if (found := self._waiting.get(place)) is None:
            found = asyncio.get_running_loop().create_future()
            if place in self._arrived:
                found.set_result(self._arrived[place])
            else:
                self._waiting[place] = found
        return found

    def give_up(self, place: Place) -> None:
        """Drop the future of a source position."""
        self._waiting.pop(place, None)

    def of(self, id: Id) -> dict[str, Any] | None:
        """A document: its first verdict, if stored, its `source` and its `state`. For a rejected document the verdict
        itself, with the state `rejected`."""
        return self._known.get(id)

    def _answer(self, value: bytes, verdict: dict[str, Any]) -> bytes:
        """The answer to the sender. For a redelivered document it is the first verdict with its seq, if stored."""
        if verdict["kind"] != "redelivered" or verdict.get("first_kind") is None:
            return value
        first = self._known.get(verdict["id"])
        number = None if first is None else first["seq"]
        said = {**verdict, "seq": number, "kind": verdict["first_kind"], "redelivered": verdict["seq"]}
        del said["first_kind"]
        return json.dumps(said, separators=(",", ":")).encode("ascii")

    def _remember(self, verdict: dict[str, Any]) -> None:
        id, seq, kind = verdict["id"], verdict["seq"], verdict["kind"]
        for representative in (
            *([verdict["new_representative"]] if "new_representative" in verdict else ()),
            *verdict.get("new_representatives", ()),
        ):
            self._note(self._representatives, (representative["id"], representative["seq"]), seq)
            self._look(representative["id"])
        if "supersedes" in verdict:
            self._note(self._superseded, verdict["supersedes"], seq)
            self._look(verdict["supersedes"])
        if id is None:
            return
        known = self._known.get(id)
        if known is not None and known["seq"] is not None and seq < known["seq"]:
            return  # a repetition
        if kind == "deleted":
            self._known.pop(id, None)
        elif kind in STORED:
            self._put(id, {**_facts(verdict), "state": self._state(kind, id, seq)})
        elif kind == "redelivered" and (known is None or known["state"] == "rejected"):
            first = verdict.get("first_kind")
            self._put(id, {**_facts(verdict), "seq": None, "kind": first, "state": self._state(first, id, None)})
        elif kind == "rejected" and known is None:
            self._put(id, {**verdict, "state": "rejected"})

    def _state(self, kind: str | None, id: Id, seq: int | None) -> str:
        """Whether a document is kept. What other verdicts say of it may be read first: they are of other partitions."""
        since = (seq or 0) if kind == "unique" else -1  # the seq of the verdict by which it is kept
        if seq is not None:
            since = max(since, self._representatives.get((id, seq), -1))
        return "kept" if not self._keeps or since > self._superseded.get(id, -1) else "dropped"

    def _look(self, id: Id) -> None:
        """Update the state of a document."""
        known = self._known.get(id)
        if known is not None and known["state"] != "rejected":
            known["state"] = self._state(known["kind"], id, known["seq"])

    def _note(self, noted: OrderedDict[Any, int], key: Any, seq: int) -> None:
        noted[key] = max(seq, noted.get(key, -1))
        if len(noted) > self._most:
            noted.popitem(last=False)

    def _put(self, id: Id, facts: dict[str, Any]) -> None:
        self._known[id] = facts
        self._known.move_to_end(id)
        if len(self._known) > self._most:
            self._known.popitem(last=False)


def _facts(verdict: dict[str, Any]) -> dict[str, Any]:
    return {
        name: verdict[name] for name in ("id", "seq", "kind", "duplicate_of", "similarity", "group", "time", "source")
    }
