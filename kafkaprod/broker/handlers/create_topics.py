"""CreateTopics (19): make topics; in a cluster the controller makes them. A broker alone keeps one replica.

4    -1 partitions or replicas means the broker's default     5  the new topic's options in the answer, 7 its id
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import failed_topic
from kafkaprod.broker.cluster.topics import check_total
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.mutations import Mutation, limited
from kafkaprod.broker.handlers.refusals import refuse
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import CLUSTER, TOPIC
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

API = ApiKey.CREATE_TOPICS
LANE = Lane.CONTROL
MAX_VERSION = 7

_FIRST_STRICT_VERSION = 6  # of quotas


def handle(broker: Broker, request: ClientRequest[CreateTopicsRequest]) -> Outcome:
    """Make each topic, or only check whether it could be made; POLICY_VIOLATION if there are too many partitions."""
    try:
        check_total(sum(_partition_count(broker, topic) for topic in request.body.topics))
    except BrokerError as error:
        return CreateTopicsResponse(topics=[failed_topic(topic.name, error) for topic in request.body.topics])
    mutation = Mutation("topics", "topics", _FIRST_STRICT_VERSION, partial(_partition_count, broker))
    return limited(broker, request, mutation, partial(_create, broker), refuse)


def _create(broker: Broker, request: ClientRequest[CreateTopicsRequest]) -> Outcome:
    return broker.standing.create_topics(request.body, partial(refuse, request))


def _partition_count(broker: Broker, topic: CreatableTopic) -> int:
    if topic.assignments:
        return len(topic.assignments)
    return broker.config.num_partitions if topic.num_partitions == -1 else max(topic.num_partitions, 0)


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Create on the cluster is enough for all topics."""
    if authorizer.may(acls.CREATE, CLUSTER):
        return call(authorizer.request)
    return authorizer.split(call, deny, ItemRight(acls.CREATE, TOPIC, "topics", "topics", "name"))
