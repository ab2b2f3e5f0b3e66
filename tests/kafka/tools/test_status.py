"""What status makes of what was seen, and the screen that shows it; without a broker."""

import asyncio
import importlib
import shutil
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import click
import pytest
from aiokafka.errors import KafkaConnectionError
from prometheus_client.parser import text_string_to_metric_families
from support import commands

from stream_lsh.cli.kafka.status import places
from stream_lsh.cli.screen import lines
from stream_lsh.errors import UsageError
from stream_lsh.kafka.names import Topics
from stream_lsh.kafka.sequence.order import Accepted
from stream_lsh.kafka.settings import ROLES, KafkaSettings
from stream_lsh.kafka.sign.position import Pause
from stream_lsh.kafka.tools.exporter import metrics
from stream_lsh.kafka.tools.seen import Group, Member, Next, Reader, Seen
from stream_lsh.kafka.tools.status import INPUTS, Report, report
from stream_lsh.kafka.tools.workers import Answer

NOW = 1_795_000_000.0
HOUR = 3600.0
NAMES = {name: f"news.{name}" for name in Topics.__dataclass_fields__ if name != "prefix"}
LIVE = {"live": True, "seconds_since": {}}
STOPPED = {"judge": {"live": False, "stopped": "replies were deleted", "seconds_since": {}}}


def group(role: str, *hosts: str, state: str = "Stable") -> Group:
    """The first of the hosts works, the others stand by; with match they have its copies."""
    first = {NAMES[INPUTS[role]]: (0, 1) if role == "match" else (0,)}
    copies = {NAMES["changelog"]: (0, 1)} if role == "match" else {}
    return Group(state, [Member(host, copies | (first if not number else {})) for number, host in enumerate(hosts)])


def seen(**given: Any) -> Seen:
    """Two source partitions, two shards, at rest: 200 documents have their verdict."""
    readers = [
        Reader("sign", "documents", 0, 0, 100, 100), Reader("sign", "documents", 1, 0, 100, 100),
        Reader("sequence", "signatures", 0, 0, 50, 50),
        Reader("match", "frames", 0, 0, 50, 50), Reader("match", "frames", 1, 0, 50, 50),
        Reader("judge", "matches", 0, 0, 100, 100),
        Reader("forward", "documents", 0, 0, 100, 100), Reader("forward", "documents", 1, 0, 100, 100),
        Reader("forward", "verdicts", 0, 0, 140, 140), Reader("forward", "verdicts", 1, 0, 140, 140),
    ]  # fmt: skip
    values: dict[str, Any] = {
        "now": NOW, "names": NAMES, "groups": {role: group(role, "10.0.0.1", "10.0.0.2") for role in ROLES},
        "readers": readers, "provisional": {0: (0, None), 1: (0, None)},
        "accepted": Accepted(bytes(16), {0: 100, 1: 100}, 49, 200), "with_verdict": 200, "complete": 48, "nexts": {},
        "kept": dict.fromkeys(NAMES.values(), 10 * HOUR) | {NAMES["changelog"]: None}, "sources": 2, "outputs": 2,
        "answers": [Answer("10.0.0.1", 8080, roles={"match": LIVE}, version="0.1.0",
                           shards={shard: {"documents": 90, "bytes": 7000, "recovering": 0} for shard in (0, 1)})],
    }  # fmt: skip
    return Seen(**(values | given))


def waiting(found: Seen, role: str, topic: str, partition: int, position: int | None, age: float) -> list[Reader]:
    """The readers, one of which is at a position, with what came so long ago as the next."""
    place, moved = (role, topic, partition), {"position": position, "since": NOW - age}
    return [replace(r, **moved) if (r.role, r.topic, r.partition) == place else r for r in found.readers]


def troubles_of(found: Report) -> list[tuple[bool, str, str]]:
    return [(trouble.critical, trouble.alert, trouble.text) for trouble in found.troubles]


def screen(found: Report, before: Report | None = None) -> str:
    return "\n".join(lines(found, "news at kafka-1:9092", before))


