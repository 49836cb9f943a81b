"""DescribeClientQuotas (48): quotas of users, client ids and addresses. Match types: 0 exact, 1 default, 2 any.

    1  flexible

Source: KIP-546.
"""

from __future__ import annotations

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import BOOL, FLOAT64, INT8, INT16, INT32, NULLABLE_STRING, STRING, array
from kafkaprod.protocol.schema import Request, Response, Struct, field


class ComponentData(Struct):
    """Filters one part of the entity."""

    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(NULLABLE_STRING)


class DescribeClientQuotasRequest(Request, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1):
    """Filters; all must match."""

    components: list[ComponentData] = field(array(ComponentData))
    strict: bool = field(BOOL)


class EntityData(Struct):
    """One part of an entity; a null name is the default."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(NULLABLE_STRING)


class ValueData(Struct):
    """One quota."""

    key: str = field(STRING)
    value: float = field(FLOAT64)


class EntryData(Struct):
    """An entity and its quotas."""

    entity: list[EntityData] = field(array(EntityData))
    values: list[ValueData] = field(array(ValueData))


class DescribeClientQuotasResponse(Response, api=ApiKey.DESCRIBE_CLIENT_QUOTAS, versions=(0, 1), flexible_from=1):
    """The quotas found."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(NULLABLE_STRING)
    entries: list[EntryData] | None = field(array(EntryData).nullable())
