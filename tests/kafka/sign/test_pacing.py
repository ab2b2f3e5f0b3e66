"""The pause between a signer's frames: what all signers together send, whatever documents arrive at each."""

import asyncio
import random

import pytest
from aiokafka import AIOKafkaProducer
from support.simulation.cluster import Cluster
from support.simulation.pipeline import Pipeline
from support.simulation.runner import simulated
from support.simulation.world import World

from bench.pacing import played
from stream_lsh.kafka.sign import pacing
from stream_lsh.kafka.sign.pacing import LONGEST, MOST_FRAMES, Pacing

SECONDS, SETTLED = 12, 4


@pytest.mark.parametrize("signers", [1, 3, 20, 100, 200])
def test_all_signers_together_keep_below_the_limit_of_frames(signers: int) -> None:
    chance = random.Random(signers)
    for _ in range(3):
        partitions = [chance.randint(1, 3) for _ in range(signers)]
        shares = [own / sum(partitions) for own in partitions]
        weights = [chance.choice((0.1, 1.0, 5.0)) for _ in range(signers)]
        rates = [chance.choice((300, 1000, 2000)) * weight / sum(weights) for weight in weights]
        frames, waits = played(chance, rates, shares, SECONDS)
        assert max(frames[SETTLED:]) <= 1.1 * MOST_FRAMES
        assert max(map(max, filter(None, waits))) <= LONGEST * 0.02


def test_documents_of_a_quiet_pipeline_do_not_wait_for_the_share_of_their_signer() -> None:
    frames, waits = played(random.Random(1), [0.2] * 50, [1 / 50] * 50, SECONDS)
    assert 0 < sum(frames) < 20 * SECONDS
    assert max(map(max, filter(None, waits))) <= 0.02
    assert Pacing(0).pause == 0


@simulated()
async def test_signers_of_one_topic_keep_to_their_shares(world: World, cluster: Cluster) -> None:
    """Three signers, at each of which a document arrives every 25 ms. Each document would be a frame."""
    pacing.MOST_FRAMES = 20  # this seed has a process of its own
    pipeline = Pipeline(world, cluster, partitions=3)
    await pipeline.create_topics()
    workers = [pipeline.start("sequence"), *(pipeline.start("sign") for _ in range(3))]
    counts = list[int]()
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
        for number in range(1600):
            if number >= 800 and number % 400 == 0:
                counts.append(len(pipeline.records("signatures")))
            value = b'{"id":%d,"text":"a text"}' % number
            await producer.send(pipeline.topics.documents, value, partition=number % 3)
            await asyncio.sleep(0.025 / 3)
    assert counts[1] - counts[0] <= 1.3 * 20 * 400 * 0.025 / 3
    await pipeline.stop(*workers)
