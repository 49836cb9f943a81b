"""CreateTopics and CreatePartitions of a broker alone, which makes the logs itself: in steps, as there may be many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkaprod.broker.calls.request import Outcome
from kafkaprod.broker.calls.steps import Pause, PausingSteps, each_short, run_in_control_steps
from kafkaprod.broker.cluster.forwarded_topics import check_topic, failed_growth, failed_topic, refuse_repeated
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.broker.cluster.topics import refuse_internal
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.schema import Response

if TYPE_CHECKING:
    from kafkaprod.broker.cluster.broker import Broker

_Refuse = Callable[[int], Response]


def create_topics(broker: Broker, topics: OwnTopics, body: CreateTopicsRequest, refuse: _Refuse) -> Outcome:
    """Make each topic, or only check whether it could be made."""
    return run_in_control_steps(broker, _create_all(broker, topics, body), refuse)


def create_partitions(broker: Broker, topics: OwnTopics, body: CreatePartitionsRequest, refuse: _Refuse) -> Outcome:
    """Grow each topic, or only check whether it could grow."""
    return run_in_control_steps(broker, _grow_all(topics, body), refuse)


def _create_all(broker: Broker, topics: OwnTopics, body: CreateTopicsRequest) -> PausingSteps[CreateTopicsResponse]:
    """Write all topics down, which are synced once, then make them."""
    counts = Counter(wanted.name for wanted in body.topics)
    results = []
    for wanted in body.topics:
        try:
            refuse_repeated(wanted.name, counts)
            result = check_topic(broker, wanted)
            topics.begin(wanted, validate_only=body.validate_only)
            results.append(result)
        except BrokerError as error:
            results.append(failed_topic(wanted.name, error))
        yield Pause.SHORT
    if not body.validate_only:
        yield from _make_all(topics, results)
    return CreateTopicsResponse(topics=results)


def _make_all(topics: OwnTopics, results: list[CreatableTopicResult]) -> PausingSteps[None]:
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
            results[place] = failed_topic(name, error)


def _sync(topics: OwnTopics) -> BrokerError | None:
    try:
        topics.sync()
    except BrokerError as error:
        return error
    return None


def _grow_all(topics: OwnTopics, body: CreatePartitionsRequest) -> PausingSteps[CreatePartitionsResponse]:
    counts = Counter(wanted.name for wanted in body.topics)
    results = []
    for wanted in body.topics:
        try:
            refuse_repeated(wanted.name, counts)
            refuse_internal(wanted.name)
            yield from each_short(topics.adding_partitions(wanted, validate_only=body.validate_only))
            results.append(CreatePartitionsTopicResult(name=wanted.name))
        except BrokerError as error:
            results.append(failed_growth(wanted.name, error))
    return CreatePartitionsResponse(results=results)
