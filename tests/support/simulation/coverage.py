"""Which fault has met which state of which role. A role's state is what it asks Kafka for.

    PYTHONPATH=tests python -m support.simulation.report 0 170

runs these seeds of `tests/kafka/simulation/test_faults.py` and prints the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

STATES: Mapping[str, str] = {
    "ApiVersion": "connecting", "Metadata": "connecting", "FindCoordinator": "connecting",
    "JoinGroup": "joining", "SyncGroup": "assigning", "LeaveGroup": "leaving",
    "OffsetFetch": "positioning", "Offset": "positioning", "DescribeGroups": "asking", "DescribeConfigs": "asking",
    "InitProducerId": "starting", "Fetch": "reading", "Heartbeat": "waiting", "Produce": "writing",
    "AddPartitionsToTxn": "opening", "AddOffsetsToTxn": "writing", "TxnOffsetCommit": "committing",
    "OffsetCommit": "committing", "EndTxn": "ending", "DeleteRecords": "deleting",
}  # fmt: skip


def state_of(request: str, fields: Mapping[str, Any]) -> str:
    """The state of a role that sends this request. A role that takes partitions over asks for all that its group has
    committed."""
    if request == "OffsetFetch" and fields["topics"] is None:
        return "taking over"
    return STATES.get(request, "asking")


Triple = tuple[str, str, str]
"""Fault, role, state."""

_ALL = ("connecting", "joining", "assigning", "positioning", "starting", "reading", "waiting", "writing", "committing",
        "leaving")  # fmt: skip
_TRANSACTIONAL = (*_ALL, "taking over", "opening", "ending")
REACHED: Mapping[str, Sequence[str]] = {
    "sign": _ALL, "sequence": _ALL, "match": _ALL, "judge": _TRANSACTIONAL, "forward": _TRANSACTIONAL,
}  # fmt: skip
"""The states that a fault can meet in each role."""
OF_TRANSACTIONS = "aborted", "fenced"
"""Faults that only meet roles with transactions."""
OF_DISKS = ("disk_full",)
"""Faults that only meet match: of these roles it alone writes to its disk."""


def triples(faults: Iterable[str]) -> list[Triple]:
    """All that can meet."""
    return [
        (fault, role, state)
        for fault in faults
        for role, states in REACHED.items()
        for state in states
        if ("opening" in states or fault not in OF_TRANSACTIONS) and (role == "match" or fault not in OF_DISKS)
    ]


def table(met: Iterable[Triple], faults: Sequence[str]) -> str:
    """How often each fault met each state of each role; a dot for never."""
    counts = Counter(met)
    lines = [f"{'':22}" + " ".join(f"{fault:>{len(fault)}}" for fault in faults)]
    for role, states in REACHED.items():
        for state in states:
            cells = (f"{counts[fault, role, state] or '.':>{len(fault)}}" for fault in faults)
            lines.append(f"{role + ' ' + state:22}" + " ".join(cells))
    wanted = set(triples(faults))
    return "\n".join([*lines, f"{len(wanted & set(counts))} of {len(wanted)} have met"])
