"""What a producer may say of records whose answer it has not seen: the real engine on a simulated cluster."""

from __future__ import annotations

from typing import Any

from tests.simulation.producing import EngineNode
from tests.simulation.rules import PRODUCER_RULES
from tests.simulation.run import Simulation
from tests.unit.broker.kafka_bugs.cases import Cases

CASES = Cases()
_TOPIC = "events"


class _OneAttempt(EngineNode):
    """A producer that tries each batch once and waits briefly for its answer."""

    def _options(self, hosts: list[str]) -> dict[str, Any]:
        return {
            **super()._options(hosts),
            "enable_idempotence": False,
            "acks": "all",
            "retries": 0,
            "linger_ms": 0,
            "request_timeout_ms": 150,
            "delivery_timeout_ms": 400,
            "connections_max_idle_ms": 60_000,
        }


@CASES.add(
    "unanswered",
    "a batch without an answer counted as certainly not written, and the program sent its records a second time",
    PRODUCER_RULES["without an answer a batch may be written"],
)
def unanswered() -> None:
    simulation = Simulation(1)
    world = simulation.world
    simulation.controller.start()
    for broker in simulation.brokers.values():
        broker.start()
    simulation._run(600)
    simulation._create_topic()
    simulation._run(900)
    engine = _OneAttempt(world, simulation.brokers, simulation.outcomes, 0, _TOPIC)
    simulation._run(2_000)
    delivered_count = simulation.outcomes.delivered_count
    assert delivered_count, "the producer works"
    world.cuts |= {(broker.process.name, engine.process.name) for broker in simulation.brokers.values()}
    simulation._run(2_200)
    engine.is_stopping = True
    simulation._run(3_200)
    assert simulation.outcomes.failed_count, "requests arrive, answers do not"
    for key in simulation._keys(_TOPIC):
        simulation.outcomes.check_log(key, simulation.brokers[simulation._image().partitions[key].leader].logs[key])
