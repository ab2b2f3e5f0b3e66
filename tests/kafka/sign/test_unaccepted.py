"""Frames are lost if the sequencer has read everything, and has not accepted what was acknowledged."""

from stream_lsh.kafka.sign.unaccepted import Unaccepted


def test_nothing_is_lost_as_long_as_the_sequencer_is_behind() -> None:
    unaccepted = Unaccepted()
    assert not unaccepted
    unaccepted.committed(3, 10)
    assert unaccepted
    assert unaccepted.look(0, {}, 5) == set()  # frames up to 5 are to be read now
    unaccepted.committed(3, 20)
    assert unaccepted.look(4, {3: 8}, 9) == set()
    assert unaccepted.look(5, {3: 10}, 9) == set()  # what was committed later is known only now
    assert unaccepted.look(8, {3: 10}, 12) == set()
    assert unaccepted.look(9, {3: 10}, 12) == {3}


def test_what_is_accepted_is_not_asked_for_again() -> None:
    unaccepted = Unaccepted()
    unaccepted.committed(3, 10)
    assert unaccepted.look(5, {3: 10}, 5) == set()
    assert not unaccepted


def test_a_topic_that_has_become_shorter_is_read_to_its_end() -> None:
    """Also one that has new frames since: each partition counts by itself."""
    unaccepted = Unaccepted()
    unaccepted.committed(3, 10)
    unaccepted.committed(4, 7)
    unaccepted.look(0, {}, 9)
    assert unaccepted.look(2, {4: 7}, 5) == set()
    assert unaccepted.look(5, {4: 7}, 12) == {3}


def test_a_position_before_which_nothing_was_sent_is_not_missing() -> None:
    unaccepted = Unaccepted()
    unaccepted.committed(3, -1)
    assert unaccepted.look(0, {}, 0) == unaccepted.look(0, {}, 0) == set()
    unaccepted.committed(3, 0)  # its start was acknowledged
    assert unaccepted.look(1, {}, 1) == set()
    assert unaccepted.look(1, {}, 1) == {3}
