"""ListPartitionReassignments (46): those in progress, by the metadata; a broker alone has none."""

from __future__ import annotations

from collections import defaultdict

from kafkaprod.broker.calls.request import ClientRequest, Lane
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

API = ApiKey.LIST_PARTITION_REASSIGNMENTS
LANE = Lane.CONTROL
MAX_VERSION = 0


def handle(
    broker: Broker, request: ClientRequest[ListPartitionReassignmentsRequest]
) -> ListPartitionReassignmentsResponse:
    """Answer those that the request names, or all."""
    image = broker.image
    wanted = None
    if request.body.topics is not None:
        wanted = {(topic.name, index) for topic in request.body.topics for index in topic.partition_indexes}
    found: dict[str, list[OngoingPartitionReassignment]] = defaultdict(list)
    for partition in list(image.partitions.values()):
        topic = image.topics.get(partition.topic_id)
        is_moving = bool(partition.adding or partition.removing)
        if topic is not None and is_moving and (wanted is None or (topic.name, partition.index) in wanted):
            found[topic.name].append(
                OngoingPartitionReassignment(
                    partition_index=partition.index,
                    replicas=list(partition.replicas),
                    adding_replicas=list(partition.adding),
                    removing_replicas=list(partition.removing),
                )
            )
    topics = [OngoingTopicReassignment(name=name, partitions=partitions) for name, partitions in found.items()]
    return ListPartitionReassignmentsResponse(topics=topics)