def test_the_screen_of_a_pipeline_at_rest() -> None:
    assert (
        screen(report(seen(), 16384))
        == """\
news at kafka-1:9092  2026-11-18 11:06:40 UTC

Nothing is wrong.

without a verdict    0
being compared       0  0 % of 16,384 (decision_lag)
with a verdict     200

ROLE      ACTIVE    STANDBY   WAITING  FOR  UNTIL DELETED
sign      10.0.0.1  10.0.0.2        0
sequence  10.0.0.1  10.0.0.2        0
match     10.0.0.1  10.0.0.2        0
judge     10.0.0.1  10.0.0.2        0
forward   10.0.0.1  10.0.0.2        0

SHARD  WORKER    STANDBYS  WAITING  FOR  ROWS  BYTES  STILL TO READ
0      10.0.0.1  10.0.0.2        0         90   7 kB              0
1      10.0.0.1  10.0.0.2        0         90   7 kB              0

PROCESS        VERSION  ROLES
10.0.0.1:8080  0.1.0    match"""
    )


def test_documents_are_counted_at_each_stage() -> None:
    accepted = Accepted(bytes(16), {0: 90, 1: 95}, 49, 185)
    nexts = {0: Next(47, 46, 170), 1: Next(45, 44, 150)}
    found = seen(provisional={0: (60, NOW - 12), 1: (40, NOW - 3)}, with_verdict=130, accepted=accepted, nexts=nexts)
    readers = waiting(found, "sign", "documents", 0, 97, 2)
    readers = waiting(replace(found, readers=readers), "match", "frames", 0, 48, 5)
    readers = waiting(replace(found, readers=readers), "match", "frames", 1, 45, 7)
    readers = waiting(replace(found, readers=readers), "forward", "verdicts", 1, 135, 1)
    got = report(replace(found, readers=readers), 100)
    by_role = {role.name: (role.waiting, role.unit, role.seconds) for role in got.roles}
    assert by_role["sign"] == (3, "document", 2)
    assert by_role["sequence"] == (7 + 5, "document", 0)  # signed up to 97 and 100, accepted up to 90 and 95
    assert by_role["match"] == (35, "document", 7)  # the slower shard: 185 - 150
    assert by_role["judge"] == (20, "document", 0)  # both shards have answered 150
    assert by_role["forward"] == (5, "document", 1)
    assert (got.provisional, got.oldest, got.under_way) == (100, 12, 55)
    assert [(shard.waiting, shard.seconds) for shard in got.shards] == [(15, 5), (35, 7)]
    text = screen(got, replace(got, time=NOW - 2, with_verdict=100))
    assert "without a verdict  100  the oldest arrived 12 s ago" in text
    assert "being compared      55  55 % of 100 (decision_lag)" in text
    assert "with a verdict     130  15/s now" in text
    assert "match     10.0.0.1  10.0.0.2  35 documents  7 s  10 h 00 min" in text
    full = screen(report(seen(with_verdict=105), 100))
    assert "being compared      95  95 % of 100 (decision_lag); sequence waits for judge" in full


def test_without_readable_commits_records_are_counted() -> None:
    found = seen(accepted=None, with_verdict=None, unread="a frame was made with other settings")
    readers = waiting(found, "sequence", "signatures", 0, 20, 4)
    readers = waiting(replace(found, readers=readers), "match", "frames", 1, 49, 4)
    readers = waiting(replace(found, readers=readers), "judge", "matches", 0, 98, 4)
    text = screen(report(replace(found, readers=readers), 100))
    assert "30 frames" in text and "1 frame " in text and "2 replies" in text
    assert "being compared     not known" in text
    assert "Documents that wait for match cannot be counted: a frame was made with other settings." in text


def stuck(age: float, **given: Any) -> Seen:
    """Shard 1 has not answered frame 1234, which is there since so long; shard 0 is at the next one."""
    values = {"complete": 1230, "nexts": {0: Next(1240, 1234, 195), 1: Next(1234, 1230, 190)}, "with_verdict": 190}
    found = seen(provisional={0: (10, NOW - 250)}, **(values | given))
    readers = waiting(found, "match", "frames", 0, 49, age)
    return replace(found, readers=waiting(replace(found, readers=readers), "match", "frames", 1, 48, age))


def test_the_frame_that_everything_waits_for_is_named() -> None:
    got = report(stuck(10.0), 100)
    assert asdict(got)["waits"] == {"shards": (1,), "frame": 1234}
    text = screen(got)
    assert "being compared      10  10 % of 100 (decision_lag); waiting for shard 1: frame 1234" in text
    late = "the oldest document without a verdict arrived 4 min 10 s ago; waiting for shard 1: frame 1234"
    assert troubles_of(got) == [(False, "StreamLshVerdictsLate", late)]


