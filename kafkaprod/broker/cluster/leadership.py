"""Who leads a partition: what clients believe (KIP-320), changes on purpose, and telling clients of them (KIP-951)."""

from __future__ import annotations

import uuid
from typing import Any

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.nodes import ReachableBroker, node_of, replicas_of
from kafkaprod.broker.cluster.topics import Partition
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import fetch, produce
from kafkaprod.protocol.schema import Request, Response

UNKNOWN_EPOCH = -1

_LEADER_CHANGED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_FIRST_PRODUCE_WITH_LEADERS = 10
_FIRST_FETCH_WITH_LEADERS = 16


def check_leader_epoch(partition: Partition, current_leader_epoch: int) -> ErrorCode:
    """FENCED_LEADER_EPOCH if the client knows an older leader, UNKNOWN_LEADER_EPOCH a newer one than we do.

    NOT_LEADER_OR_FOLLOWER if another broker leads; KAFKA_STORAGE_ERROR if the partition's log directory is offline.
    """
    if partition.is_offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if current_leader_epoch in (UNKNOWN_EPOCH, partition.leader_epoch):
        return ErrorCode.NONE if partition.is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER
    if current_leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def move_leaders(broker: Broker, body: Request) -> None:
    """Pretend that the leaders of all partitions a produce or fetch request names have changed (fault scripts)."""
    if isinstance(body, produce.ProduceRequest):
        for produced in body.topic_data:
            for data in produced.partition_data:
                _move(broker, broker.topics.name_of(produced.name, produced.topic_id), data.index)
    elif isinstance(body, fetch.FetchRequest):
        for fetched in body.topics:
            for wanted in fetched.partitions:
                _move(broker, broker.topics.name_of(fetched.topic, fetched.topic_id), wanted.partition)


def name_leaders(broker: Broker, response: Response, version: int, endpoint: Endpoint | None) -> None:
    """Add the leader of today to each partition of a produce or fetch response that says that it has changed.

    Older versions have no place for it: their clients refresh their metadata. The address is that of their listener.
    """
    if isinstance(response, produce.ProduceResponse) and version >= _FIRST_PRODUCE_WITH_LEADERS:
        for topic in response.responses:
            for outcome in topic.partition_responses:
                partition = _moved(broker, topic.name, topic.topic_id, outcome.index, outcome.error_code)
                if partition is not None:
                    leader_id = replicas_of(broker, partition).leader_id
                    outcome.current_leader = produce.LeaderIdAndEpoch(
                        leader_id=leader_id, leader_epoch=partition.leader_epoch
                    )
                    _add(response.node_endpoints, produce.NodeEndpoint, node_of(broker, leader_id, endpoint))
    elif isinstance(response, fetch.FetchResponse) and version >= _FIRST_FETCH_WITH_LEADERS:
        for read in response.responses:
            for data in read.partitions:
                partition = _moved(broker, read.topic, read.topic_id, data.partition_index, data.error_code)
                if partition is not None:
                    leader_id = replicas_of(broker, partition).leader_id
                    data.current_leader = fetch.LeaderIdAndEpoch(
                        leader_id=leader_id, leader_epoch=partition.leader_epoch
                    )
                    _add(response.node_endpoints, fetch.NodeEndpoint, node_of(broker, leader_id, endpoint))


def _move(broker: Broker, topic: str | None, index: int) -> None:
    if topic is not None:
        broker.topics.move_leader(topic, index)


def _moved(broker: Broker, name: str, topic_id: uuid.UUID | None, index: int, error_code: int) -> Partition | None:
    """The partition, if the error says that its leader has changed."""
    topic = broker.topics.name_of(name, topic_id)
    if topic is None or error_code not in _LEADER_CHANGED:
        return None
    return broker.topics.partition(topic, index)


def _add(endpoints: list[Any], endpoint_type: type[Any], node: ReachableBroker | None) -> None:
    """Name a leader's address once."""
    if node is not None and all(known.node_id != node.node_id for known in endpoints):
        endpoints.append(endpoint_type(**node._asdict()))
