"""Which groups there are, and what a user may do with one."""

from __future__ import annotations

from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.coordinators import GROUP, find_coordinator
from kafkaprod.admin.topics import first
from kafkaprod.errors import ConnectionLostError
from kafkaprod.protocol.error_codes import ErrorCode, describe, error_for
from kafkaprod.protocol.messages.describe_groups import NOT_REQUESTED, DescribeGroupsRequest
from kafkaprod.protocol.messages.list_groups import ListGroupsRequest

STABLE_VERSION: Final = 7  # of OffsetFetch: the first that waits for open transactions, and the last with one group
RETRY_MS: Final = 100
_MAX_MOVES: Final = 100  # RETRY_MS apart


def list_groups(client: ClusterClient) -> list[str]:
    """Return the names of all groups that this user may describe, those with nothing but offsets included.

    Raises:
        BrokerError: As a broker answered.
        ConnectionLostError: A broker of the cluster cannot be asked.
    """
    for move in range(_MAX_MOVES):
        try:
            answers = [client.ask(ListGroupsRequest(), broker.node_id) for broker in client.metadata([]).brokers]
        except ConnectionLostError:  # a broker has gone: ask those that coordinate its groups now
            if move == _MAX_MOVES - 1:
                raise
            client.wait(RETRY_MS)
            continue
        code = next((answer.error_code for answer in answers if answer.error_code), 0)
        if not code:
            return sorted({group.group_id for answer in answers for group in answer.groups})
        if not describe(code).retriable:
            break
        client.wait(RETRY_MS)
    raise error_for(code, "groups of the cluster")


def group_operations(client: ClusterClient, group: str) -> int | None:
    """Return what this user may do with a group, as Kafka's bit field; None: the brokers do not say.

    Raises:
        BrokerError: GROUP_AUTHORIZATION_FAILED, or as the coordinator answered.
    """
    request = DescribeGroupsRequest(groups=[group], include_authorized_operations=True)
    for _ in range(_MAX_MOVES):
        described = first(client.ask(request, find_coordinator(client, group, GROUP)).groups, "group")
        code = described.error_code
        if not code or code == ErrorCode.GROUP_ID_NOT_FOUND:
            operations = int(described.authorized_operations)
            return None if operations == NOT_REQUESTED else operations
        if not describe(code).retriable:
            break
        client.wait(RETRY_MS)
    raise error_for(code, about=f"group {group!r}")
