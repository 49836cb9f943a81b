"""The records of `__transaction_state`, in Kafka's format: a key for each transactional id, its last state as value.

    key         int16 0 | transactionalId STRING                                    value null: the id has expired
    value 0     int16 0 | the fields of `_Value`                                    level 0 of transaction.version
    value 1     int16 1 | the same in the flexible encoding, with tagged fields     level 1 and above
Source: Kafka TransactionLogKey.json, TransactionLogValue.json. Pure: no I/O, no clock.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from kafkaprod.broker.coordinator.transaction import Transaction, TransactionState
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.field_types import INT8, INT16, INT32, INT64, STRING, array
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Struct, field
from kafkaprod.storage.internal_records import KeyValue
from kafkaprod.structs import TopicPartition

_KEY_VERSION = 0
_FIRST_FLEXIBLE = 1
_LATEST = 1
_VERSION = struct.Struct(">h")


class _Topic(Struct):
    """The partitions of one topic."""

    topic: str = field(STRING)
    partition_ids: list[int] = field(array(INT32))


class _Value(Struct):
    """A value, without its version."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[_Topic] | None = field(array(_Topic).nullable())  # null in state Empty only
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    client_transaction_version: int = field(INT16, since=1, tag=2)


class _Key(Struct):
    """A key, without its version."""

    transactional_id: str = field(STRING)


def encode_transaction(transaction: Transaction, level: int) -> KeyValue:
    """The record of a state. `level` is that of the feature transaction.version."""
    version = 0 if level == 0 else _LATEST
    is_empty = transaction.state is TransactionState.EMPTY
    value = _Value(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=int(transaction.state),
        transaction_partitions=None if is_empty else _topics(transaction.partitions),
        transaction_last_update_timestamp_ms=transaction.last_update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
    )
    if version >= _FIRST_FLEXIBLE:
        value.previous_producer_id = transaction.previous_producer_id
        value.next_producer_id = transaction.next_producer_id
        value.client_transaction_version = transaction.client_version
    writer = Writer()
    _Value.codec(version, version >= _FIRST_FLEXIBLE).write(writer, value)
    return encode_key(transaction.transactional_id), _VERSION.pack(version) + writer.getvalue()


def encode_key(transactional_id: str) -> bytes:
    """The key of an id; with a null value it says that the id has expired."""
    writer = Writer()
    _Key.codec(_KEY_VERSION, False).write(writer, _Key(transactional_id=transactional_id))
    return _VERSION.pack(_KEY_VERSION) + writer.getvalue()


def decode_transaction(key: bytes, value: bytes | None) -> tuple[str, Transaction | None] | None:
    """The id a record is about and its state, None if it has expired; None for records of another kind.

    Raises:
        CorruptDataError: Key or value is not as this module writes them.
    """
    version, key_reader = _split(key, "key")
    if version != _KEY_VERSION:
        return None
    transactional_id: str = _Key.codec(version, False).read(key_reader).transactional_id
    if value is None:
        return transactional_id, None
    version, reader = _split(value, "value")
    if not 0 <= version <= _LATEST:
        raise CorruptDataError(f"state of transactional id {transactional_id!r} has version {version}, not 0 or 1")
    return transactional_id, _transaction(
        transactional_id, _Value.codec(version, version >= _FIRST_FLEXIBLE).read(reader)
    )


def _transaction(transactional_id: str, value: _Value) -> Transaction:
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise CorruptDataError(
            f"transactional id {transactional_id!r} has state {value.transaction_status}, which does not exist"
        ) from None
    return Transaction(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        value.transaction_last_update_timestamp_ms,
        state,
        frozenset(
            TopicPartition(topic.topic, partition)
            for topic in value.transaction_partitions or ()
            for partition in topic.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.previous_producer_id,
        value.next_producer_id,
        client_version=value.client_transaction_version,
    )


def _topics(partitions: Iterable[TopicPartition]) -> list[_Topic]:
    found: dict[str, _Topic] = {}
    for name, index in sorted(partitions):
        found.setdefault(name, _Topic(topic=name)).partition_ids.append(index)
    return list(found.values())


def _split(content: bytes, what: str) -> tuple[int, Reader]:
    if len(content) < _VERSION.size:
        raise CorruptDataError(f"{what} of a transaction record has {len(content)} bytes, fewer than its version")
    return _VERSION.unpack_from(content)[0], Reader(memoryview(content)[_VERSION.size :])
