"""Set and look up quotas of a running broker."""

from __future__ import annotations

from kafkaprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from kafkaprod.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tests.support.net.raw_client import RawClient

CLIENT_ID = "raw client"
"""That of RawClient."""


def set_quota(address: str, key: str, value: float, name: str | None = CLIENT_ID, kind: str = "client-id") -> None:
    """Set a quota of an entity, or remove it with 0; None is the default of its kind."""
    entity = [EntityData(entity_type=kind, entity_name=name)]
    entry = EntryData(entity=entity, ops=[OpData(key=key, value=value, remove=not value)])
    with RawClient(address) as client:
        answer = client.call(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
    assert [result.error_code for result in answer.entries] == [0]


def quotas_at(address: str) -> dict[str, float]:
    """Return the quotas that a broker knows, as "name key"."""
    with RawClient(address) as client:
        found = client.call(DescribeClientQuotasRequest(strict=False), DescribeClientQuotasResponse, 1)
    assert found.error_code == 0
    return {
        f"{entry.entity[0].entity_name} {each.key}": each.value
        for entry in found.entries or []
        for each in entry.values
    }
