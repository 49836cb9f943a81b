"""Requests about topics: checked here, carried out by the controller."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, run_in_control_steps
from kafkaprod.broker.cluster.topics import check_count, refuse_internal
from kafkaprod.broker.settings.topic_options import DEFAULT_SOURCE, TOPIC_SOURCE, default_values
from kafkaprod.broker.storage.format.log_config import LogConfig
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.schema import Response

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker

_DEFAULT = -1


def create_topics(broker: Broker, body: CreateTopicsRequest, refuse: Callable[[int], Response]) -> Outcome:
    """Check the topics in steps, and have the cluster's controller make those that pass."""
    return run_in_control_steps(broker, _check_and_create(broker, body), refuse)


def _check_and_create(broker: Broker, body: CreateTopicsRequest) -> PausingSteps[Outcome]:
    counts = Counter(wanted.name for wanted in body.topics)
    results: dict[str, CreatableTopicResult] = {}
    passed = []
    for wanted in body.topics:
        try:
            refuse_repeated(wanted.name, counts)
            results[wanted.name] = check_topic(broker, wanted)
            passed.append(wanted)
        except BrokerError as error:
            results[wanted.name] = failed_topic(wanted.name, error)
        yield Pause.SHORT

    def finish(response: Response | None) -> CreateTopicsResponse:
        made = {topic.name: topic for topic in response.topics} if isinstance(response, CreateTopicsResponse) else {}
        for wanted in passed:
            outcome = made.get(wanted.name)
            result = results[wanted.name]
            result.error_code = ErrorCode.REQUEST_TIMED_OUT if outcome is None else outcome.error_code
            result.error_message = None if outcome is None else outcome.error_message
            result.topic_id = None if outcome is None else outcome.topic_id
        return CreateTopicsResponse(topics=list(results.values()))

    if not passed:
        return CreateTopicsResponse(topics=list(results.values()))
    request = CreateTopicsRequest(topics=passed, validate_only=body.validate_only)
    return broker.standing.forward(request, finish, lambda answer: body.validate_only or _are_visible(broker, answer))


def create_partitions(broker: Broker, body: CreatePartitionsRequest) -> Outcome:
    """Check the topics, and have the cluster's controller add partitions to those that pass."""
    counts = Counter(wanted.name for wanted in body.topics)
    results: dict[str, CreatePartitionsTopicResult] = {}
    passed = []
    for wanted in body.topics:
        try:
            refuse_repeated(wanted.name, counts)
            refuse_internal(wanted.name)
            check_count(wanted.count)
            passed.append(wanted)
            results[wanted.name] = CreatePartitionsTopicResult(
                name=wanted.name,
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message="The controller does not answer.",
            )
        except BrokerError as error:
            results[wanted.name] = failed_growth(wanted.name, error)

    def finish(response: Response | None) -> CreatePartitionsResponse:
        made = response.results if isinstance(response, CreatePartitionsResponse) else []
        results.update({result.name: result for result in made})
        return CreatePartitionsResponse(results=list(results.values()))

    def is_visible(response: Response | None) -> bool:
        made = response.results if isinstance(response, CreatePartitionsResponse) else []
        grown = {result.name for result in made if not result.error_code}
        return body.validate_only or all(
            broker.topics.partition(wanted.name, wanted.count - 1) is not None
            for wanted in passed
            if wanted.name in grown
        )

    if not passed:
        return CreatePartitionsResponse(results=list(results.values()))
    request = CreatePartitionsRequest(topics=passed, validate_only=body.validate_only)
    return broker.standing.forward(request, finish, is_visible)


def _are_visible(broker: Broker, response: Response | None) -> bool:
    """Whether this broker knows the topics that the controller has made."""
    if not isinstance(response, CreateTopicsResponse):
        return True
    return all(topic.error_code or broker.topics.get(topic.name) is not None for topic in response.topics)


def refuse_repeated(name: str, counts: Mapping[str, int]) -> None:
    """Raise RequestRefusedError INVALID_REQUEST if the request names the topic more than once."""
    if counts[name] > 1:
        raise RequestRefusedError(ErrorCode.INVALID_REQUEST, f"Topic '{name}' is in the request twice.")


def failed_topic(name: str, error: BrokerError) -> CreatableTopicResult:
    """Return the answer for a topic that cannot be made."""
    return CreatableTopicResult(name=name, error_code=error.code, error_message=str(error))


def failed_growth(name: str, error: BrokerError) -> CreatePartitionsTopicResult:
    """Return the answer for a topic that gets no more partitions."""
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=str(error))


def check_topic(broker: Broker, wanted: CreatableTopic) -> CreatableTopicResult:
    """Check what needs no controller, and put numbers in the place of defaults."""
    refuse_internal(wanted.name)
    if wanted.assignments:
        if (wanted.num_partitions, wanted.replication_factor) != (_DEFAULT, _DEFAULT):
            raise RequestRefusedError(
                ErrorCode.INVALID_REQUEST,
                "A manual assignment leaves no room for partition count and replication factor.",
            )
        indexes = sorted(assignment.partition_index for assignment in wanted.assignments)
        if indexes != list(range(len(indexes))):
            raise RequestRefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "Partitions must be numbered from 0.")
        count, factor = len(indexes), len(wanted.assignments[0].broker_ids)
    else:
        count = broker.config.num_partitions if wanted.num_partitions == _DEFAULT else wanted.num_partitions
        factor = wanted.replication_factor
        if factor == _DEFAULT:
            factor = broker.standing.replication_factor
        wanted.num_partitions, wanted.replication_factor = count, factor
    properties = {config.name: config.value for config in wanted.configs if config.value is not None}
    config = broker.topics.check_new(wanted.name, count, properties)
    return CreatableTopicResult(
        name=wanted.name,
        num_partitions=count,
        replication_factor=factor,
        configs=_described(config, frozenset(properties.items()), frozenset(broker.config.options.items())),
    )


@lru_cache(maxsize=8)  # the topics of a request often have the same options, which take 5 KiB to describe
def _described(
    config: LogConfig, options: frozenset[tuple[str, str]], of_broker: frozenset[tuple[str, str]]
) -> list[CreatableTopicConfigs]:
    """Return all options of a topic as the answer shows them; not to be changed."""
    properties = dict(options)
    values = {**default_values(config, dict(of_broker)), **properties}
    return [
        CreatableTopicConfigs(
            name=name, value=value, config_source=TOPIC_SOURCE if name in properties else DEFAULT_SOURCE
        )
        for name, value in sorted(values.items())
    ]
