"""Records of the cluster's metadata log, in the layouts of Apache Kafka's KRaft log.

    value = uvarint frame version 1 | uvarint record type | uvarint version | body, always flexible

`encode` and `decode` are the two directions. A record has no key. Source: Kafka's metadata message definitions, 4.1.
Pure: no I/O.
"""

from __future__ import annotations

import uuid
from typing import Final

from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.field_types import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    NULLABLE_STRING,
    STRING,
    UINT16,
    UUID,
    array,
)
from kafkaprod.protocol.primitives import Reader, Writer
from kafkaprod.protocol.schema import Struct, field

FRAME_VERSION: Final = 1
NO_LEADER: Final = -1
LEADER_UNCHANGED: Final = -2
MIGRATING: Final = uuid.UUID(int=0)
"""The log directory of a replica whose broker named none when the partition was made."""
UNASSIGNED: Final = uuid.UUID(int=1)
"""The log directory of a replica whose broker has not chosen one."""
LOST: Final = uuid.UUID(int=2)
"""The log directory of a replica whose broker cannot say which it was: one that is offline."""
RESERVED_DIRECTORIES: Final = frozenset((MIGRATING, UNASSIGNED, LOST))
"""What is no log directory of any broker."""


class FeatureLevelRecord(Struct):
    """The level of a feature; the first record of a log is that of `metadata.version`."""

    name: str = field(STRING)
    feature_level: int = field(INT16)


class BrokerEndpoint(Struct):
    """Where a broker's listener can be reached."""

    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)
    security_protocol: int = field(INT16)


class BrokerFeature(Struct):
    """Versions of a feature that a broker supports."""

    name: str = field(STRING)
    min_supported_version: int = field(INT16)
    max_supported_version: int = field(INT16)


class RegisterBrokerRecord(Struct):
    """A broker registered. Its epoch is this record's offset."""

    broker_id: int = field(INT32)
    is_migrating_zk_broker: bool = field(BOOL)
    incarnation_id: uuid.UUID | None = field(UUID)
    broker_epoch: int = field(INT64)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint))
    features: list[BrokerFeature] = field(array(BrokerFeature))
    rack: str | None = field(NULLABLE_STRING)
    fenced: bool = field(BOOL, default=True)
    in_controlled_shutdown: bool = field(BOOL)
    log_dirs: list[uuid.UUID] = field(array(UUID), tag=0)


class UnregisterBrokerRecord(Struct):
    """A broker's registration was removed."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)


class BrokerRegistrationChangeRecord(Struct):
    """A registration changed. `fenced`: -1 unfences, 1 fences, 0 leaves as it is."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    fenced: int = field(INT8, tag=0)
    in_controlled_shutdown: int = field(INT8, tag=1)
    log_dirs: list[uuid.UUID] = field(array(UUID), tag=2)


class TopicRecord(Struct):
    """A topic was created."""

    name: str = field(STRING)
    topic_id: uuid.UUID | None = field(UUID)


class RemoveTopicRecord(Struct):
    """A topic was deleted, with its partitions."""

    topic_id: uuid.UUID | None = field(UUID)


class PartitionRecord(Struct):
    """A partition was created."""

    partition_id: int = field(INT32)
    topic_id: uuid.UUID | None = field(UUID)
    replicas: list[int] = field(array(INT32))
    isr: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32))
    leader: int = field(INT32, default=NO_LEADER)
    leader_recovery_state: int = field(INT8, tag=0)
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)
    directories: list[uuid.UUID] = field(array(UUID))
    eligible_leader_replicas: list[int] | None = field(array(INT32).nullable(), tag=1, default=None)
    last_known_elr: list[int] | None = field(array(INT32).nullable(), tag=2, default=None)


class PartitionChangeRecord(Struct):
    """What changed of a partition: null, and a leader of LEADER_UNCHANGED, leave a field as it is.

    No epoch is inside. Replay adds 1 to the partition epoch always, and to the leader epoch if `leader` is given: the
    same leader again raises the epoch without moving it.
    """

    partition_id: int = field(INT32)
    topic_id: uuid.UUID | None = field(UUID)
    isr: list[int] | None = field(array(INT32).nullable(), tag=0, default=None)
    leader: int = field(INT32, tag=1, default=LEADER_UNCHANGED)
    replicas: list[int] | None = field(array(INT32).nullable(), tag=2, default=None)
    removing_replicas: list[int] | None = field(array(INT32).nullable(), tag=3, default=None)
    adding_replicas: list[int] | None = field(array(INT32).nullable(), tag=4, default=None)
    leader_recovery_state: int = field(INT8, tag=5, default=-1)
    eligible_leader_replicas: list[int] | None = field(array(INT32).nullable(), tag=6, default=None)
    last_known_elr: list[int] | None = field(array(INT32).nullable(), tag=7, default=None)
    directories: list[uuid.UUID] | None = field(array(UUID).nullable(), tag=8, default=None)


