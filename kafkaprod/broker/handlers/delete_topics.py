"""DeleteTopics (20): delete topics and their data; committed offsets go with them.

6    by name or by id (KIP-516)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from kafkaprod.broker.calls.request import ClientRequest, Lane, Outcome
from kafkaprod.broker.calls.steps import PausingSteps, each_short, run_in_control_steps
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers.authorization import Authorizer, Handle, ItemRight, RefuseRequest
from kafkaprod.broker.handlers.mutations import Mutation, limited
from kafkaprod.broker.settings import acls
from kafkaprod.broker.settings.acls import TOPIC
from kafkaprod.errors import BrokerError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

API = ApiKey.DELETE_TOPICS
LANE = Lane.CONTROL
MAX_VERSION = 6

_FIRST_VERSION_WITH_IDS = 6
_FIRST_STRICT_VERSION = 5  # of quotas


def handle(broker: Broker, request: ClientRequest[DeleteTopicsRequest]) -> Outcome:
    """Delete each topic; TOPIC_DELETION_DISABLED while delete.topic.enable is off."""
    if broker.config.options.get("delete.topic.enable", "true").lower() == "false":
        return refuse(request, ErrorCode.TOPIC_DELETION_DISABLED)
    items = "topics" if request.version >= _FIRST_VERSION_WITH_IDS else "topic_names"
    mutation = Mutation(items, "responses", _FIRST_STRICT_VERSION, partial(_partition_count, broker))
    return limited(broker, request, mutation, partial(_delete_in_steps, broker), refuse)


def _delete_in_steps(broker: Broker, request: ClientRequest[DeleteTopicsRequest]) -> Outcome:
    return run_in_control_steps(broker, _delete_all(broker, request), partial(refuse, request))


def _partition_count(broker: Broker, wanted: DeleteTopicState | str) -> int:
    name = wanted if isinstance(wanted, str) else wanted.name
    known = broker.topics.get(name) if name is not None else None
    if known is None and isinstance(wanted, DeleteTopicState) and wanted.topic_id is not None:
        known = broker.topics.by_id(wanted.topic_id)
    return 0 if known is None else len(known.partitions)


def _delete_all(broker: Broker, request: ClientRequest[DeleteTopicsRequest]) -> PausingSteps[DeleteTopicsResponse]:
    every = _wanted(request)
    results = list(_check(every))
    refused = {(result.name, result.topic_id) for result in results}
    for wanted in every:
        if (wanted.name, wanted.topic_id) not in refused:
            results.append((yield from _delete(broker, wanted)))
    deleted = [result for result in results if result.error_code == ErrorCode.NONE]
    try:
        if deleted:
            broker.topics.sync()
    except BrokerError as error:
        for result in deleted:
            result.error_code, result.error_message = error.code, str(error)
    return DeleteTopicsResponse(responses=results)


def refuse(request: ClientRequest[DeleteTopicsRequest], error_code: int) -> DeleteTopicsResponse:
    """Answer the error for every topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=wanted.name, topic_id=wanted.topic_id, error_code=error_code)
            for wanted in _wanted(request)
        ]
    )


def _check(wanted: Sequence[DeleteTopicState]) -> Iterator[DeletableTopicResult]:
    """Yield a refusal for each topic that the request names not once, by name or by id: it deletes none of these."""
    counts = Counter((topic.name, topic.topic_id) for topic in wanted)
    for (name, topic_id), count in counts.items():
        if (name is None) == (topic_id is None):
            text = "A topic is named by its name or by its id, and not by both."
        elif count > 1:
            text = "The request names the topic more than once."
        else:
            continue
        yield DeletableTopicResult(
            name=name, topic_id=topic_id, error_code=ErrorCode.INVALID_REQUEST, error_message=text
        )


def _wanted(request: ClientRequest[DeleteTopicsRequest]) -> list[DeleteTopicState]:
    if request.version >= _FIRST_VERSION_WITH_IDS:
        return request.body.topics
    return [DeleteTopicState(name=name) for name in request.body.topic_names]


def _delete(broker: Broker, wanted: DeleteTopicState) -> PausingSteps[DeletableTopicResult]:
    name, topic_id = wanted.name, wanted.topic_id
    if name is None:
        topic = None if topic_id is None else broker.topics.by_id(topic_id)
        if topic is None:
            return DeletableTopicResult(name=None, topic_id=topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID)
        name = topic.name
    known = broker.topics.get(name)
    topic_id = topic_id if known is None else known.topic_id
    try:
        yield from each_short(broker.topics.deleting(name))
        keys = broker.offsets.table.keys(topic=name)
        broker.offsets.write([(key, None) for key in keys], broker.clock.wall_ms())
    except BrokerError as error:
        code = error.code
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=str(error))
    return DeletableTopicResult(name=name, topic_id=topic_id)


def authorize(authorizer: Authorizer, call: Handle, deny: RefuseRequest) -> Any:
    """Check the topics, which older versions name otherwise."""
    is_named = authorizer.request.version < 6
    items, name = ("topic_names", "") if is_named else ("topics", "name")
    return authorizer.split(call, deny, ItemRight(acls.DELETE, TOPIC, items, "responses", name))
