"""A request of every API and version, made from its declaration: names of things that exist, small numbers, one element
in each array."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from typing import Any

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FixedType, ScalarType, StructType
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.schema import Request, Struct
from tests.support.broker.fixtures_log import make_batch

_counter = itertools.count()

NUMBERS = {
    "acks": -1,
    "count": 9,
    "broker_ids": 0,
    "current_leader_epoch": -1,
    "isolation_level": 0,
    "max_bytes": 1 << 20,
    "min_bytes": 0,
    "max_num_offsets": 1,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 20,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "response_partition_limit": 10,
    "retention_time_ms": -1,
    "session_timeout_ms": 10_000,
    "rebalance_timeout_ms": 1_000,
    "timeout_ms": 1_000,
    "transaction_timeout_ms": 10_000,
}
TEXTS = {"client_software_name": "test", "client_software_version": "1", "protocol_type": "consumer", "path": "/"}
TOPIC_FIELDS = frozenset({"topic", "name", "topic_name", "topics", "topic_names", "subscribed_topic_names"})
OWN_NAMES = frozenset({"group_id", "groups", "groups_names", "transactional_id", "transactional_ids", "group_ids"})


def requests_of(api: ApiKey, version: int, topic: str, topic_id: uuid.UUID | None) -> Iterator[Request]:
    """Yield requests about a topic: with one element in each array, and, where that is allowed, without the arrays."""
    request_class = REQUESTS[api]
    yield _filled(request_class, version, topic, topic_id, with_null=False)
    if any(isinstance(item.type, ArrayType) and item.is_in(version) for item in request_class.fields):
        yield _filled(request_class, version, topic, topic_id, with_null=True)


def _filled(made: Any, version: int, topic: str, topic_id: uuid.UUID | None, *, with_null: bool) -> Any:
    values: dict[str, Any] = {}
    for item in made.fields:
        if not item.is_in(version):
            continue
        if with_null and isinstance(item.type, ArrayType):
            values[item.name] = None if item.type.is_nullable(version) else []
        else:
            default = item.make_default()
            values[item.name] = _value(item.name, item.type, version, default, topic, topic_id)
    return made(**values)


def _value(name: str, kind: Any, version: int, default: Any, topic: str, topic_id: uuid.UUID | None) -> Any:
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _filled(kind, version, topic, topic_id, with_null=False)
    if isinstance(kind, StructType):
        return default if default is None else _filled(kind.struct_class, version, topic, topic_id, with_null=False)
    if isinstance(kind, ArrayType):
        element = getattr(kind.element, "zero", lambda: None)()
        return [_value(name, kind.element, version, element, topic, topic_id)]
    if isinstance(kind, FixedType):
        return NUMBERS.get(name, default)
    assert isinstance(kind, ScalarType)
    return _scalar(name, default, topic, topic_id)


def _scalar(name: str, default: Any, topic: str, topic_id: uuid.UUID | None) -> Any:
    if name == "records":
        return make_batch([b"v"])
    if name in ("topic_id", "topic_ids"):
        return topic_id
    if name in TOPIC_FIELDS or (name in ("key", "resource_name") and default == ""):
        return topic
    if name in OWN_NAMES:
        return f"own-{next(_counter)}"
    return TEXTS.get(name, default)


def unexpected_errors(answer: object, place: str = "") -> list[str]:
    """Return where in an answer UNKNOWN_SERVER_ERROR stands."""
    if isinstance(answer, list):
        return [found for part in answer for found in unexpected_errors(part, place)]
    if not isinstance(answer, Struct):
        return []
    found = []
    for item in type(answer).fields:
        value = getattr(answer, item.name)
        inner = f"{place}.{item.name}"
        if item.name.endswith("error_code") and value == -1:
            found.append(inner)
        found += unexpected_errors(value, inner)
    return found
