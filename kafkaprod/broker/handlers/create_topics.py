"""CreateTopics (19): make topics; in a cluster the controller makes them. A broker alone keeps one replica.

4    -1 partitions or replicas means the broker's default     5  the new topic's options in the answer, 7 its id
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import forward_creation
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.broker.cluster.topic_options import DEFAULT_SOURCE, TOPIC_SOURCE
from kafkaprod.broker.cluster.topics import refuse_internal
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.server.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.server.steps import Pause, Steps, each_short, run_in_control_steps
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
    """Write all topics down, which are synced once, then make them."""
    counts = Counter(wanted.name for wanted in request.body.topics)
    results = []
    for wanted in request.body.topics:
        try:
            if counts[wanted.name] > 1:
                raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{wanted.name}' is in the request twice.")
            results.append(_begin(broker, wanted, validate_only=request.body.validate_only))
        except BrokerError as error:
            results.append(_failed(wanted.name, error))
        yield Pause.SHORT
    if not request.body.validate_only:
        yield from _make_all(broker.own_topics, results)
    return CreateTopicsResponse(topics=results)


def _make_all(topics: OwnTopics, results: list[CreatableTopicResult]) -> Steps[None]:
    """Make the topics that were written down; a failure takes the place of the result."""
    begun = [place for place, result in enumerate(results) if not result.error_code]
    failure = _sync(topics) if begun else None
    for place in begun:
        name = results[place].name
        try:
            if failure is not None:
                topics.abandon(name)
                raise failure
            topic = yield from each_short(topics.making(name))
            results[place].topic_id = topic.topic_id
        except BrokerError as error:
            results[place] = _failed(name, error)


def _sync(topics: OwnTopics) -> BrokerError | None:
    try:
        topics.sync()
    except BrokerError as error:
        return error
    return None


def _failed(name: str, error: BrokerError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def refuse(request: ClientRequest[CreateTopicsRequest], error_code: int) -> CreateTopicsResponse:
    """Answer the error for every topic."""
    return CreateTopicsResponse(
        topics=[CreatableTopicResult(name=wanted.name, error_code=error_code) for wanted in request.body.topics]
    )


def _begin(broker: Broker, wanted: CreatableTopic, *, validate_only: bool) -> CreatableTopicResult:
    """Check a topic, and write it down."""
    refuse_internal(wanted.name)
    count = _partition_count(broker, wanted)
    properties = _properties(wanted)
    config = broker.topics.check_new(wanted.name, count, properties)
    if not validate_only:
        broker.own_topics.begin(wanted.name, count, properties)
    return CreatableTopicResult(
        name=wanted.name,
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
