"""What arrives at the controller's socket: requests become events, their answers responses.

Brokers have checked names, options and rights of a request before they forward it.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kafkaprod.broker.controller import wire
from kafkaprod.broker.controller.controller import HANDLERS, Controller
from kafkaprod.broker.controller.events import (
    AlterConfig,
    Asked,
    ChangeSettings,
    CreatePartitions,
    CreateTopic,
    DeleteTopic,
    ElectionType,
    ElectLeaders,
    Reassign,
    SettingsAnswer,
    TopicAnswer,
    UnregisterBroker,
    UpdateFeatures,
)
from kafkaprod.broker.controller.quorum import describe_quorum
from kafkaprod.broker.controller.token_requests import on_envelope
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.metadata.records import decode
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.alter_partition import AlterPartitionRequest
from kafkaprod.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest
from kafkaprod.protocol.messages.change_settings import ChangeSettingsRequest, ChangeSettingsResponse
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from kafkaprod.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkaprod.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kafkaprod.protocol.messages.envelope import EnvelopeRequest
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kafkaprod.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from kafkaprod.protocol.messages.update_features import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from kafkaprod.protocol.schema import Request, Response

Respond = Callable[[Response], None]
_Wanted = TypeVar("_Wanted")
_Result = TypeVar("_Result")

VERSIONS: Final = {
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (6, 6),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.ELECT_LEADERS: (2, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (1, 1),
    ApiKey.DESCRIBE_QUORUM: (2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (1, 1),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.UPDATE_FEATURES: (1, 1),
    ApiKey.ENVELOPE: (0, 0),
    ApiKey.ALTER_PARTITION: (3, 3),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: (0, 0),
    ApiKey.BROKER_REGISTRATION: (3, 3),
    ApiKey.BROKER_HEARTBEAT: (0, 1),
    ApiKey.ALLOCATE_PRODUCER_IDS: (0, 0),
    ApiKey.CHANGE_SETTINGS: (0, 0),
}
"""What the controller answers."""

FORWARDED_VERSIONS: Final = {api: highest for api, (_, highest) in VERSIONS.items()}
"""What brokers send it."""

_DELETE_OPTION = 1  # AlterConfigOp.OpType.DELETE; the others are left to brokers, which know the old value
_NO_TOPIC = uuid.UUID(int=0)
"""No topic has this id, so a reassignment of it is refused as one of an unknown topic."""


def on_request(controller: Controller, request: Request, now_ms: int, reply: Respond) -> None:
    """Put the events of a request into the controller's queue; `reply` gets the response when they are answered.

    Raises:
        CorruptDataError: The request is not one for the controller.
    """
    handler = _HANDLERS.get(type(request))
    if handler is not None:
        handler(controller, request, now_ms, reply)
    elif type(request) in HANDLERS:
        controller.queue.put(Asked(request, reply), now_ms)
    else:
        raise CorruptDataError(f"{type(request).__name__} is not for the controller")


def _register(controller: Controller, request: BrokerRegistrationRequest, now_ms: int, reply: Respond) -> None:
    event = wire.registration_event(request, lambda answer: reply(wire.registration_response(answer)))
    controller.queue.put(event, now_ms)


def _beat(controller: Controller, request: BrokerHeartbeatRequest, now_ms: int, reply: Respond) -> None:
    event = wire.heartbeat_event(request, now_ms, lambda answer: reply(wire.heartbeat_response(answer)))
    controller.note_heartbeat(event)
    controller.queue.put(event, now_ms)


def _alter_partition(controller: Controller, request: AlterPartitionRequest, now_ms: int, reply: Respond) -> None:
    controller.queue.put(wire.isr_event(request, lambda answer: reply(wire.isr_response(answer))), now_ms)


def _change_settings(controller: Controller, request: ChangeSettingsRequest, now_ms: int, reply: Respond) -> None:
    def answered(answer: SettingsAnswer | ErrorCode) -> None:
        outcome = SettingsAnswer(answer) if isinstance(answer, ErrorCode) else answer
        reply(ChangeSettingsResponse(error_code=outcome.error, end_offset=outcome.end_offset))

    records = tuple(decode(bytes(record)) for record in request.records)
    controller.queue.put(ChangeSettings(records, answered), now_ms)


def _update_features(controller: Controller, request: UpdateFeaturesRequest, now_ms: int, reply: Respond) -> None:
    def answered(answer: TopicAnswer | ErrorCode) -> None:
        outcome = TopicAnswer(answer) if isinstance(answer, ErrorCode) else answer
        if outcome.error:
            reply(UpdateFeaturesResponse(error_code=outcome.error, error_message=outcome.message))
        else:
            reply(UpdateFeaturesResponse(results=[UpdatableFeatureResult(feature=name) for name in levels]))

    levels = {each.feature: (each.max_version_level, each.upgrade_type) for each in request.feature_updates}
    controller.queue.put(UpdateFeatures(controller.voter_id, levels, request.validate_only, answered), now_ms)


def _unregister(controller: Controller, request: UnregisterBrokerRequest, now_ms: int, reply: Respond) -> None:
    def answered(answer: TopicAnswer | ErrorCode) -> None:
        outcome = TopicAnswer(answer) if isinstance(answer, ErrorCode) else answer
        reply(UnregisterBrokerResponse(error_code=outcome.error, error_message=outcome.message))

    controller.queue.put(UnregisterBroker(request.broker_id, may_have_replicas=True, reply=answered), now_ms)


def _create_topics(controller: Controller, request: CreateTopicsRequest, now_ms: int, reply: Respond) -> None:
    takers = _takers(
        request.topics,
        lambda wanted, answer: CreatableTopicResult(
            name=wanted.name, topic_id=answer.topic_id, error_code=answer.error, error_message=answer.message
        ),
        lambda results: reply(CreateTopicsResponse(topics=results)),
    )
    for wanted, take in zip(request.topics, takers, strict=True):
        assignment = tuple(
            tuple(each.broker_ids) for each in sorted(wanted.assignments, key=lambda each: each.partition_index)
        )
        configs = {config.name: config.value for config in wanted.configs if config.value is not None}
        event = CreateTopic(
            wanted.name,
            wanted.num_partitions,
            wanted.replication_factor,
            assignment or None,
            configs,
            validate_only=request.validate_only,
            reply=take,
        )
        controller.queue.put(event, now_ms)


def _delete_topics(controller: Controller, request: DeleteTopicsRequest, now_ms: int, reply: Respond) -> None:
    takers = _takers(
        request.topics,
        lambda wanted, answer: DeletableTopicResult(
            name=wanted.name, topic_id=answer.topic_id, error_code=answer.error, error_message=answer.message
        ),
        lambda results: reply(DeleteTopicsResponse(responses=results)),
    )
    for wanted, take in zip(request.topics, takers, strict=True):
        controller.queue.put(DeleteTopic(wanted.name or "", take), now_ms)


def _create_partitions(controller: Controller, request: CreatePartitionsRequest, now_ms: int, reply: Respond) -> None:
    takers = _takers(
        request.topics,
        lambda wanted, answer: CreatePartitionsTopicResult(
            name=wanted.name, error_code=answer.error, error_message=answer.message
        ),
        lambda results: reply(CreatePartitionsResponse(results=results)),
    )
    for wanted, take in zip(request.topics, takers, strict=True):
        given = None if wanted.assignments is None else tuple(tuple(each.broker_ids) for each in wanted.assignments)
        event = CreatePartitions(wanted.name, wanted.count, given, request.validate_only, take)
        controller.queue.put(event, now_ms)


def _alter_configs(
    controller: Controller, request: IncrementalAlterConfigsRequest, now_ms: int, reply: Respond
) -> None:
    changes = [(resource, config) for resource in request.resources for config in resource.configs]

    def finish(answers: Sequence[TopicAnswer]) -> None:
        left = iter(answers)
        results = []
        for resource in request.resources:
            own = [next(left) for _ in resource.configs]
            answer = next((answer for answer in own if answer.error), TopicAnswer(ErrorCode.NONE))
            results.append(
                AlterConfigsResourceResponse(
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                    error_code=answer.error,
                    error_message=answer.message,
                )
            )
        reply(IncrementalAlterConfigsResponse(responses=results))

    takers = _each_taker(len(changes), finish)
    for (resource, config), take in zip(changes, takers, strict=True):
        value = None if config.config_operation == _DELETE_OPTION else config.value
        event = AlterConfig(resource.resource_type, resource.resource_name, config.name, value, take)
        controller.queue.put(event, now_ms)


def _elect_leaders(controller: Controller, request: ElectLeadersRequest, now_ms: int, reply: Respond) -> None:
    image = controller.context.image

    def finish(errors: Mapping[PartitionKey, ErrorCode] | ErrorCode) -> None:
        if isinstance(errors, ErrorCode):
            reply(ElectLeadersResponse(error_code=errors))
            return
        results: dict[str, list[PartitionResult]] = defaultdict(list)
        for (topic_id, index), error in errors.items():
            if request.topic_partitions is None and error == ErrorCode.ELECTION_NOT_NEEDED:
                continue
            topic = image.topics.get(topic_id)
            results["" if topic is None else topic.name].append(PartitionResult(partition_id=index, error_code=error))
        reply(
            ElectLeadersResponse(
                replica_election_results=[
                    ReplicaElectionResult(topic=name, partition_result=parts) for name, parts in results.items()
                ]
            )
        )

    keys = None
    if request.topic_partitions is not None:
        keys = tuple(
            (image.topic_ids[topic.topic], index)
            for topic in request.topic_partitions
            if topic.topic in image.topic_ids
            for index in topic.partitions
        )
    controller.queue.put(ElectLeaders(ElectionType(request.election_type), keys, finish), now_ms)


def _reassign(controller: Controller, request: AlterPartitionReassignmentsRequest, now_ms: int, reply: Respond) -> None:
    wanted = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]

    def result(each: tuple[str, ReassignablePartition], answer: TopicAnswer) -> ReassignablePartitionResponse:
        return ReassignablePartitionResponse(
            partition_index=each[1].partition_index, error_code=answer.error, error_message=answer.message
        )

    def finish(results: list[ReassignablePartitionResponse]) -> None:
        left = iter(results)
        topics = [
            ReassignableTopicResponse(name=topic.name, partitions=[next(left) for _ in topic.partitions])
            for topic in request.topics
        ]
        reply(AlterPartitionReassignmentsResponse(responses=topics))

    takers = _takers(wanted, result, finish)
    for (name, partition), take in zip(wanted, takers, strict=True):
        topic_id = controller.context.image.topic_ids.get(name, _NO_TOPIC)
        replicas = None if partition.replicas is None else tuple(partition.replicas)
        event = Reassign((topic_id, partition.partition_index), replicas, take)
        controller.queue.put(event, now_ms)


def _takers(
    wanted: Sequence[_Wanted], result: Callable[[_Wanted, TopicAnswer], _Result], reply: Callable[[list[_Result]], None]
) -> list[Callable[[Any], None]]:
    """Return what takes the answer of each thing that was wanted; reply with the results of all in their order."""

    def finish(answers: Sequence[TopicAnswer]) -> None:
        reply([result(each, answer) for each, answer in zip(wanted, answers, strict=True)])

    return _each_taker(len(wanted), finish)


def _each_taker(count: int, finish: Callable[[Sequence[TopicAnswer]], None]) -> list[Callable[[Any], None]]:
    """Return what takes the answers of events, which may come in any order; finish with all of them."""
    answers: dict[int, TopicAnswer] = {}

    def take(place: int, answer: TopicAnswer | ErrorCode) -> None:
        answers[place] = TopicAnswer(answer) if isinstance(answer, ErrorCode) else answer
        if len(answers) == count:
            finish([answers[index] for index in range(count)])

    if not count:
        finish([])
    return [partial(take, place) for place in range(count)]


_HANDLERS: Final[dict[type[Request], Callable[[Controller, Any, int, Respond], None]]] = {
    BrokerRegistrationRequest: _register,
    BrokerHeartbeatRequest: _beat,
    AlterPartitionRequest: _alter_partition,
    CreateTopicsRequest: _create_topics,
    DeleteTopicsRequest: _delete_topics,
    CreatePartitionsRequest: _create_partitions,
    IncrementalAlterConfigsRequest: _alter_configs,
    ElectLeadersRequest: _elect_leaders,
    AlterPartitionReassignmentsRequest: _reassign,
    DescribeQuorumRequest: describe_quorum,
    ChangeSettingsRequest: _change_settings,
    UnregisterBrokerRequest: _unregister,
    UpdateFeaturesRequest: _update_features,
    EnvelopeRequest: on_envelope,
}
