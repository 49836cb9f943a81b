"""CreateTopics (19): make topics; in a cluster the controller makes them. A broker alone keeps one replica.

4    -1 partitions or replicas means the broker's default     5  the new topic's options in the answer, 7 its id
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext, suppress
from functools import partial

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import forward_creation
from kafkaprod.broker.cluster.topic_options import DEFAULT_SOURCE, TOPIC_SOURCE
from kafkaprod.broker.cluster.topics import refuse_internal
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.server.steps import Steps, each_short, run_in_control_steps
from kafkaprod.broker.storage.log.log_config import LogConfig
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API = ApiKey.CREATE_TOPICS
LANE = Lane.CONTROL
MAX_VERSION = 7

_DEFAULT = -1


def handle(broker: Broker, request: ClientRequest[CreateTopicsRequest]) -> Outcome:
    """Make each topic, or only check whether it could be made."""
    if broker.member is not None:
        return forward_creation(broker, request.body)
    return run_in_control_steps(broker, _create_all(broker, request), partial(refuse, request))


def _create_all(broker: Broker, request: ClientRequest[CreateTopicsRequest]) -> Steps[CreateTopicsResponse]:
    counts = Counter(wanted.name for wanted in request.body.topics)
    results = []
    with nullcontext() if request.body.validate_only else broker.topics.planning(_plan(broker, request)):
        for wanted in request.body.topics:
            try:
                if counts[wanted.name] > 1:
                    raise RequestRefusedError(
                        ErrorCode.INVALID_REQUEST, f"Topic '{wanted.name}' is in the request twice."
                    )
                results.append((yield from _create(broker, wanted, validate_only=request.body.validate_only)))
            except BrokerError as error:
                code = error.code
                results.append(CreatableTopicResult(name=wanted.name, error_code=code, error_message=str(error)))
    return CreateTopicsResponse(topics=results)


def _plan(broker: Broker, request: ClientRequest[CreateTopicsRequest]) -> dict[str, tuple[int, dict[str, str]]]:
    """Return partition count and options of the topics of a request for several."""
    plan: dict[str, tuple[int, dict[str, str]]] = {}
    for wanted in request.body.topics if len(request.body.topics) > 1 else ():
        with suppress(BrokerError):  # it gets its answer when its turn comes
            refuse_internal(wanted.name)
            plan[wanted.name] = _partition_count(broker, wanted), _properties(wanted)
    return plan


def refuse(request: ClientRequest[CreateTopicsRequest], error_code: int) -> CreateTopicsResponse:
    """Answer the error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=wanted.name, error_code=error_code) for wanted in request.body.topics]
    )


def _create(broker: Broker, wanted: CreatableTopic, *, validate_only: bool) -> Steps[CreatableTopicResult]:
    refuse_internal(wanted.name)
    count = _partition_count(broker, wanted)
    properties = _properties(wanted)
    config = broker.topics.check_new(wanted.name, count, properties)
    topic_id = None
    if not validate_only:
        topic = yield from each_short(broker.topics.creating(wanted.name, count, properties))
        topic_id = topic.topic_id
    return CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        num_partitions=count,
        replication_factor=1,
        configs=_configs(config, properties),
    )


def _properties(wanted: CreatableTopic) -> dict[str, str]:
    return {config.name: config.value for config in wanted.configs if config.value is not None}


def _partition_count(broker: Broker, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        if (wanted.num_partitions, wanted.replication_factor) != (_DEFAULT, _DEFAULT):
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST,
                "A manual assignment leaves no room for partition count and replication factor.",
            )
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        is_here = all(assignment.broker_ids == [broker.config.node_id] for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))) or not is_here:
            raise RequestRefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Partitions must be numbered from 0, each on broker {broker.config.node_id} alone.",
            )
        return len(indexes)
    if wanted.replication_factor not in (_DEFAULT, 1):
        raise RequestRefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {wanted.replication_factor} is impossible: there is 1 broker.",
        )
    return broker.config.num_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions


def _configs(config: LogConfig, properties: dict[str, str]) -> list[CreatableTopicConfigs]:
    values = {**config.to_properties(), **properties}
    return [
        CreatableTopicConfigs(
            name=name, value=value, config_source=TOPIC_SOURCE if name in properties else DEFAULT_SOURCE
        )
        for name, value in sorted(values.items())
    ]
