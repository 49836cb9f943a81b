"""CreateTopics (19): make topics; in a cluster the controller makes them. A broker alone keeps one replica.

4    -1 partitions or replicas means the broker's default     5  the new topic's options in the answer, 7 its id
"""

from __future__ import annotations

from collections import Counter
from functools import partial

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import Pause, Steps, each_short, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.forwarded_topics import check_topic, forward_creation
from kafkaprod.broker.cluster.own_topics import OwnTopics
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

API = ApiKey.CREATE_TOPICS
LANE = Lane.CONTROL
MAX_VERSION = 7


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
    result = check_topic(broker, wanted)
    broker.own_topics.begin(wanted, validate_only=validate_only)
    return result
