"""Find the broker that coordinates a group or a transactional id."""

from __future__ import annotations

from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.net.known_nodes import check_broker_id
from kafkaprod.protocol.error_codes import describe, error_for
from kafkaprod.protocol.messages.find_coordinator import FindCoordinatorRequest

GROUP: Final = 0
TRANSACTION: Final = 1
MAX_TRIES: Final = 100
RETRY_MS: Final = 100

_VERSION: Final = 3  # the last one with a single key
_KINDS: Final = {GROUP: "group", TRANSACTION: "transactional id"}


def find_coordinator(client: ClusterClient, key: str, kind: int) -> int:
    """Return a coordinator's node id, and wait while brokers make the topic that it keeps its state in.

    Args:
        client: A client of the cluster.
        key: The group or the transactional id.
        kind: GROUP or TRANSACTION.

    Raises:
        AuthorizationError, BrokerError: As the broker answered.
        CorruptDataError: It named a broker with a negative id.
    """
    request = FindCoordinatorRequest(key=key, key_type=kind)
    answer = client.ask(request, None, _VERSION)
    for _ in range(MAX_TRIES):
        if not (answer.error_code and describe(answer.error_code).retriable):
            break
        client.wait(RETRY_MS)
        answer = client.ask(request, None, _VERSION)
    if answer.error_code:
        raise error_for(answer.error_code, about=f"coordinator of {_KINDS[kind]} {key!r}")
    check_broker_id(answer.node_id)
    if not client.knows(answer.node_id, answer.host, answer.port):
        client.metadata([])
    return int(answer.node_id)
