"""What arrives at the controller's socket, and becomes its events.

A request is an event as it is. One of several topics or resources is as many events, so that heartbeats are read
between them; one that needs to know who has sent it comes in an envelope. Brokers have checked names, options and
rights of a request before they forward it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kafkaprod.broker.calls.refusal_shapes import NO_ITEMS, Sources, refusal
from kafkaprod.broker.controller.controller import HANDLERS, Controller
from kafkaprod.broker.controller.envelopes import answered, unseal
from kafkaprod.broker.controller.events import Asked
from kafkaprod.broker.controller.quorum import describe_quorum
from kafkaprod.broker.controller.tokens import refused_change
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.describe_quorum import DescribeQuorumRequest
from kafkaprod.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from kafkaprod.protocol.schema import Request, Response

Respond = Callable[[Response], None]

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

PARTS: Final[Mapping[ApiKey, Sources]] = {
    ApiKey.CREATE_TOPICS: {"topics": "topics"},
    ApiKey.DELETE_TOPICS: {"responses": "topics"},
    ApiKey.CREATE_PARTITIONS: {"results": "topics"},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {"responses": "resources"},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {"responses": "topics", "partitions": "partitions"},
}
"""The requests that are an event for each of their items: the results, and the items that they are of."""


def on_request(controller: Controller, request: Request, now_ms: int, reply: Respond) -> None:
    """Put the events of a request into the controller's queue; `reply` gets the response when they are answered.

    Raises:
        CorruptDataError: The request is not one for the controller.
    """
    if request.api not in VERSIONS:
        raise CorruptDataError(f"{type(request).__name__} is not for the controller")
    if isinstance(request, DescribeQuorumRequest):
        reply(describe_quorum(controller, request))
    elif isinstance(request, EnvelopeRequest):
        _put_sealed(controller, request, now_ms, reply)
    elif request.api in PARTS:
        _put_parts(controller, request, now_ms, reply)
    else:
        if isinstance(request, BrokerHeartbeatRequest):
            controller.note_heartbeat(request, now_ms)
        _put(controller, request, now_ms, reply)


def _put(controller: Controller, request: Request, now_ms: int, reply: Respond) -> None:
    refuse = partial(_refuse, request)
    controller.queue.put(Asked(request, reply, refuse), now_ms)


def _refuse(request: Request, error: ErrorCode) -> Response:
    return refusal(request, request.versions[1], error, PARTS.get(request.api, NO_ITEMS))


def _put_parts(controller: Controller, request: Request, now_ms: int, reply: Respond) -> None:
    """Put an event for each item of a request; they are answered in order."""
    results_name, items_name = next(iter(PARTS[request.api].items()))
    items = getattr(request, str(items_name))
    response = RESPONSES[request.api]()
    results: list[Any] = getattr(response, results_name)

    def take(part: Response) -> None:
        results.extend(getattr(part, results_name))
        if len(results) == len(items):
            reply(response)

    for item in items:
        part = copy.copy(request)
        setattr(part, str(items_name), [item])
        _put(controller, part, now_ms, take)
    if not items:
        reply(response)


def _put_sealed(controller: Controller, envelope: EnvelopeRequest, now_ms: int, reply: Respond) -> None:
    """Put the request in an envelope; INVALID_REQUEST if such a request never comes in one."""
    try:
        request, version, requester = unseal(envelope)
    except CorruptDataError:
        reply(EnvelopeResponse(error_code=ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE))
        return
    if request.api in VERSIONS or type(request) not in HANDLERS:
        reply(EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    event = Asked(
        request,
        lambda response: reply(answered(response, version)),
        lambda error: refused_change(request, requester, error),
        requester,
    )
    controller.queue.put(event, now_ms)
