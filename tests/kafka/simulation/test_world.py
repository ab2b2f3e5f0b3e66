"""The world of the simulations: what a seed repeats, what a process that is killed or frozen still does."""

import asyncio
import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from support.simulation import clock, runner
from support.simulation.cluster import Cluster
from support.simulation.remembered import remembered
from support.simulation.runner import simulated
from support.simulation.shrinking import Schedule, shrunk
from support.simulation.world import Stuck, World

from stream_lsh.kafka.settings import KafkaSettings


@simulated()
async def test_nothing_is_substituted_but_what_is_listed(world: World, cluster: Cluster) -> None:
    listed = {(module, name) for module, name, _ in clock.SUBSTITUTES} | {("asyncio", "run")}  # the latter by World
    assert clock.substituted() == listed, clock.substituted() ^ listed


@simulated()
async def test_time_is_virtual_in_every_loop_and_executor(world: World, cluster: Cluster) -> None:
    async def sleeps() -> tuple[float, float]:
        began = time.monotonic(), time.time()
        await asyncio.sleep(600)
        await asyncio.get_running_loop().run_in_executor(ThreadPoolExecutor(1), time.sleep, 60)
        return time.monotonic() - began[0], time.time() - began[1]

    for elapsed in await world.process("sleeper").start(sleeps()):
        assert 660 <= elapsed < 661


@simulated()
async def test_an_executor_does_not_wait_for_one_that_had_its_address(world: World, cluster: Cluster) -> None:
    async def works() -> None:
        loop = asyncio.get_running_loop()
        world.work = 1e9
        loop.run_in_executor(ThreadPoolExecutor(1), int)
        world.work = 0.001
        await asyncio.wait_for(loop.run_in_executor(ThreadPoolExecutor(1), int), 60)

    await world.process("worker").start(works())


@simulated()
async def test_a_process_that_is_killed_does_nothing_more(world: World, cluster: Cluster) -> None:
    done: list[str] = []

    async def work() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                done.append("step")
        finally:
            done.append("finally")

    process = world.process("worker")
    process.start(work())
    await asyncio.sleep(3.5)
    process.kill()
    await asyncio.sleep(10)
    assert done == ["step"] * 3


@simulated()
async def test_a_frozen_process_continues_where_it_was(world: World, cluster: Cluster) -> None:
    times: list[float] = []

    async def work() -> None:
        for _ in range(3):
            await asyncio.sleep(1)
            times.append(time.monotonic() - clock.START)

    process = world.process("worker")
    working = process.start(work())
    await asyncio.sleep(1.5)
    process.freeze()
    await asyncio.sleep(100)
    assert len(times) == 1
    process.thaw()
    await working
    assert times == pytest.approx([1, 101.5, 102.5], abs=0.01)


@simulated()
async def test_what_waits_for_ever_is_named_with_the_seed(world: World, cluster: Cluster) -> None:
    other = World(Schedule(17))
    with pytest.raises(Stuck, match="seed 17: everything waits"):
        other.run(asyncio.Event().wait())
    other.most_seconds = 5
    with pytest.raises(Stuck, match="seed 17: after 5 s"):
        other.run(asyncio.sleep(10))


@simulated(nodes=2)
async def busy(world: World, cluster: Cluster) -> list[int]:
    """Two consumers of a group and a producer, of which one consumer is killed and a node stops."""
    cluster.create("news", 4)
    found: list[int] = []

    async def produce() -> None:
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True) as producer:
            for number in range(100):
                await producer.send_and_wait("news", b"%d" % number, partition=number % 4)
                await asyncio.sleep(world.chance.expovariate(20))

    async def consume() -> None:
        options = {"group_id": "readers", "auto_offset_reset": "earliest", "session_timeout_ms": 6000}
        async with AIOKafkaConsumer("news", bootstrap_servers=cluster.bootstrap, **options) as consumer:
            async for record in consumer:
                found.append(int(record.value))

    processes = [world.process(name) for name in ("one", "two")]
    for process in processes:
        process.start(consume())
    producing = world.process("producer").start(produce())
    await asyncio.sleep(world.chance.uniform(0, 5))
    processes[0].kill()
    await asyncio.sleep(world.chance.uniform(0, 1))
    cluster.stop(0)
    await producing
    while set(found) != set(range(100)):
        await asyncio.sleep(0.1)
    return found


def test_a_seed_repeats_its_schedule_and_another_has_another() -> None:
    seeds = [1, 2, 3, 1, 2, 3]
    results = runner.run(busy.scenario, seeds, nodes=2)  # type: ignore[attr-defined]
    assert [result["error"] for result in results] == [None] * 6
    digests = [(result["digest"], result["steps"], result["value"]) for result in results]
    assert digests[:3] == digests[3:]
    assert len({digest for digest, _, _ in digests}) == 3
    for _ in range(2):  # each server has its objects at other addresses
        with runner.another_server():
            alone = runner.run(busy.scenario, [3], nodes=2)  # type: ignore[attr-defined]
        assert alone[0]["digest"] == digests[2][0]


@simulated()
async def drawing(world: World, cluster: Cluster, tmp_path: Path) -> list[Any]:
    settings = KafkaSettings(data_folder=tmp_path)
    values = [drawn(settings, tmp_path / name) for name in ("a", "b")]
    return [*values, random.random(), [name for name in ("a", "b") if (tmp_path / name).exists()]]


@remembered
def drawn(settings: KafkaSettings, folder: Path) -> float:
    folder.mkdir()
    return random.random()


def test_what_is_remembered_is_made_once_and_the_same_whichever_seed_makes_it() -> None:
    with runner.another_server():
        first, again = (runner.run(drawing.scenario, seeds) for seeds in ([1, 2], [2, 1]))  # type: ignore[attr-defined]
    (a, b, drawn_by_1, made), (*_, drawn_by_2, also) = (result["value"] for result in first)
    assert a == b and drawn_by_1 != drawn_by_2 and made == also == ["a"]
    assert [result["value"] for result in again] == [[a, a, drawn_by_2, []], [a, a, drawn_by_1, []]]


@simulated(and_schedules=[Schedule(5, omitted=(0, 2), documents=7)])
async def fragile(world: World, cluster: Cluster) -> None:
    """Fails where the second and fifth of six faults meet nine documents, or more."""
    happen = {place for place in range(6) if place not in world.schedule.omitted}
    assert not ({1, 4} <= happen and (world.schedule.documents or 30) >= 9), f"seed {world.seed}"


def test_a_schedule_that_fails_is_shrunk_to_what_it_takes() -> None:
    with pytest.raises(AssertionError, match=r"^Schedule\(0\):"):  # after the one that passes
        fragile()  # type: ignore[call-arg]

    def fails(schedule: Schedule) -> bool:
        [result] = runner.run(fragile.scenario, [schedule])  # type: ignore[attr-defined]
        return result["error"] is not None

    found = shrunk(Schedule(5), 6, 30, fails)
    assert str(found) == "Schedule(5, omitted=(0, 2, 3, 5), documents=9)"
    assert shrunk(found, 6, 30, fails) == found