@pytest.mark.parametrize(
    "given",
    [
        {"complete": 1234},  # shard 1 has answered, and only not committed it: all wait for the judge
        {"complete": 1100},  # likewise: the judge is behind both
        {"complete": None},  # by a judge of another version
        {"nexts": {}},  # of other settings
        {"age": 9.9},  # it has just come
    ],
    ids=repr,
)
def test_no_shard_is_named_that_is_not_waited_for(given: dict[str, Any]) -> None:
    if given == {"complete": 1234}:
        given |= {"nexts": {1: Next(1234, 1230, 190)}}
    assert report(stuck(**{"age": 600.0} | given), 100).waits is None


def nobody(role: str) -> dict[str, Group]:
    return {name: group(name, "10.0.0.1") if name != role else Group("Empty", []) for name in ROLES}


def old(found: Seen, role: str, topic: str, position: int) -> Seen:
    return replace(found, readers=waiting(found, role, topic, 0, position, 90))


RECOVERING = [Answer("10.0.0.1", 8080, shards={1: {"recovering": 7}})]


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (old(seen(groups=nobody("sign")), "sign", "documents", 90),
         "sign does not move: news.documents, partition 0, offset 90, waits for 1 min 30 s; it has no worker"),
        (old(seen(), "sequence", "signatures", 40),
         "sequence does not move: news.signatures, partition 0, offset 40, waits for 1 min 30 s; "
         "look at the log of 10.0.0.1"),
        # Judge waits for the shard, and sequence for judge.
        (old(old(stuck(20.0), "judge", "matches", 90), "sequence", "signatures", 40),
         "shard 1 does not move: news.frames, partition 1, offset 48, waits for 20 s (frame 1234); "
         "look at the log of 10.0.0.1"),
        (stuck(20.0, answers=RECOVERING),
         "shard 1 does not move: news.frames, partition 1, offset 48, waits for 20 s (frame 1234); "
         "it is recovering: 7 changelog records to read"),
        (old(seen(answers=[Answer("10.0.0.1", 8080, roles=STOPPED)]), "judge", "matches", 90),
         "judge does not move: news.matches, partition 0, offset 90, waits for 1 min 30 s; "
         "10.0.0.1:8080 has stopped: replies were deleted"),
    ],
    ids=["sign", "sequence", "match", "recovering", "judge"],
)  # fmt: skip
def test_first_stage_that_does_not_move_is_named(found: Seen, text: str) -> None:
    window = 10 if found.with_verdict == 190 else 1000
    got = report(found, window, found)
    assert got.blocked is not None and got.blocked.text == text
    assert f"\nWAITING FOR  {text}\n" in screen(got)
    moved = replace(found, readers=[replace(r, position=r.next - 1) for r in found.readers])
    assert report(found, window, moved).blocked is None


SHARED = {"state": "PreparingRebalance"}
STILL = {"judge": {"live": False, "seconds_since": {}}}


