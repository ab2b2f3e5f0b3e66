"""A report on the pipeline as a screen: what is wrong first, then figures in columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from stream_lsh.kafka.tools.status import FULL, Report, Role, Shard
from stream_lsh.wording import aligned, count, duration, per_second, share, size

CRITICAL, WARNING, BLOCKED = "CRITICAL", "warning", "WAITING FOR"
RUNBOOK = "docs/how-to/runbook/index.md"
Row = tuple[str, ...]
_RIGHT = {"waiting", "for", "rows", "bytes", "still to read"}  # columns of figures


def lines(report: Report, title: str, before: Report | None = None) -> list[str]:
    """The screen. title: which pipeline; before: an earlier report, from which speed is known."""
    when = datetime.fromtimestamp(report.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return [f"{title}  {when}", "", *_wrong(report), "", *_blocked(report), *_documents(report, before), "",
            *_roles(report), "", *_shards(report), "", *_workers(report)]  # fmt: skip


def _wrong(report: Report) -> Iterator[str]:
    if not report.troubles:
        yield "Nothing is wrong."
        return
    yield f"WRONG   what to do: {RUNBOOK}"
    yield from aligned(
        [(CRITICAL if trouble.critical else WARNING, trouble.alert, trouble.text) for trouble in report.troubles]
    )


def _blocked(report: Report) -> Sequence[str]:
    return [f"{BLOCKED}  {report.blocked.text}", ""] if report.blocked is not None else []


def _documents(report: Report, before: Report | None) -> Iterator[str]:
    late = f"the oldest arrived {duration(report.oldest)} ago" if report.provisional else ""
    rows = [("without a verdict", count(report.provisional), late)]
    if report.under_way is None:
        rows.append(("being compared", "not known", "no commits of sequence and judge that this version can read"))
    else:
        full = report.under_way >= FULL * report.window
        room = f"{share(report.under_way, report.window)} of {count(report.window)} (decision_lag)"
        room += "; sequence waits for judge" if full else ""
        rows.append(("being compared", count(report.under_way), room + (f"; {report.waits}" if report.waits else "")))
    if report.with_verdict is not None:
        speed = ""
        if before is not None and before.with_verdict is not None and report.time > before.time:
            speed = f"{per_second((report.with_verdict - before.with_verdict) / (report.time - before.time))} now"
        rows.append(("with a verdict", count(report.with_verdict), speed))
    if report.behind is not None:
        ahead = "ahead of" if report.behind < 0 else "behind"
        rows.append(("stream time", duration(abs(report.behind)), f"{ahead} the clock"))
    yield from aligned(rows, right={1})


def _roles(report: Report) -> Iterator[str]:
    rows: list[Row] = [("role", "active", "standby", "waiting", "for", "until deleted")]
    for role in report.roles:
        rows.append(
            (
                role.name, _hosts(role.working), _hosts(role.standing_by), *_wait(role),
                "" if role.left is None else duration(role.left[0]),
            )
        )  # fmt: skip
    yield from titled(rows)


def _shards(report: Report) -> Iterator[str]:
    rows: list[Row] = [("shard", "worker", "standbys", "waiting", "for", "rows", "bytes", "still to read")]
    for shard in report.shards:
        rows.append(
            (
                str(shard.number), shard.owner or "NONE", _hosts(shard.standbys), *_wait(shard),
                *("?" if value is None else words(value) for value, words in
                  ((shard.documents, count), (shard.bytes, size), (shard.recovering, count))),
            )
        )  # fmt: skip
    yield from titled(rows)


def _workers(report: Report) -> Iterator[str]:
    if report.unread is not None:
        yield f"Documents that wait for match cannot be counted: {report.unread}. Give status the workers' settings."
        yield ""
    if report.workers is None:
        yield "Workers were not asked: give --http-port or --workers to see rows, bytes, recovery and versions."
        return
    rows = [("process", "version", "roles")]
    for worker in report.workers:
        roles = ", ".join(_life(name, role) for name, role in worker.roles.items())
        rows.append((worker.address, worker.version or "?", worker.error or roles))
    yield from titled(rows)


def _life(name: str, role: dict[str, object]) -> str:
    if role.get("stopped"):
        return f"{name} STOPPED"
    return name if role["live"] else f"{name} NO PROGRESS"


def _wait(what: Role | Shard) -> tuple[str, str]:
    if not what.waiting:
        return "0", ""
    many = count(what.waiting, what.unit, "replies" if what.unit == "reply" else None)
    return many, duration(what.seconds) if what.seconds else ""


def _hosts(hosts: Sequence[str]) -> str:
    """`10.0.0.1`, `10.0.0.1 (2), 10.0.0.2`."""
    if not hosts:
        return "-"
    numbers = {host: hosts.count(host) for host in hosts}
    named = [host if number == 1 else f"{host} ({number})" for host, number in numbers.items()]
    return ", ".join(named[:3]) + (f" and {len(named) - 3} more" if len(named) > 3 else "")


def titled(rows: Sequence[Row]) -> Iterator[str]:
    """Rows under titles, the first of them, in capitals."""
    right = {number for number, name in enumerate(rows[0]) if name in _RIGHT}
    return aligned([tuple(name.upper() for name in rows[0]), *rows[1:]], right)
