"""What a shard remembers of a window, beside the window itself."""

import random

import numpy as np
import pytest

from stream_lsh.index.segments.window import Window
from stream_lsh.kafka.match.forgetting import Forgetting
from stream_lsh.settings.model import Settings
from stream_lsh.wire.sequenced import places_in_log

MINUTE = 60_000


@pytest.mark.parametrize("seed", range(20))
def test_segments_begin_with_what_is_accepted(seed: int) -> None:
    """Where a frame has documents that were accepted before, too, as if it had not."""
    chance = random.Random(seed)
    settings = Settings(window="16m", segment_documents=8)
    forgetting, alone = Forgetting(settings, None, -1), Window(settings)
    first, now = 0, 10**12
    for frame in range(60):
        n = chance.randrange(1, 9)
        accepted = np.array([chance.random() < 0.6 for _ in range(n)])
        log = np.empty(n, np.int64)
        for i in range(n):  # what is not accepted moves no time
            now += chance.choice((0, 0, MINUTE, 3 * MINUTE)) * int(accepted[i])
            log[i] = now
        places = places_in_log(first, accepted, n)
        numbers = forgetting.cut(frame, log, places, None if accepted.all() else accepted)
        assert len(numbers) == n and (np.diff(numbers) >= 0).all()
        if accepted.any():
            count = int(accepted.sum())
            wanted = alone.cut(log[accepted], first + np.arange(count))
            assert numbers[accepted].tolist() == wanted.tolist()
            first += count
        assert forgetting.window.spans == alone.spans
    assert len(alone.spans) > 20
