"""CreatePartitions (37): give topics more partitions; in a cluster the controller does. Records stay where they are."""

from __future__ import annotations

from functools import partial

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Steps, each_short, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import forward_growth
from kafkaprod.broker.cluster.topics import refuse_internal
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)

API = ApiKey.CREATE_PARTITIONS
LANE = Lane.CONTROL
MAX_VERSION = 3


def handle(broker: Broker, request: ClientRequest[CreatePartitionsRequest]) -> Outcome:
    """Grow each topic, or only check whether it could grow."""
    if broker.member is not None:
        return forward_growth(broker, request.body)
    return run_in_control_steps(broker, _grow_all(broker, request), partial(refuse, request))


def _grow_all(broker: Broker, request: ClientRequest[CreatePartitionsRequest]) -> Steps[CreatePartitionsResponse]:
    results = []
    for wanted in request.body.topics:
        try:
            refuse_internal(wanted.name)
            validate_only = request.body.validate_only
            yield from each_short(broker.own_topics.adding_partitions(wanted, validate_only=validate_only))
            results.append(CreatePartitionsTopicResult(name=wanted.name))
        except BrokerError as error:
            code = error.code
            results.append(CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=str(error)))
    return CreatePartitionsResponse(results=results)


def refuse(request: ClientRequest[CreatePartitionsRequest], error_code: int) -> CreatePartitionsResponse:
    """Answer the error for every topic."""
    return CreatePartitionsResponse(
        results=[CreatePartitionsTopicResult(name=wanted.name, error_code=error_code) for wanted in request.body.topics]
    )
