"""Requests that name things in every way there is: for tests of what users may do.

`requests` yields one of each combination of names and ids that are missing, that of a resource the user may use, of a
secret one, and of one that does not exist; in arrays of one, two and no element, and without the array.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkaprod.broker.settings import acls
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.field_types import ArrayType, FieldType, FixedType, ScalarType, StructType
from kafkaprod.protocol.messages import REQUESTS
from kafkaprod.protocol.schema import Request, Struct
from tests.support.broker.fixtures_log import make_batch
from tests.support.net.protocol_samples import kind_of

MINE, SECRET, FRESH = "mine", "secret", "fresh"
STRANGE_ID: Final = uuid.UUID(int=77)
MARKS: Final = {MINE: b"\xdd" * 16, SECRET: b"\xee" * 16}
"""In encoded requests and answers in place of the ids of topics, which differ from broker to broker."""
HMAC_MARKS: Final = {MINE: b"\xdb" * 64, SECRET: b"\xeb" * 64}
"""The same for the HMACs of delegation tokens."""
STRANGE_HMAC: Final = b"\x77" * 64
MOST_COMBINATIONS: Final = 120
_TIMES = {
    "max_wait_ms",
    "timeout",
    "transaction_timeout_ms",
    "session_timeout_ms",
    "rebalance_timeout_ms",
}
_KINDS: Final = {"resource_type": (acls.TOPIC, acls.GROUP, acls.CLUSTER, acls.TRANSACTIONAL_ID, 32), "key_type": (0, 1)}
"""Fields that say of what kind a named thing is, by the beginning of their names."""
PRODUCER_MARK: Final = 0x7072_6F64_7563_6572
"""Stands for the producer id of what is mine, which each broker gives out by itself."""
_NUMBERS: Final = {
    "producer_id": PRODUCER_MARK,
    **{"count": 5, "num_partitions": 1, "replication_factor": 1, "acks": -1, "replica_id": -1, "timeout_ms": 5_000},
    **{"operation": acls.READ, "permission_type": acls.ALLOW},
    **dict.fromkeys(("pattern_type_filter", "resource_pattern_type"), acls.LITERAL),
}


def requests(api: ApiKey, version: int, secret_id: uuid.UUID, most: int = MOST_COMBINATIONS) -> Iterator[Request]:
    """Yield requests with each combination of values in the fields that name something.

    Args:
        api: Of the requests.
        version: The version that they are for.
        secret_id: The id of the topic SECRET. That of MINE is its mark.
        most: So many combinations; more are thinned out evenly.
    """
    fields = sorted(set(_naming_fields(REQUESTS[api], version)))
    choices = [_values(name, kind, secret_id) for name, kind in fields]
    total = 1
    for values in choices:
        total *= len(values)
    step = max(1, total // most)
    if step > 1 and step % 2 == 0:
        step += 1
    for combination in itertools.islice(itertools.product(*choices), 0, None, step):
        given = {name: value for (name, _), value in zip(fields, combination, strict=True)}
        for number in _kind_numbers(REQUESTS[api], version):
            for shape in (1, 2, 0, None):
                yield _build(REQUESTS[api], version, given, number, shape)


def _fields(struct_class: type[Struct], version: int) -> Iterator[tuple[str, FieldType]]:
    for item in struct_class.fields:
        if not item.is_in(version):
            continue
        kind: Any = item.type
        while isinstance(kind, ArrayType):
            kind = kind.element
        if isinstance(kind, StructType):
            kind = kind.struct_class
        if isinstance(kind, type):
            yield from _fields(kind, version)
        else:
            yield item.name, kind


def _naming_fields(struct_class: type[Struct], version: int) -> Iterator[tuple[str, str]]:
    for name, kind in _fields(struct_class, version):
        if isinstance(kind, ScalarType) and (kind_of(kind) in ("string", "uuid") or name == "hmac"):
            yield name, kind_of(kind) + ("?" if kind.is_nullable(version) else "")


def _kind_numbers(struct_class: type[Struct], version: int) -> Sequence[int]:
    """Return the kinds of things that a request can name."""
    names = [name for name, _ in _fields(struct_class, version)]
    return next((numbers for kind, numbers in _KINDS.items() if any(name.startswith(kind) for name in names)), (0,))


def _values(name: str, kind: str, secret_id: uuid.UUID) -> list[Any]:
    if kind.startswith("uuid"):
        return [None, secret_id, uuid.UUID(bytes=MARKS[MINE]), STRANGE_ID]
    if name == "hmac":
        return [HMAC_MARKS[SECRET], b"", HMAC_MARKS[MINE], STRANGE_HMAC]
    if name.endswith("principal_type"):
        return ["User"]
    is_resource = any(word in name for word in ("name", "topic", "group", "id", "user", "entity", "pattern"))
    if not is_resource or name in ("member_id", "client_id", "rack_id", "group_instance_id", "protocol_name"):
        return [""]
    missing = None if kind.endswith("?") else ""
    return [SECRET, missing, MINE, FRESH]


def _build(struct_class: type[Struct], version: int, given: dict[str, Any], kind_number: int, shape: Any) -> Any:
    """Make a struct: arrays have `shape` elements, the first of them names what is `mine` if there are two."""

    def value_of(name: str, kind: Any, is_first_of_two: bool) -> Any:
        if isinstance(kind, ArrayType):
            if shape is None and kind.is_nullable(version):
                return None
            count = shape or 0
            return [value_of(name, kind.element, count == 2 and index == 0) for index in range(count)]
        if isinstance(kind, StructType):
            return value_of(name, kind.struct_class, is_first_of_two)
        if isinstance(kind, type):
            return struct(kind, is_first_of_two)
        if isinstance(kind, FixedType):
            return number_of(name, kind)
        if kind_of(kind) == "string":
            value = given.get(name, "")
            return MINE if is_first_of_two and value == SECRET else value
        if kind_of(kind) == "uuid":
            return given.get(name)
        return make_batch() if kind_of(kind) == "records" else given.get(name, b"")

    def number_of(name: str, kind: FixedType) -> Any:
        if kind.format == "?":
            return True
        if name.startswith(tuple(_KINDS)):
            return kind_number
        return _NUMBERS.get(name, int(name in _TIMES))

    def struct(kind: type[Struct], is_first_of_two: bool) -> Any:
        values = {
            item.name: value_of(item.name, item.type, is_first_of_two) for item in kind.fields if item.is_in(version)
        }
        return kind(**values)

    return struct(struct_class, is_first_of_two=False)
