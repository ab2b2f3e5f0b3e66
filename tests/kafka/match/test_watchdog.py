"""What the watchdog of match finds under a simulated clock, and what it must not take for a stall."""

from dataclasses import replace
from typing import Any

import pytest

from stream_lsh.kafka.match.watchdog import (
    LATE_SECONDS,
    UNANSWERED_LOOKS,
    UNREAD_LOOKS,
    Again,
    Finding,
    Seen,
    Shard,
    Stall,
    Watchdog,
)

PATIENCE = 60  # seconds
REST = Shard(position=47, idle=True, handed=47, read=47, bounds=(0, 47))
LOST = replace(REST, handed=48, read=48, bounds=(0, 48))  # what the stall of issue 24 looks like
UNREAD = replace(REST, bounds=(0, 48))
TAIL = replace(REST, read=48, bounds=(0, 48))  # the end of a transaction has offset 47


class Play:
    """A watchdog, and a clock that is moved by hand."""

    def __init__(self) -> None:
        self.watchdog = Watchdog(PATIENCE)
        self.now = 1000.0
        self.hand_overs = 1

    def look(self, shard: Shard | None = None, seconds: float = 1.0, **seen: Any) -> list[Finding | Again]:
        """What a look finds, some time after the one before; `shard` is number 2."""
        self.now += seconds
        shards = {} if shard is None else {2: shard}
        return self.watchdog.look(Seen(self.hand_overs, shards=shards, **seen), self.now)

    def looks(self, number: int, shard: Shard | None = None, **seen: Any) -> list[list[Finding | Again]]:
        return [self.look(shard, **seen) for _ in range(number)]


def stalls(found: list[list[Finding | Again]]) -> list[tuple[int, Stall, bool]]:
    """By number of the look, from 1 on."""
    return [(n, f.stall, f.ends) for n, fs in enumerate(found, 1) for f in fs if isinstance(f, Finding)]


SLOW = replace(LOST, idle=False, handed=300, read=300, bounds=(0, 900))
NO_STALL = {
    # Each look may meet some between the client and the flow, as long as they arrive.
    "frames on their way": [replace(LOST, position=n, handed=n + 1, read=n + 1) for n in range(47, 247)],
    # Frames are matched for minutes, and the client has fetched ahead; a look meets the moment between two frames.
    "a slow disk": [*[SLOW] * 600, replace(SLOW, idle=True), *[SLOW] * 100],
    # More comes than is done: the brokers are ahead for ever.
    "a shard that moves": [
        replace(REST, position=n, read=n, handed=n, bounds=(0, 10**6)) for n in range(47, 270) for _ in range(9)
    ],
    # The end that a reader of committed records is told is before an open transaction.
    "an open transaction": [REST] * 600,
    "a silent broker": [replace(UNREAD, bounds=None)] * 600,
    "a broker that answers now and then": [*[UNREAD] * (UNREAD_LOOKS - 1), replace(UNREAD, bounds=None)] * 100,
}


@pytest.mark.parametrize("looks", NO_STALL.values(), ids=NO_STALL)
def test_what_is_no_stall(looks: list[Shard]) -> None:
    play = Play()
    assert not any(play.look(shard) for shard in looks)


def test_a_paused_process_has_lost_nothing() -> None:
    """What was on its way before a pause is still on its way right after it."""
    play = Play()
    for _ in range(UNREAD_LOOKS - 2):
        assert play.look(LOST, seconds=LATE_SECONDS + 0.1) == []
    assert stalls(play.looks(1, LOST)) == [(1, Stall.LOST, True)]


def test_what_was_seen_before_a_hand_over_does_not_count() -> None:
    play = Play()
    for _ in range(50):
        play.hand_overs += 1
        assert play.look(LOST) == []


def test_the_end_of_a_transaction_is_no_frame() -> None:
    """It has an offset, and the client steps over it. It is read again once, and then for good no stall."""
    play = Play()
    found = play.looks(3 * PATIENCE, TAIL)
    assert [(n, f) for n, fs in enumerate(found, 1) for f in fs] == [(2, Again(2, 47))]
    another = replace(TAIL, read=49, bounds=(0, 49))
    found = play.looks(3 * PATIENCE, another)
    assert [f for fs in found for f in fs] == [Again(2, 47)]


def test_a_frame_behind_an_empty_tail_is_waited_for() -> None:
    play = Play()
    play.looks(PATIENCE, TAIL)
    found = play.looks(UNREAD_LOOKS, replace(TAIL, bounds=(0, 50)))
    assert stalls(found) == [(UNREAD_LOOKS, Stall.UNREAD, False)]


def test_unread_frames_are_logged_and_later_end_the_run() -> None:
    play = Play()
    play.look(REST)
    found = play.looks(2 * PATIENCE, UNREAD)
    assert stalls(found) == [(UNREAD_LOOKS, Stall.UNREAD, False), (PATIENCE, Stall.UNREAD, True)]
    assert found[UNREAD_LOOKS - 1] == [
        Finding(Stall.UNREAD, "shard 2: frames from offset 47 on wait for 10 s, and none is fetched", ends=False)
    ]


def test_a_clock_that_jumps_is_no_time_that_frames_wait() -> None:
    play = Play()
    play.look(UNREAD)
    for _ in range(UNREAD_LOOKS - 3):
        assert play.look(UNREAD, seconds=3600.0) == []


def test_frames_that_were_deleted_end_the_life() -> None:
    """Retention has overtaken the shard; its next run says what is lost. The client stands at the new beginning."""
    play = Play()
    found = play.looks(UNREAD_LOOKS + 5, replace(REST, read=60, bounds=(60, 60)))
    assert stalls(found) == [(UNREAD_LOOKS, Stall.UNREAD, True)]
    assert "from offset 47 on were deleted before they were fetched" in str(found[UNREAD_LOOKS - 1])


def test_a_fetcher_that_is_started_again_has_not_ended() -> None:
    """Faust ends its fetcher and starts another in some rebalances."""
    play = Play()
    for _ in range(50):
        assert play.look(ended="Faust has stopped fetching: None") == []
        assert play.look() == []


@pytest.mark.parametrize("meanwhile", ["another hand-over", "a flow", "another shard"])
def test_a_shard_that_gets_its_flow_is_answered_for(meanwhile: str) -> None:
    play = Play()
    for n in range(20):
        assert not any(play.looks(UNANSWERED_LOOKS - 1, REST, unanswered=frozenset({1 + n % 2})))
        if meanwhile == "another hand-over":
            play.hand_overs += 1
        elif meanwhile == "a flow":
            play.look(REST)