class ConfigRecord(Struct):
    """An option of a resource was set; a null value deletes it."""

    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    name: str = field(STRING)
    value: str | None = field(NULLABLE_STRING)


class ProducerIdsRecord(Struct):
    """Producer ids below `next_producer_id` have been given to brokers."""

    broker_id: int = field(INT32)
    broker_epoch: int = field(INT64)
    next_producer_id: int = field(INT64)


class AccessControlEntryRecord(Struct):
    """An access control entry was added."""

    id: uuid.UUID | None = field(UUID)
    resource_type: int = field(INT8)
    resource_name: str = field(STRING)
    pattern_type: int = field(INT8)
    principal: str = field(STRING)
    host: str = field(STRING)
    operation: int = field(INT8)
    permission_type: int = field(INT8)


class RemoveAccessControlEntryRecord(Struct):
    """An access control entry was removed."""

    id: uuid.UUID | None = field(UUID)


class EntityData(Struct):
    """A part of the entity that a quota is for; a null name is the default of the type."""

    entity_type: str = field(STRING)
    entity_name: str | None = field(NULLABLE_STRING)


class DelegationTokenRecord(Struct):
    """A delegation token was made or its end moved; its secret is in no record. Principals as "User:ann"."""

    owner: str = field(STRING)
    requester: str = field(STRING)
    renewers: list[str] = field(array(STRING))
    issue_timestamp: int = field(INT64)
    max_timestamp: int = field(INT64)
    expiration_timestamp: int = field(INT64)
    token_id: str = field(STRING)


class RemoveDelegationTokenRecord(Struct):
    """A delegation token was removed."""

    token_id: str = field(STRING)


class ClientQuotaRecord(Struct):
    """A quota of an entity was set or removed."""

    entity: list[EntityData] = field(array(EntityData))
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOL)


class UserScramCredentialRecord(Struct):
    """A SCRAM credential was set."""

    name: str = field(STRING)
    mechanism: int = field(INT8)
    salt: bytes = field(BYTES)
    stored_key: bytes = field(BYTES)
    server_key: bytes = field(BYTES)
    iterations: int = field(INT32)


class RemoveUserScramCredentialRecord(Struct):
    """A SCRAM credential was removed."""

    name: str = field(STRING)
    mechanism: int = field(INT8)


class NoOpRecord(Struct):
    """Changes nothing; a new controller's first record."""


RECORD_TYPES: Final[dict[type[Struct], tuple[int, int]]] = {
    RegisterBrokerRecord: (0, 3),
    UnregisterBrokerRecord: (1, 0),
    TopicRecord: (2, 0),
    PartitionRecord: (3, 2),
    ConfigRecord: (4, 0),
    PartitionChangeRecord: (5, 2),
    RemoveTopicRecord: (9, 0),
    DelegationTokenRecord: (10, 0),
    UserScramCredentialRecord: (11, 0),
    FeatureLevelRecord: (12, 0),
    ClientQuotaRecord: (14, 0),
    ProducerIdsRecord: (15, 0),
    BrokerRegistrationChangeRecord: (17, 2),
    AccessControlEntryRecord: (18, 0),
    RemoveAccessControlEntryRecord: (19, 0),
    NoOpRecord: (20, 0),
    RemoveUserScramCredentialRecord: (22, 0),
    RemoveDelegationTokenRecord: (26, 0),
}
_FORMER_TYPES: Final[dict[tuple[int, int], type[Struct]]] = {(14, 1): ClientQuotaRecord}
"""Logs that kafkaprod 0.2 wrote have it, Kafka does not. The bytes are those of version 0."""
_CLASSES: Final = _FORMER_TYPES | {(key, version): record for record, (key, version) in RECORD_TYPES.items()}


def encode(record: Struct) -> bytes:
    """Return the value of a record of the metadata log."""
    key, version = RECORD_TYPES[type(record)]
    writer = Writer()
    for number in (FRAME_VERSION, key, version):
        writer.write_uvarint(number)
    type(record).codec(version, True).write(writer, record)
    return writer.getvalue()


def decode(value: bytes) -> Struct:
    """Return the record that a value holds.

    Raises:
        CorruptDataError: The frame, the type or the body is not one of those above, or bytes are left over.
    """
    reader = Reader(value)
    frame, key, version = (reader.read_uvarint() for _ in range(3))
    record_class = _CLASSES.get((key, version))
    if frame != FRAME_VERSION or record_class is None:
        raise CorruptDataError(f"metadata record with frame {frame}, type {key}, version {version} is not known")
    record: Struct = record_class.codec(version, True).read(reader)
    reader.expect_end()
    return record
