"""API key -> handler: what is announced, where it runs, and what happens when it fails.

The table of handlers is the only place that knows all of them; what ApiVersions announces is computed from it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, cast

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
from kafkaprod.broker.server.authorized_calls import authorized_call
from kafkaprod.broker.server.request import ClientRequest, CloseConnectionError, Lane, Outcome
from kafkaprod.errors import ConfigError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages import version_ranges
from kafkaprod.protocol.schema import Request, Response

logger = logging.getLogger(__name__)


class Handler(Protocol):
    """What each module in `handlers` is. The request's type is the module's own."""

    API: ApiKey
    LANE: Lane
    MAX_VERSION: int

    @property
    def handle(self) -> Callable[[Broker, Any], Outcome]:
        """Do what the request asks for."""
        ...

    @property
    def refuse(self) -> Callable[[Any, int], Response]:
        """The response in which everything has failed."""
        ...


_MODULES: Final = (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    write_txn_markers,
)
HANDLERS: Final[Mapping[ApiKey, Handler]] = {module.API: cast(Handler, module) for module in _MODULES}


LOGIN_APIS: Final = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
BEFORE_LOGIN: Final = LOGIN_APIS | {ApiKey.API_VERSIONS}
"""The APIs a client may use before it has logged in."""


def announced_versions(
    *, has_login: bool, max_versions: Mapping[ApiKey, int] | None = None
) -> dict[ApiKey, tuple[int, int]]:
    """Return what ApiVersions answers: from the first declared version to the highest the handler understands.

    The APIs of the login are announced only where there is one. Produce is announced from 0, though 0 to 2 close the
    connection: librdkafka before 2.6 turns compression off where it does not find version 0 (KAFKA-18659).

    Args:
        has_login: clients have to log in.
        max_versions: of these APIs nothing higher is announced.

    Raises:
        ConfigError: a version of `max_versions` is below the lowest there is.
    """
    handled = HANDLERS.keys() if has_login else HANDLERS.keys() - LOGIN_APIS
    versions = version_ranges(handled, {api: handler.MAX_VERSION for api, handler in HANDLERS.items()})
    for api, version in (max_versions or {}).items():
        if api in versions:
            low, high = versions[api]
            if version < low:
                raise ConfigError(f"max_versions: {api.name} begins with version {low}, not {version}")
            versions[api] = (low, min(version, high))
    versions[ApiKey.PRODUCE] = (0, versions[ApiKey.PRODUCE][1])
    if has_login:
        versions[ApiKey.SASL_HANDSHAKE] = (1, 1)
    return versions


def call(handler: Handler, broker: Broker, request: ClientRequest[Request]) -> Outcome:
    """Run a handler; what it did not foresee is answered with -1.

    Raises:
        CloseConnectionError: the handler wants the connection closed.
    """
    try:
        if broker.acls.is_open:
            return handler.handle(broker, request)
        return authorized_call(broker, request, lambda other: handler.handle(broker, other), handler.refuse)
    except CloseConnectionError:
        raise
    except Exception:
        logger.exception("%s version %d failed", handler.API.name, request.version)
        return handler.refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR)
