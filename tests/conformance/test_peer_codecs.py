"""Our bytes against two other codecs: kafka-python and kio must read them, see the same values, and write them again.

Messages a peer does not have are listed below, so that nothing is left out unnoticed.
"""

from __future__ import annotations

import datetime
import io
import uuid
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import kafka.protocol.admin
import kafka.protocol.consumer
import kafka.protocol.metadata
import kafka.protocol.producer
import kafka.protocol.sasl
import pytest
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from kafkaprod.protocol.messages.api_versions import ApiVersionsResponse
from kafkaprod.protocol.schema import Message, Request, Struct
from tests.support.net.protocol_samples import ALL_VERSIONS, build, distinct_values

KAFKA_PYTHON_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)
KAFKA_PYTHON_LACKS_APIS = {
    "ConsumerGroupDescribe",
    "ConsumerGroupHeartbeat",
    "GetTelemetrySubscriptions",
    "PushTelemetry",
    "UnregisterBroker",
    *(f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")),
    *("AllocateProducerIds", "AlterPartition", "AssignReplicasToDirs", "BrokerHeartbeat", "BrokerRegistration"),
    "Envelope",  # as those before it, between brokers
}
OURS_ALONE = {"ChangeSettings", "ReplicateMetadata"}  # between the parts of the embedded cluster
BOTH_LACK = {("ApiVersions", 5), ("DeleteGroups", 3), ("TxnOffsetCommit", 6)}  # newer than either


def name_of(message_class: type[Message]) -> str:
    return message_class.__name__.removesuffix("Request").removesuffix("Response")


KIO_CASES = [
    case for case in ALL_VERSIONS if (name_of(case[0]), case[1]) not in BOTH_LACK and name_of(case[0]) not in OURS_ALONE
]
KAFKA_PYTHON_CASES = [case for case in KIO_CASES if name_of(case[0]) not in KAFKA_PYTHON_LACKS_APIS]


def case_id(value: Any) -> str:
    return value.__name__ if isinstance(value, type) else f"v{value}"


def messages_of(message_class: type[Message], version: int) -> Iterator[Message]:
    """Distinct values, with and without elements, and nulls. Numbers are below 100: every one is a known error code."""
    for element_count, nulls in ((2, False), (0, False), (1, True)):
        message = build(message_class, version, distinct_values(), element_count, nulls)
        if isinstance(message, ApiVersionsResponse):
            message.error_code = 0  # with an error, kafka-python takes every version for version 0
        yield message


def plain(value: Any, version: int) -> Any:
    """A message as nested lists of values in the order of its fields, as either side can produce it."""
    if isinstance(value, Struct):
        return [plain(getattr(value, item.name), version) for item in type(value).fields if item.is_in(version)]
    if isinstance(value, list):
        return [plain(element, version) for element in value]
    return bytes(value) if isinstance(value, memoryview) else value


def plain_kafka_python(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [plain_kafka_python(element, version) for element in value]
    if hasattr(value, "_struct"):
        present = [item for item in value._struct._fields if item.for_version_q(version)]
        return [plain_kafka_python(getattr(value, item.name), version) for item in present]
    if isinstance(value, set):  # authorized operations, as the numbers of the bits
        return sum(1 << bit for bit in value)
    if isinstance(value, uuid.UUID) and value.int == 0:
        return None
    return bytes(value) if isinstance(value, (bytearray, memoryview)) else value


def plain_kio(value: Any) -> Any:
    """kio turns durations, times and error codes into classes of their own."""
    if is_dataclass(value):
        return [plain_kio(getattr(value, item.name)) for item in fields(value)]
    if isinstance(value, tuple):
        return [plain_kio(element) for element in value]
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    return value


@pytest.mark.parametrize(("message_class", "version"), KAFKA_PYTHON_CASES, ids=case_id)
def test_kafka_python_reads_and_writes_the_same(message_class: type[Message], version: int) -> None:
    peer_class: Any = next(
        getattr(module, message_class.__name__)
        for module in KAFKA_PYTHON_MODULES
        if hasattr(module, message_class.__name__)
    )
    for message in messages_of(message_class, version):
        encoded = message.encode(version)

        read = peer_class[version].decode(encoded)

        assert plain_kafka_python(read, version) == plain(message, version)
        read._header = None  # 3.0.12 leaves it unset when it decodes, and then cannot encode
        assert bytes(read.encode(version=version)) == encoded


@pytest.mark.parametrize(("message_class", "version"), KIO_CASES, ids=case_id)
def test_kio_reads_and_writes_the_same(message_class: type[Message], version: int) -> None:
    load_schema: Any = load_request_schema if issubclass(message_class, Request) else load_response_schema
    peer_class = load_schema(int(message_class.api), version)
    for message in messages_of(message_class, version):
        encoded = message.encode(version)

        read, size = entity_reader(peer_class)(memoryview(encoded), 0)
        written = io.BytesIO()
        entity_writer(peer_class)(written, read)

        assert size == len(encoded)
        assert plain_kio(read) == plain(message, version)
        assert written.getvalue() == encoded
