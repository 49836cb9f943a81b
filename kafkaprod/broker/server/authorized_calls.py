"""Requests under ACLs: the tables of `authorization`, and the APIs whose rules do not fit into a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kafkaprod.broker.calls.request import ClientRequest, Outcome
from kafkaprod.broker.cluster import acls, authorized_operations, config_resources
from kafkaprod.broker.cluster.acls import CLUSTER, GROUP, TOPIC, TRANSACTIONAL_ID
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.server.authorization import ERRORS, ITEM_RIGHTS, Authorizer, Handle, ItemRight, Refuse, merged
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from kafkaprod.protocol.messages.offset_delete import OffsetDeleteResponsePartition, OffsetDeleteResponseTopic
from kafkaprod.protocol.messages.offset_fetch import (
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

Special = Callable[[Authorizer, Handle, Refuse], Any]
"""Returns an Outcome. The fields of the response it changes are those of its API."""

_NOT_REQUESTED = -(2**31)  # of authorized operations


def authorized_call(broker: Broker, request: ClientRequest[Any], handle: Handle, refuse: Refuse) -> Outcome:
    """Handle what the client of a request may do, and refuse the rest.

    Raises:
        CloseConnectionError: Records of an acks=0 request are refused.
    """
    authorizer = Authorizer(broker, request)
    error_code = authorizer.refusal()
    if error_code is not ErrorCode.NONE:
        return refuse(request, error_code)
    api = request.body.api
    special = _SPECIAL.get(api)
    if special is not None:
        special_outcome: Outcome = special(authorizer, handle, refuse)
        return special_outcome
    right = ITEM_RIGHTS.get(api)
    outcome = handle(request) if right is None else authorizer.split(handle, refuse, right)
    _show_authorized_operations(authorizer, outcome)
    return outcome


# -- topics ------------------------------------------------------------------------------------------------------------


def _metadata(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    body, version = authorizer.request.body, authorizer.request.version
    if body.topics is None or (version == 0 and not body.topics):
        response: Any = handle(authorizer.request)
        response.topics = [topic for topic in response.topics if authorizer.may(acls.DESCRIBE, TOPIC, topic.name)]
        _show_authorized_operations(authorizer, response)
        return response
    allowed, denied = [], []
    for topic in body.topics:
        known = None if topic.topic_id is None else authorizer.broker.topics.by_id(topic.topic_id)
        name = topic.name if known is None else known.name
        if name is None or (authorizer.may(acls.DESCRIBE, TOPIC, name) and _may_create(authorizer, name)):
            allowed.append(topic)
        elif topic.name is None:  # whoever may not describe it does not learn that the id exists
            denied.append(MetadataResponseTopic(topic_id=topic.topic_id, error_code=ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            denied.append(MetadataResponseTopic(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    # Version 0 takes an empty list for all topics.
    response = handle(authorizer.with_changes(topics=allowed or ([] if version else None)))
    if not allowed:
        response.topics = []
    _show_authorized_operations(authorizer, response)
    return merged(response, MetadataResponse(topics=denied), "topics")


def _may_create(authorizer: Authorizer, name: str) -> bool:
    broker = authorizer.broker
    creates = broker.config.auto_create_topics and authorizer.request.body.allow_auto_topic_creation
    if not creates or broker.topics.get(name) is not None:
        return True
    return authorizer.may(acls.CREATE, CLUSTER) or authorizer.may(acls.CREATE, TOPIC, name)


def _create_topics(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    if authorizer.may(acls.CREATE, CLUSTER):
        return handle(authorizer.request)
    return authorizer.split(handle, refuse, ItemRight(acls.CREATE, TOPIC, "topics", "topics", "name"))


def _delete_topics(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    is_named = authorizer.request.version < 6
    items, name = ("topic_names", "") if is_named else ("topics", "name")
    return authorizer.split(handle, refuse, ItemRight(acls.DELETE, TOPIC, items, "responses", name))


def _add_partitions_to_txn(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    """Refuse all if the id or one topic is not allowed.

    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, or TOPIC_AUTHORIZATION_FAILED for the topic and OPERATION_NOT_ATTEMPTED for
    the others.
    """
    body = authorizer.request.body
    is_batched = authorizer.request.version >= 4
    ids = [item.transactional_id for item in body.transactions] if is_batched else [body.v3_and_below_transactional_id]
    if not all(authorizer.may(acls.WRITE, TRANSACTIONAL_ID, name) for name in ids):
        return refuse(authorizer.request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    topics = [topic for item in body.transactions for topic in item.topics] if is_batched else body.v3_and_below_topics
    denied = {topic.name for topic in topics if not authorizer.may(acls.WRITE, TOPIC, topic.name)}
    if not denied:
        return handle(authorizer.request)
    response: Any = refuse(authorizer.request, ErrorCode.OPERATION_NOT_ATTEMPTED)
    response.error_code = ErrorCode.NONE
    results = (
        [topic for item in response.results_by_transaction for topic in item.topic_results]
        if is_batched
        else response.results_by_topic_v3_and_below
    )
    for topic in results:
        for outcome in topic.results_by_partition if topic.name in denied else ():
            outcome.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return response


# -- producers, coordinators, groups -----------------------------------------------------------------------------------


def _init_producer_id(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    transactional_id = authorizer.request.body.transactional_id
    if transactional_id is not None:
        if not authorizer.may(acls.WRITE, TRANSACTIONAL_ID, transactional_id):
            return refuse(authorizer.request, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not authorizer.may(acls.IDEMPOTENT_WRITE, CLUSTER) and not authorizer.may_for_any(acls.WRITE, TOPIC):
        return refuse(authorizer.request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return handle(authorizer.request)


def _find_coordinator(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    body = authorizer.request.body
    resource_type = {0: GROUP, 1: TRANSACTIONAL_ID}.get(body.key_type)
    if resource_type is None:
        return handle(authorizer.request)
    if authorizer.request.version < 4:
        if not authorizer.may(acls.DESCRIBE, resource_type, body.key):
            return refuse(authorizer.request, ERRORS[resource_type])
        return handle(authorizer.request)
    right = ItemRight(acls.DESCRIBE, resource_type, "coordinator_keys", "coordinators", "")
    return authorizer.split(handle, refuse, right)


def _list_groups(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    response: Any = handle(authorizer.request)
    if not authorizer.may(acls.DESCRIBE, CLUSTER):
        response.groups = [group for group in response.groups if authorizer.may(acls.DESCRIBE, GROUP, group.group_id)]
    return response


def _list_transactions(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    response: Any = handle(authorizer.request)
    response.transaction_states = [
        state
        for state in response.transaction_states
        if authorizer.may(acls.DESCRIBE, TRANSACTIONAL_ID, state.transactional_id)
    ]
    return response


def _consumer_group_heartbeat(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    """Refuse all if one of the topics that a member names may not be described."""
    names = authorizer.request.body.subscribed_topic_names or ()
    if not all(authorizer.may(acls.DESCRIBE, TOPIC, name) for name in names):
        return refuse(authorizer.request, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return handle(authorizer.request)


def _consumer_group_describe(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    """Check the groups, then refuse those with assigned topics that may not be described."""
    right = ItemRight(acls.DESCRIBE, GROUP, "group_ids", "groups", "")
    response: Any = authorizer.split(handle, refuse, right)
    _show_authorized_operations(authorizer, response)
    for group in response.groups:
        shares = [share for member in group.members for share in (member.assignment, member.target_assignment)]
        names = {topic.topic_name for share in shares for topic in share.topic_partitions}
        if not all(authorizer.may(acls.DESCRIBE, TOPIC, name) for name in names):
            group.error_code, group.members = ErrorCode.TOPIC_AUTHORIZATION_FAILED, []
            group.error_message = "The group has described topic(s) that the client is not authorized to describe."
    return response


def _offset_fetch(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    """Check the groups, then leave out the topics that may not be described."""
    if authorizer.request.version < 8:
        if not authorizer.may(acls.DESCRIBE, GROUP, authorizer.request.body.group_id):
            return refuse(authorizer.request, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        response: Any = handle(authorizer.request)
        _hide_offsets(authorizer, response, authorizer.request.body)
        return response
    right = ItemRight(acls.DESCRIBE, GROUP, "groups", "groups", "group_id")
    response = authorizer.split(handle, refuse, right)
    asked = {group.group_id: group for group in authorizer.request.body.groups}
    for group in response.groups:
        _hide_offsets(authorizer, group, asked[group.group_id])
    return response


def _hide_offsets(authorizer: Authorizer, answer: Any, asked: Any) -> None:
    """Replace the offsets of topics that may not be described by TOPIC_AUTHORIZATION_FAILED.

    An answer with all topics leaves them out.
    """
    topics = []
    for topic in answer.topics:
        name = authorizer.broker.topics.name_of(topic.name, getattr(topic, "topic_id", None))
        if name is None or authorizer.may(acls.DESCRIBE, TOPIC, name):
            topics.append(topic)
        elif asked.topics is not None:
            topics.append(_hidden(topic))
    answer.topics = topics


def _hidden(topic: OffsetFetchResponseTopic | OffsetFetchResponseTopics) -> Any:
    hidden: dict[str, Any] = {
        "committed_offset": -1,
        "metadata": "",
        "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
    indexes = [partition.partition_index for partition in topic.partitions]
    if isinstance(topic, OffsetFetchResponseTopic):
        old = [OffsetFetchResponsePartition(partition_index=index, **hidden) for index in indexes]
        return OffsetFetchResponseTopic(name=topic.name, partitions=old)
    new = [OffsetFetchResponsePartitions(partition_index=index, **hidden) for index in indexes]
    return OffsetFetchResponseTopics(name=topic.name, topic_id=topic.topic_id, partitions=new)


def _offset_delete(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
    topics = authorizer.request.body.topics
    denied = [topic for topic in topics if not authorizer.may(acls.READ, TOPIC, topic.name)]
    names = {topic.name for topic in denied}
    response: Any = handle(authorizer.with_changes(topics=[topic for topic in topics if topic.name not in names]))
    error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    for topic in denied if response.error_code == ErrorCode.NONE else ():
        outcomes = [
            OffsetDeleteResponsePartition(partition_index=wanted.partition_index, error_code=error_code)
            for wanted in topic.partitions
        ]
        response.topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=outcomes))
    return response


# -- options -----------------------------------------------------------------------------------------------------------

_RESOURCE_TYPES: Final = {config_resources.TOPIC: TOPIC, config_resources.GROUP: GROUP}


def _configs(operation: int, results: str) -> Special:
    """Make the rule of an API of options: for topics and groups on them, for all else on the cluster."""

    def call(authorizer: Authorizer, handle: Handle, refuse: Refuse) -> Any:
        allowed: list[Any] = []
        denied: dict[int, list[Any]] = {}
        for resource in authorizer.request.body.resources:
            kind = _RESOURCE_TYPES.get(resource.resource_type, CLUSTER)
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


def _show_authorized_operations(authorizer: Authorizer, outcome: Any) -> None:
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


_SPECIAL: Final[Mapping[ApiKey, Special]] = {
    ApiKey.METADATA: _metadata,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions_to_txn,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.LIST_GROUPS: _list_groups,
    ApiKey.LIST_TRANSACTIONS: _list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _consumer_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _consumer_group_describe,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_CONFIGS: _configs(acls.DESCRIBE_CONFIGS, "results"),
    ApiKey.ALTER_CONFIGS: _configs(acls.ALTER_CONFIGS, "responses"),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(acls.ALTER_CONFIGS, "responses"),
}
