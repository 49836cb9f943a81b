"""CreatePartitions (37): give topics more partitions; in a cluster the controller does. Records stay where they are."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import failed_growth
from kafkaprod.broker.cluster.topics import check_total
from kafkaprod.broker.handlers.mutations import Mutation, limited
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)

API = ApiKey.CREATE_PARTITIONS
LANE = Lane.CONTROL
MAX_VERSION = 3

_FIRST_STRICT_VERSION = 3  # of quotas


def handle(broker: Broker, request: ClientRequest[CreatePartitionsRequest]) -> Outcome:
    """Grow each topic, or only check whether it could grow; POLICY_VIOLATION if there are too many new partitions."""
    try:
        check_total(sum(_added_count(broker, topic) for topic in request.body.topics))
    except BrokerError as error:
        return CreatePartitionsResponse(results=[failed_growth(topic.name, error) for topic in request.body.topics])
    mutation = Mutation("topics", "results", _FIRST_STRICT_VERSION, partial(_added_count, broker))
    return limited(broker, request, mutation, partial(_grow, broker), refuse)


def _grow(broker: Broker, request: ClientRequest[CreatePartitionsRequest]) -> Outcome:
    return broker.standing.create_partitions(request.body, partial(refuse, request))


def _added_count(broker: Broker, wanted: CreatePartitionsTopic) -> int:
    topic = broker.topics.get(wanted.name)
    return 0 if topic is None else max(wanted.count - len(topic.partitions), 0)