@pytest.mark.parametrize(
    ("given", "critical", "alert", "text"),
    [
        ({"groups": nobody("judge")}, True, "StreamLshNoWorker", "judge has no worker"),
        ({"groups": nobody("") | {"match": Group("Stable", [Member("10.0.0.1", {NAMES["frames"]: (0,)})])}},
         True, "StreamLshShardUnanswered", "shard 1 has no worker: no verdicts"),
        ({"groups": nobody("") | {"sign": group("sign", "10.0.0.1", **SHARED)}},
         False, "StreamLshRebalances", "the consumer group of sign is rebalancing"),
        ({"answers": [Answer("10.0.0.7", 8080, error="no answer from http://10.0.0.7:8080 (timed out)")]},
         False, "StreamLshDown", "no answer from http://10.0.0.7:8080 (timed out)"),
        ({"answers": [Answer("10.0.0.7", 8080, roles=STOPPED)]},
         True, "StreamLshRoleStopped", "judge at 10.0.0.7:8080 has stopped: replies were deleted"),
        ({"answers": [Answer("::1", 8080, roles=STILL)]},
         True, "StreamLshNoCommit", "judge at [::1]:8080 has committed nothing for a minute"),
        ({"answers": [Answer("10.0.0.1", 8080, shards={1: {"recovering": 1234}})]},
         False, "StreamLshRecovering", "shard 1 is recovering: 1,234 changelog records to read"),
        ({"answers": [Answer("a", 1, version="0.1.0"), Answer("b", 1, version="0.2.0")]},
         False, "StreamLshVersions", "workers have different versions: 0.1.0, 0.2.0"),
        ({"provisional": {0: (3, NOW - 250)}},
         False, "StreamLshVerdictsLate", "the oldest document without a verdict arrived 4 min 10 s ago"),
        ({"provisional": {0: (3, NOW - 250)}, "pause": Pause("drain (drain --resume ends it)", int(NOW - 180) * 1000)},
         False, "StreamLshVerdictsLate",
         "news.documents has not been read for 3 min 00 s: drain (drain --resume ends it)"),
        ({"sources": 5}, False, "StreamLshPartitionsExcluded",
         "sign does not read 3 partitions of news.documents: "
         "the outputs have fewer; run `stream-lsh kafka topics create`"),
        ({"readers": waiting(seen(), "sign", "documents", 1, 90, 8 * HOUR)}, True, "StreamLshRetention",
         "news.documents, partition 1: what sign has to read next may be deleted in 2 h 00 min"),
        ({"readers": [*seen().readers[:-1], Reader("forward", "verdicts", 1, 120, 140, 100, NOW - 9)]}, True,
         "StreamLshRetention", "news.verdicts, partition 1: 20 records were deleted before forward had read them"),
    ],
    ids=lambda value: value if isinstance(value, str) and value.startswith("StreamLsh") else "",
)  # fmt: skip
def test_what_is_wrong(given: dict[str, Any], critical: bool, alert: str, text: str) -> None:
    got = report(seen(**given), 16384)
    assert troubles_of(got) == [(critical, alert, text)]
    word = "CRITICAL" if critical else "warning "
    assert screen(got).splitlines()[2:4] == [
        "WRONG   what to do: docs/how-to/runbook/index.md", f"{word.strip()}  {alert}  {text}",
    ]  # fmt: skip


def test_the_worst_is_first() -> None:
    got = report(seen(groups=nobody("sequence"), sources=3, provisional={0: (1, NOW - 100)}), 16384)
    assert [critical for critical, _, _ in troubles_of(got)] == [True, False, False]


def test_the_partition_that_is_worst_off_counts_for_all() -> None:
    readers = [replace(r, position=90, since=NOW - 8 * HOUR - r.partition) for r in seen().readers if r.role == "sign"]
    others = [r for r in seen().readers if r.role != "sign"]
    text = "news.documents, partition 1 and 1 more: what sign has to read next may be deleted in 2 h 00 min"
    assert troubles_of(report(seen(readers=readers + others), 16384)) == [(True, "StreamLshRetention", text)]


def test_what_is_kept_for_ever_is_not_overtaken() -> None:
    found = seen(readers=waiting(seen(), "sign", "documents", 1, 90, 1e9), kept=dict.fromkeys(NAMES.values()))
    assert troubles_of(report(found, 16384)) == []


def test_each_documents_topic_has_its_own_retention() -> None:
    topics = (NAMES["documents"], "tickets")
    readers = waiting(seen(), "sign", "documents", 1, 90, 8 * HOUR)
    kept = {**seen().kept, NAMES["documents"]: 100 * HOUR, "tickets": HOUR}
    assert troubles_of(report(seen(readers=readers, documents=topics, kept=kept), 16384)) == []
    [(critical, alert, _)] = troubles_of(report(seen(readers=readers, documents=topics[::-1], kept=kept), 16384))
    assert (critical, alert) == (True, "StreamLshRetention")


def test_a_partition_without_a_commit() -> None:
    """Nothing is overtaken: its beginning is where it will begin."""
    readers = [
        replace(r, position=None, begin=30, since=NOW - 2) if r.topic == "documents" else r for r in seen().readers
    ]
    got = report(seen(readers=readers, accepted=Accepted(bytes(16))), 16384)
    assert troubles_of(got) == []
    assert [(role.name, role.waiting) for role in got.roles[:2]] == [("sign", 140), ("sequence", 0)]


