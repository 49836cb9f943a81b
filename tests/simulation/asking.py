"""Requests of simulated clients that have no connections: to a broker, and back with its answer, or with none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest
from kafkaprod.protocol.schema import Request
from tests.simulation.nodes import BrokerNode
from tests.simulation.world import Process, World

PATIENCE_MS = 500


class Asker:
    """Sends requests in the name of a process. The network never repeats one: a connection would not, either."""

    def __init__(self, world: World, process: Process, brokers: Mapping[int, BrokerNode]) -> None:
        self.world = world
        self.process = process
        self.brokers = brokers

    def leader_of(self, topic: str) -> int | None:
        """Return who leads partition 0 of a topic, by the metadata of some broker, which may be old."""
        image = self.world.random.choice(list(self.brokers.values())).follower.image
        topic_id = image.topic_ids.get(topic)
        partition = None if topic_id is None else image.partitions.get((topic_id, 0))
        return None if partition is None or partition.leader < 0 else partition.leader

    def ask(
        self, broker_id: int, body: Request, version: int, then: Callable[[Any], None], *, of_leader: str | None = None
    ) -> None:
        """Send a request; `then` gets the answer, None if there is none in time.

        Args:
            broker_id: To whom.
            body, version: The request.
            then: Takes the answer.
            of_leader: A topic: only its leader's answer counts. A broker that has been paused may answer what is old
                before it learns that it leads no more, as Kafka's do.
        """
        broker, world = self.brokers[broker_id], self.world
        request = ClientRequest(body, version, self.process.name, "10.0.1.3")
        done: set[str] = set()

        def end(answer: Any) -> None:
            if "answered" not in done:
                done.add("answered")
                then(answer)

        def deliver() -> None:
            if "delivered" not in done and broker.server.is_serving:
                done.add("delivered")
                broker.handler_broker.handle(request, answer)

        def answer(ready: Any) -> None:
            if of_leader is None or self._is_leader(broker, of_leader):
                world.send(broker.process, self.process, lambda: end(ready))

        world.send(self.process, broker.process, deliver)
        world.in_process(self.process, PATIENCE_MS, lambda: end(None))

    @staticmethod
    def _is_leader(broker: BrokerNode, topic: str) -> bool:
        controller = broker.controller.controller
        assert controller is not None
        image = controller.context.image
        return image.partitions[image.topic_ids[topic], 0].leader == broker.broker_id
