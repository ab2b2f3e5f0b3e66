"""A simulated Kafka and a real one give the same answers to the same calls."""

import json
import uuid

import pytest
from support.kafka.shared_broker import SharedBroker
from support.simulation import runner
from support.simulation.cluster import Cluster
from support.simulation.contract import ALL_CONTRACTS, Contract
from support.simulation.runner import simulated
from support.simulation.world import World


@simulated()
async def answers(world: World, cluster: Cluster) -> dict[str, object]:
    return {calls.__name__: await calls(cluster.bootstrap, "simulated") for calls in ALL_CONTRACTS}


@pytest.fixture(scope="module")
def simulation() -> dict[str, object]:
    [result] = runner.run(answers.scenario, [1])  # type: ignore[attr-defined]
    assert result["error"] is None, result["error"]
    return dict(result["value"])


@pytest.mark.parametrize("calls", ALL_CONTRACTS, ids=lambda calls: calls.__name__)
async def test_a_real_broker_gives_the_answers_of_the_simulated_one(
    calls: Contract, broker: SharedBroker, simulation: dict[str, object]
) -> None:
    found = await calls(broker.bootstrap, f"contract-{uuid.uuid4().hex[:8]}")
    assert json.loads(json.dumps(found, default=bytes.hex)) == simulation[calls.__name__]
