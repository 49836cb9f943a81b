"""The brokers and replicas that clients get to know: those in the metadata.

Any thread may call these: they read what each change replaces as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.listeners import Endpoint

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker

NO_LEADER = -1


class ReachableBroker(NamedTuple):
    """A broker and where the client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


class Replicas(NamedTuple):
    """Who has a partition. `leader_id` is -1 without a leader."""

    leader_id: int
    leader_epoch: int
    replicas: list[int]
    isr: list[int]
    offline: list[int]


def live_nodes(broker: Broker, endpoint: Endpoint | None) -> list[ReachableBroker]:
    """Return the brokers that are not fenced, by id, with the addresses of the listener that the client uses.

    Args:
        broker: This one.
        endpoint: The endpoint of the client's listener; None for the first one.
    """
    place = endpoint or broker.endpoint
    listener = _listener_of(broker, place)
    nodes = []
    for node_id, other in sorted(broker.image.brokers.copy().items()):
        addresses = {name: (host, port) for name, host, port, _ in other.endpoints}
        if not other.is_fenced and listener in addresses:
            nodes.append(ReachableBroker(node_id, *addresses[listener], other.rack))
    return nodes


def node_of(broker: Broker, node_id: int, endpoint: Endpoint | None) -> ReachableBroker | None:
    """Return a broker that is not fenced, None if there is none of this id."""
    return next((node for node in live_nodes(broker, endpoint) if node.node_id == node_id), None)


def controller_id(broker: Broker) -> int:
    """Return the broker that clients shall take for the controller: any can forward to it."""
    nodes = live_nodes(broker, None)
    return nodes[0].node_id if nodes else broker.config.node_id


def replicas_of(broker: Broker, partition: Partition) -> Replicas:
    """Return who has a partition."""
    image = partition.image
    brokers = broker.image.brokers
    offline = [
        member
        for member in image.replicas
        if member not in brokers
        or brokers[member].is_fenced
        or not broker.image.is_online(image, member)
        or (partition.is_offline and member == broker.config.node_id)
    ]
    return Replicas(image.leader, partition.leader_epoch, list(image.replicas), list(image.isr), offline)


def _listener_of(broker: Broker, place: Endpoint) -> str:
    return next((name for name, other in broker.endpoints.items() if other == place), next(iter(broker.endpoints)))
