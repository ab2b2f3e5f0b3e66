"""All interleavings of a pipeline of several shards that keep, with kills and zombies, say and decide the same."""

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest
from support.long_form import rotating

from stream_lsh.index.resolution import States
from stream_lsh.kafka.consumer.decided import Decided, decisions_due
from stream_lsh.settings.model import Settings
from stream_lsh.wire.decisions import Decisions

SETTINGS = Settings(compare_with="kept", shards=2, decision_lag=4)
BLOCK = SETTINGS.block
SIZES = (1, 2, 1, 2, 2)  # documents of the frames: blocks of two begin within them and between them
FIRST = [sum(SIZES[:i]) for i in range(len(SIZES) + 1)]


class Sequencer(NamedTuple):
    """A run: the next frame, and the last one that the judge had committed when it began. A zombie commits nothing."""

    at: int
    done: int
    zombie: bool = False


class Judge(NamedTuple):
    """A run: the next frame, and what it remembers of the documents that were decided before, by place."""

    at: int
    known: tuple[tuple[int, str], ...]


class State(NamedTuple):
    frames: tuple[tuple[int, tuple[bytes, ...]], ...] = ()
    decisions: tuple[tuple[int, tuple[str, ...]], ...] = ()
    sequenced: int = 0  # frames that the sequencer has committed
    judged: int = 0  # that the judge has
    sequencers: tuple[Sequencer, ...] = (Sequencer(0, -1),)
    judges: tuple[Judge, ...] = (Judge(0, ()),)
    kills: int = 0


def decisions_of(frame: int, names: tuple[str, ...]) -> Decisions:
    """All documents of a frame were dropped; the names say all that was known when it was decided."""
    n, places = SIZES[frame], np.arange(FIRST[frame], FIRST[frame + 1])
    states = States(places, places, np.ones(n, np.int64), np.zeros(n), np.zeros(n, np.int64))
    return Decisions(
        frame, frame - 1, FIRST[frame + 1], states, (places % 2).astype(np.uint16), [name.encode() for name in names]
    )


@lru_cache(None)
def decided(records: tuple[tuple[int, tuple[str, ...]], ...]) -> Decided:
    """What somebody knows who has read these decisions."""
    found = Decided("decisions")
    for offset, (frame, names) in enumerate(records):
        found.add(offset, decisions_of(frame, names))
    return found


@lru_cache(None)
def told_by(records: tuple[tuple[int, tuple[str, ...]], ...], begin: int, end: int) -> tuple[bytes, ...]:
    return tuple(decided(records).records(begin, end, SETTINGS))


def applied(state: State) -> list[tuple[bytes, ...]]:
    """What the shards have been told with each frame, by the chain rule."""
    out: list[tuple[bytes, ...]] = []
    for frame, sent in state.frames:
        if frame == len(out):
            out.append(sent)
        elif frame < len(out):
            assert sent == out[frame], f"frame {frame} was sent in two ways"
    return out


def states(frame: int, sent: tuple[bytes, ...], known: dict[int, str]) -> tuple[str, ...]:
    """A verdict on each document that depends on what the shards were told, and on all that is provisional."""
    out = []
    for place in range(FIRST[frame], FIRST[frame + 1]):
        provisional = [known[at] for at in range(max(0, (place // BLOCK - 1) * BLOCK), place)]
        out.append(f"{place}:{hash((sent, tuple(provisional))) % 997}")
        known[place] = out[-1]
    return tuple(out)


def steps(state: State, transactional: bool) -> Iterator[State]:
    """What can happen next without anybody's death."""
    for i, run in enumerate(state.sequencers):

        def by(run: Sequencer, i: int = i, **changed: object) -> State:
            return state._replace(
                sequencers=(*state.sequencers[:i], run, *state.sequencers[i + 1 :]), **changed
            )  # fmt: skip

        if run.at < len(SIZES):
            if run.at <= run.done:
                yield by(run._replace(at=run.at + 1))
                continue
            places = decisions_due(FIRST[run.at], SIZES[run.at], BLOCK)
            sent = {tuple[bytes, ...]()}
            if places is not None:  # however much it has read by then, if it is enough
                read = [state.decisions[:n] for n in range(len(state.decisions) + 1)]
                sent = {told_by(some, *places) for some in read if decided(some).documents >= places[1]}
                assert len(sent) <= 1, f"frame {run.at} says what depends on when"
            for said in sent:
                yield by(run._replace(at=run.at + 1), frames=(*state.frames, (run.at, said)))
        if not run.zombie and run.at > state.sequenced:
            yield state._replace(sequenced=run.at)
    there = applied(state)
    for judge in state.judges:
        if judge.at < len(there):
            known = dict(judge.known)
            found = states(judge.at, there[judge.at], known)
            for frame, names in state.decisions:
                assert frame != judge.at or names == found, f"frame {frame} was decided in two ways"
            after = Judge(judge.at + 1, tuple(known.items()))
            more = state._replace(decisions=(*state.decisions, (judge.at, found)), judges=(after,))
            yield more._replace(judged=judge.at + 1) if transactional else more
        if not transactional and judge.at > state.judged:
            yield state._replace(judged=judge.at)


def deaths(state: State) -> Iterator[State]:
    """Who begins again: a sequencer, with the one before as a zombie or without; a judge."""
    run = state.sequencers[-1]
    new = Sequencer(state.sequenced, state.judged - 1)
    once = state._replace(kills=state.kills + 1)
    yield once._replace(sequencers=(new,))
    yield once._replace(sequencers=(run._replace(zombie=True), new))
    log, last = decided(state.decisions), state.judged - 1
    documents = FIRST[state.judged]
    known = {
        place: name.decode()
        for decisions in log.since((documents // BLOCK - 1) * BLOCK, last)
        for place, name in zip(decisions.states.place.tolist(), decisions.names, strict=True)
    }
    yield once._replace(judges=(Judge(state.judged, tuple(known.items())),))


@pytest.mark.parametrize(("transactional", "kills"), [(True, 1), *rotating([(False, 1), (True, 2)], 1)])
def test_every_interleaving_says_the_same(transactional: bool, kills: int) -> None:
    begin = State()
    seen, open_, ends = {begin}, deque([begin]), set()
    while open_:
        state = open_.popleft()
        after = list(steps(state, transactional))
        if state.judged == len(SIZES):
            ends.add(tuple(applied(state)))
        else:
            assert after, f"nothing goes on: {state}"
        if state.kills < kills:
            after += deaths(state)
        for found in after:
            if found not in seen:
                seen.add(found)
                open_.append(found)
    assert len(ends) == 1
    assert len(seen) > 10_000
