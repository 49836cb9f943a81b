"""BrokerHeartbeat (63): a broker lives, how far it has applied the metadata, and whether it wants to stop.

    1  log directories that failed (KIP-858)

Source: KIP-631.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, UUID, array
from kafkaprod.protocol.schema import Request, Response, field


class BrokerHeartbeatRequest(Request, api=ApiKey.BROKER_HEARTBEAT, versions=(0, 1), flexible_from=0):
    """The broker's state."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64, default=-1)
    current_metadata_offset: int = field(INT64)
    want_fence: bool = field(BOOL)
    want_shut_down: bool = field(BOOL)
    offline_log_dirs: list[uuid.UUID] = field(array(UUID), since=1, tag=0, ignorable=True)


class BrokerHeartbeatResponse(Response, api=ApiKey.BROKER_HEARTBEAT, versions=(0, 1), flexible_from=0):
    """What the controller makes of it."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    is_caught_up: bool = field(BOOL)
    is_fenced: bool = field(BOOL, default=True)
    should_shut_down: bool = field(BOOL)
