"""AlterClientQuotas (49): set and remove quotas of users, client ids and addresses.

    1  flexible

Source: KIP-546.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, FLOAT64, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class EntityData(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(NULLABLE_STRING)


class OpData(Struct):
    """Sets or removes one quota."""

    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class EntryData(Struct):
    """An entity and the changes of its quotas."""

    entity: list[EntityData] = field(array(EntityData))
    ops: list[OpData] = field(array(OpData))


class AlterClientQuotasRequest(Request, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1):
    """Changes."""

    entries: list[EntryData] = field(array(EntryData))
    validate_only: bool = field(BOOL)


class EntryResult(Struct):
    """The outcome for one entity."""

    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    entity: list[EntityData] = field(array(EntityData))


class AlterClientQuotasResponse(Response, api=ApiKey.ALTER_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1):
    """The outcome for each entity."""

    throttle_time_ms: int = field(INT32)
    entries: list[EntryResult] = field(array(EntryResult))
