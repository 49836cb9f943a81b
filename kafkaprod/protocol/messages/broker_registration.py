"""BrokerRegistration (62): a broker process registers with the controller; it is fenced until it has caught up.

    1  migration from ZooKeeper     2  log directories (KIP-858)     3  epoch of the last clean stop (KIP-966)

Source: KIP-631.
"""

from __future__ import annotations

import uuid

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, INT16, INT32, INT64, NULLABLE_STRING, STRING, UINT16, UUID, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class Listener(Struct):
    """Where a broker's listener can be reached."""

    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class Feature(Struct):
    """Versions of a feature that a broker supports."""

    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class BrokerRegistrationRequest(Request, api=ApiKey.BROKER_REGISTRATION, versions=(0, 4), flexible_from=0):
    """Who registers, and where it can be reached."""

    broker_id: int = field(INT32)
    cluster_id: str = field(STRING)
    incarnation_id: uuid.UUID | None = field(UUID)
    listeners: list[Listener] = field(array(Listener))
    features: list[Feature] = field(array(Feature))
    rack: str | None = field(NULLABLE_STRING)
    is_migrating_zk_broker: bool = field(BOOL, since=1)
    log_dirs: list[uuid.UUID] = field(array(UUID), since=2)
    previous_broker_epoch: int = field(INT64, since=3, default=-1, ignorable=True)  # -1: it did not stop cleanly


class BrokerRegistrationResponse(Response, api=ApiKey.BROKER_REGISTRATION, versions=(0, 4), flexible_from=0):
    """The epoch of the registration."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    broker_epoch: int = field(INT64, default=-1)