def test_workers_that_were_not_asked() -> None:
    text = screen(report(seen(answers=None), 16384))
    assert "Workers were not asked: give --http-port or --workers" in text
    assert "0      10.0.0.1  10.0.0.2        0          ?      ?              ?" in text


def test_many_hosts_do_not_make_the_screen_wide() -> None:
    hosts = [f"10.0.0.{number // 2}" for number in range(12)]
    groups = nobody("") | {"forward": group("forward", "10.0.0.9", *hosts)}
    text = screen(report(seen(groups=groups), 1))
    assert "forward   10.0.0.9  10.0.0.0 (2), 10.0.0.1 (2), 10.0.0.2 (2) and 3 more" in text


def test_stream_time_is_shown_beside_the_clock() -> None:
    for time, words in ((int(NOW - 90) * 1000, "1 min 30 s  behind"), (int(NOW + 9) * 1000, "9 s  ahead of")):
        accepted = Accepted(bytes(16), {0: 90}, 49, 185, {"last": [time], "time": time})
        assert words + " the clock" in screen(report(seen(accepted=accepted), 1))
    assert "stream time" not in screen(report(seen(), 1))
    begun = Accepted(bytes(16), {0: 90}, 49, 185, {"last": [], "time": -1})
    assert report(seen(accepted=begun), 1).behind is None


def test_metrics_of_a_report() -> None:
    found = seen(provisional={0: (3, NOW - 250)}, groups=nobody("judge"), with_verdict=150,
                 pause=Pause("drain", int(NOW - 9) * 1000),
                 readers=waiting(seen(), "sign", "documents", 1, 90, 8 * HOUR))  # fmt: skip
    text = metrics(report(found, 16384)).decode()
    got = {
        (sample.name.removeprefix("stream_lsh_"), *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert got["role_members", "judge"] == 0 and got["role_members", "sign"] == 1
    assert got["role_lag_documents", "sign"] == 10 and got["role_lag_seconds", "sign"] == 8 * HOUR
    assert got["role_retention_left_ratio", "sign"] == pytest.approx(0.2)
    assert got["role_retention_left_ratio", "judge"] == 1
    assert (got["provisional_documents",], got["oldest_provisional_seconds",]) == (3, 250)
    assert got["paused_seconds",] == 9
    assert (got["window_documents",], got["window_limit_documents",], got["unanswered_shards",]) == (50, 16384, 0)


def test_addresses_of_workers() -> None:
    assert places("a:8080, [::1]:9,") == [("a", 8080), ("::1", 9)]
    for text in ("a", "a:", ":1", "a:0", "a:x", "a:70000"):
        with pytest.raises(UsageError, match="is not host:port"):
            places(text)


def test_a_screen_is_drawn_over_the_one_before(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Brokers that are away for a while are no end; what does not fit is cut off."""
    command = importlib.import_module("stream_lsh.cli.kafka.status")
    well, ill = report(seen(), 1), report(seen(groups=nobody("sign")), 1)
    looks = iter([KafkaConnectionError("gone"), ill, KafkaConnectionError("gone"), well, KeyboardInterrupt()])

    async def once(*_: object) -> Report:
        found = next(looks)
        if isinstance(found, BaseException):
            raise found
        return found

    monkeypatch.setattr(command, "_once", once)
    monkeypatch.setattr(command, "SECONDS", 0)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: (42, 12))
    with pytest.raises(KafkaConnectionError):  # the first look has to succeed
        asyncio.run(command._watch(KafkaSettings(), []))
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(command._watch(KafkaSettings(), []))
    first, second, third = capsys.readouterr().out.split(command.HOME)[1:]
    plain = click.unstyle(first).replace(command.REST, "")
    assert "CRITICAL  StreamLshNoWorker  sign has no\n          worker\n" in plain
    assert any(row.endswith("…") and len(row) == 42 for row in plain.splitlines()) and first.count("\n") == 11
    assert "CANNOT LOOK: " in second and "The screen below is older." in second and "stream-lsh at" in second
    assert "Nothing is wrong." in third and third.endswith(command.BELOW)


@pytest.mark.parametrize("more", [["--once"], ["--json"], ["--workers", "a:1"]])
def test_to_serve_is_to_go_on(more: Sequence[str]) -> None:
    assert "--serve does not end" in commands.run("kafka", "status", "--serve", "9200", *more, code=2).output
