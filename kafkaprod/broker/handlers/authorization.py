"""What the ACLs let through of a request: all of it, some items, or nothing.

    whole request: not allowed -> the handler's refusal
    items (topics, groups ...): the handler gets those that are allowed; the refusals of the others are added to what it
    answers, now or later

Consulted only while there are ACLs. Which right each API needs: Kafka, KafkaApis and the authorization table of its
documentation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from kafkaprod.broker.calls.file_records import FileResponse
from kafkaprod.broker.calls.request import (
    ClientRequest,
    CloseConnectionError,
    Deferred,
    NoResponse,
    Outcome,
    Ready,
)
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers import config_resources
from kafkaprod.broker.settings import acls, authorized_operations
from kafkaprod.broker.settings.acls import CLUSTER, CLUSTER_NAME, GROUP, TOPIC, TRANSACTIONAL_ID
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Response

ERRORS: Final[Mapping[int, ErrorCode]] = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}

_NOT_REQUESTED: Final = -(2**31)  # of authorized operations
_RESOURCES_OF_OPTIONS: Final = {config_resources.TOPIC: TOPIC, config_resources.GROUP: GROUP}

Handle = Callable[[ClientRequest[Any]], Outcome]
RefuseRequest = Callable[[ClientRequest[Any], int], Response]

Special = Callable[["Authorizer", Handle, RefuseRequest], Any]
"""A rule that is the function `authorize` of a handler's module. Returns an Outcome; it may change its API's fields."""


class Right(NamedTuple):
    """What a whole request needs; the attribute of the body that names the resource, empty for the cluster."""

    operation: int
    resource_type: int
    attribute: str = ""


class ItemRight(NamedTuple):
    """What each item of a request needs.

    Attributes:
        items: Attribute of the body with the items.
        results: Attribute of the response with their outcomes.
        name: Attribute of an item that names the resource; empty if the item is the name.
    """

    operation: int
    resource_type: int
    items: str
    results: str
    name: str


def _cluster(operation: int) -> list[Right]:
    return [Right(operation, CLUSTER)]


def _group(operation: int = acls.READ) -> list[Right]:
    return [Right(operation, GROUP, "group_id")]


_TRANSACTION: Final = [Right(acls.WRITE, TRANSACTIONAL_ID, "transactional_id")]

RIGHTS: Final[Mapping[ApiKey, list[Right]]] = {
    ApiKey.OFFSET_COMMIT: _group(),
    ApiKey.JOIN_GROUP: _group(),
    ApiKey.HEARTBEAT: _group(),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _group(),
    ApiKey.LEAVE_GROUP: _group(),
    ApiKey.SYNC_GROUP: _group(),
    ApiKey.OFFSET_DELETE: _group(acls.DELETE),
    ApiKey.ADD_OFFSETS_TO_TXN: [*_TRANSACTION, *_group()],
    ApiKey.END_TXN: _TRANSACTION,
    ApiKey.TXN_OFFSET_COMMIT: [*_TRANSACTION, *_group()],
    ApiKey.WRITE_TXN_MARKERS: _cluster(acls.CLUSTER_ACTION),
    ApiKey.DESCRIBE_ACLS: _cluster(acls.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(acls.ALTER),
    ApiKey.DELETE_ACLS: _cluster(acls.ALTER),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _cluster(acls.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(acls.DESCRIBE),
    ApiKey.ELECT_LEADERS: _cluster(acls.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(acls.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(acls.DESCRIBE),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(acls.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(acls.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(acls.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(acls.ALTER),
    ApiKey.DESCRIBE_QUORUM: _cluster(acls.DESCRIBE),
    ApiKey.UNREGISTER_BROKER: _cluster(acls.ALTER),
    ApiKey.UPDATE_FEATURES: _cluster(acls.ALTER),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(acls.DESCRIBE_CONFIGS),
}

ITEM_RIGHTS: Final[Mapping[ApiKey, ItemRight]] = {
    ApiKey.LIST_OFFSETS: ItemRight(acls.DESCRIBE, TOPIC, "topics", "topics", "name"),
    ApiKey.OFFSET_COMMIT: ItemRight(acls.READ, TOPIC, "topics", "topics", "name"),
    ApiKey.TXN_OFFSET_COMMIT: ItemRight(acls.READ, TOPIC, "topics", "topics", "name"),
    ApiKey.DESCRIBE_GROUPS: ItemRight(acls.DESCRIBE, GROUP, "groups", "groups", ""),
    ApiKey.DELETE_GROUPS: ItemRight(acls.DELETE, GROUP, "groups_names", "results", ""),
    ApiKey.DELETE_RECORDS: ItemRight(acls.DELETE, TOPIC, "topics", "topics", "name"),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ItemRight(acls.DESCRIBE, TOPIC, "topics", "topics", "topic"),
    ApiKey.CREATE_PARTITIONS: ItemRight(acls.ALTER, TOPIC, "topics", "results", "name"),
    ApiKey.DESCRIBE_PRODUCERS: ItemRight(acls.READ, TOPIC, "topics", "topics", "name"),
}


class Authorizer:
    """Decides for one request.

    Attributes:
        request: Whose client asks.
    """

    def __init__(self, broker: Broker, request: ClientRequest[Any]) -> None:
        self.broker = broker
        self.request = request

    def may(self, operation: int, resource_type: int, name: str = CLUSTER_NAME) -> bool:
        """Decide about one resource."""
        request = self.request
        return self.broker.acls.is_allowed(request.principal, request.client_host, operation, resource_type, name)

    def may_for_any(self, operation: int, resource_type: int) -> bool:
        """Decide whether there is a resource of the type for which it is allowed."""
        request = self.request
        return self.broker.acls.is_allowed_for_any(request.principal, request.client_host, operation, resource_type)

    def refusal(self) -> ErrorCode:
        """Return the error for the whole request; NONE if it is allowed."""
        for right in RIGHTS.get(self.request.body.api, ()):
            name = getattr(self.request.body, right.attribute) if right.attribute else CLUSTER_NAME
            if name is not None and not self.may(right.operation, right.resource_type, name):
                return ERRORS[right.resource_type]
        return ErrorCode.NONE

    def split(self, handle: Handle, refuse: RefuseRequest, right: ItemRight) -> Outcome:
        """Handle the items that are allowed, and add the refusals of the others."""
        allowed: list[Any] = []
        denied: list[Any] = []
        for item in getattr(self.request.body, right.items):
            (allowed if self._may_item(right, item) else denied).append(item)
        if not denied:
            return handle(self.request)
        refused = refuse(self.with_changes(**{right.items: denied}), ERRORS[right.resource_type])
        if hasattr(refused, "error_code"):
            refused.error_code = ErrorCode.NONE
        if not allowed:
            return self._none_allowed(refused)
        return merged(handle(self.with_changes(**{right.items: allowed})), refused, right.results)

    def with_changes(self, **changes: Any) -> ClientRequest[Any]:
        """Return the request with other values in its body."""
        request = self.request
        body = copy.copy(request.body)
        for name, value in changes.items():
            setattr(body, name, value)
        return replace(request, body=body)

    def _may_item(self, right: ItemRight, item: Any) -> bool:
        name = getattr(item, right.name) if right.name else item
        topic_id = getattr(item, "topic_id", None)
        if right.resource_type == TOPIC and topic_id is not None:
            name = self.broker.topics.name_of("", topic_id)
            if name is None:
                return True  # the handler answers that the id is unknown
        return self.may(right.operation, right.resource_type, name)

    def _none_allowed(self, refused: Response) -> Response:
        body = self.request.body
        if body.api is ApiKey.PRODUCE and body.acks == 0:
            raise CloseConnectionError(f"{self.request.principal} may not write to the topics of an acks=0 request")
        return refused


def merged(outcome: Outcome, refused: Response, results: str) -> Outcome:
    """Add the outcomes in `refused` to those of the handler, when it has them."""
    if isinstance(outcome, Deferred):
        later = Deferred()
        later.on_abandon = outcome.abandon
        outcome.then(lambda ready: later.complete(_merged(ready, refused, results)))
        return later
    ready = _merged(outcome, refused, results)
    if isinstance(ready, CloseConnectionError):
        raise ready
    merged_now: Outcome = ready
    return merged_now


def _merged(ready: Ready, refused: Response, results: str) -> Any:
    if isinstance(ready, CloseConnectionError):
        return ready
    if isinstance(ready, NoResponse):  # acks=0: there is no other way to say it
        return CloseConnectionError("a topic of an acks=0 request may not be written to")
    response = ready.response if isinstance(ready, FileResponse) else ready
    getattr(response, results).extend(getattr(refused, results))
    return ready


def authorized_call(
    broker: Broker, request: ClientRequest[Any], handle: Handle, refuse: RefuseRequest, special: Special | None
) -> Outcome:
    """Handle what the client of a request may do, and refuse the rest.

    Args:
        broker: Has the ACLs.
        request: What the client sent.
        handle: Handles a request.
        refuse: Refuses one.
        special: The handler's own rule, None if the tables here say it all.

    Raises:
        CloseConnectionError: Records of an acks=0 request are refused.
    """
    authorizer = Authorizer(broker, request)
    error_code = authorizer.refusal()
    if error_code is not ErrorCode.NONE:
        return refuse(request, error_code)
    if special is not None:
        special_outcome: Outcome = special(authorizer, handle, refuse)
        return special_outcome
    right = ITEM_RIGHTS.get(request.body.api)
    outcome = handle(request) if right is None else authorizer.split(handle, refuse, right)
    show_authorized_operations(authorizer, outcome)
    return outcome


def rule_of_options(operation: int, results: str) -> Special:
    """Make the rule of an API of options: for topics and groups on them, for all else on the cluster."""

    def call(authorizer: Authorizer, handle: Handle, refuse: RefuseRequest) -> Any:
        allowed: list[Any] = []
        denied: dict[int, list[Any]] = {}
        for resource in authorizer.request.body.resources:
            kind = _RESOURCES_OF_OPTIONS.get(resource.resource_type, CLUSTER)
            name = acls.CLUSTER_NAME if kind == CLUSTER else resource.resource_name
            if authorizer.may(operation, kind, name):
                allowed.append(resource)
            else:
                denied.setdefault(kind, []).append(resource)
        outcome = handle(authorizer.with_changes(resources=allowed))
        for kind, resources in denied.items():
            refused = refuse(authorizer.with_changes(resources=resources), ERRORS[kind])
            outcome = merged(outcome, refused, results)
        return outcome

    return call


# -- authorized operations (KIP-430) -----------------------------------------------------------------------------------


def show_authorized_operations(authorizer: Authorizer, outcome: Any) -> None:
    """Remove the operations that are not allowed from those that are shown."""
    if getattr(outcome, "cluster_authorized_operations", _NOT_REQUESTED) != _NOT_REQUESTED:
        outcome.cluster_authorized_operations = _bits(
            authorizer, authorized_operations.CLUSTER_OPERATIONS, CLUSTER, acls.CLUSTER_NAME
        )
    for topic in getattr(outcome, "topics", ()):
        if getattr(topic, "topic_authorized_operations", _NOT_REQUESTED) != _NOT_REQUESTED and topic.name:
            topic.topic_authorized_operations = _bits(
                authorizer, authorized_operations.TOPIC_OPERATIONS, TOPIC, topic.name
            )
    for group in getattr(outcome, "groups", ()):
        if getattr(group, "authorized_operations", _NOT_REQUESTED) != _NOT_REQUESTED:
            group.authorized_operations = _bits(
                authorizer, authorized_operations.GROUP_OPERATIONS, GROUP, group.group_id
            )


def _bits(authorizer: Authorizer, operations: int, resource_type: int, name: str) -> int:
    return sum(
        1 << operation
        for operation in range(acls.READ, acls.TWO_PHASE_COMMIT + 1)
        if operations & (1 << operation) and authorizer.may(operation, resource_type, name)
    )
