"""FindCoordinator (10): which broker coordinates a group or a transactional id.

    1  key type (before: groups only)        4  many keys at once (KIP-699)
    3  flexible                              5  may answer TRANSACTION_ABORTABLE     6  share groups

Source: protocol guide, KIP-98, KIP-699, KIP-890, KIP-932.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class FindCoordinatorRequest(Request, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_from=3):
    """Requests coordinators."""

    key: str = field(STRING, until=3)
    key_type: int = field(INT8, since=1)  # 0 group, 1 transaction, 2 share group
    coordinator_keys: list[str] = field(array(STRING), since=4)


class Coordinator(Struct):
    """The coordinator of one key, or why there is none."""

    key: str = field(STRING)
    node_id: int = field(INT32)  # -1 with an error
    host: str = field(STRING)
    port: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)


class FindCoordinatorResponse(Response, api=ApiKey.FIND_COORDINATOR, versions=(0, 6), flexible_from=3):
    """The coordinators."""

    throttle_time_ms: int = field(INT32, since=1, ignorable=True)
    error_code: int = field(INT16, until=3)
    error_message: str | None = field(NULLABLE_STRING, since=1, until=3, ignorable=True)
    node_id: int = field(INT32, until=3)
    host: str = field(STRING, until=3)
    port: int = field(INT32, until=3)
    coordinators: list[Coordinator] = field(array(Coordinator), since=4)
