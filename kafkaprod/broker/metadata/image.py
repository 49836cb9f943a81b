"""The cluster as a prefix of the metadata log describes it. Controller and brokers build it with the same code.

Pure state: one owner, no lock. Partitions and brokers are values: a change replaces them, so what was read once stays
as it was.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Final

from kafkaprod.broker.metadata.records import (
    LEADER_UNCHANGED,
    LOST,
    MIGRATING,
    UNASSIGNED,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.schema import Struct

PartitionKey = tuple[uuid.UUID, int]
"""A partition: its topic's id and its index."""
AclFields = tuple[int, str, int, str, str, int, int]
"""Resource type, name, pattern type, principal, host, operation, permission of an access control entry."""
QuotaEntity = tuple[tuple[str, str | None], ...]
"""The parts of an entity, ordered by type."""


class RecoveryState(IntEnum):
    """Whether a leader's log may lack records that were acknowledged, after an unclean election."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class BrokerImage:
    """A registered broker. Fenced ones lead nothing and are in no ISR but as a leaderless partition's last member.

    `log_dirs` are the ids of its log directories that can be used; none if it named none.
    """

    broker_id: int
    epoch: int
    incarnation_id: uuid.UUID
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    endpoints: tuple[tuple[str, str, int, int], ...] = ()
    features: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    log_dirs: tuple[uuid.UUID, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether the broker may lead partitions and join an ISR."""
        return not self.is_fenced and not self.in_controlled_shutdown


@dataclass(frozen=True, slots=True)
class PartitionImage:
    """A partition. Both epochs only grow; the leader epoch grows with each election.

    Attributes:
        replicas: All of them, those that a reassignment adds and removes included.
        adding: Those that join in a reassignment.
        removing: Those that leave when it is complete.
        directories: The id of the log directory that each replica is in; none if no broker has named its own.
    """

    topic_id: uuid.UUID
    index: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: RecoveryState = RecoveryState.RECOVERED
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    directories: tuple[uuid.UUID, ...] = ()

    @property
    def key(self) -> PartitionKey:
        """The topic's id and the index."""
        return (self.topic_id, self.index)

    def directory_of(self, broker_id: int) -> uuid.UUID:
        """The id of the log directory that a broker's replica is in; UNASSIGNED if that is not known."""
        if not self.directories or broker_id not in self.replicas:
            return UNASSIGNED
        return self.directories[self.replicas.index(broker_id)]

    def directories_for(self, replicas: Iterable[int]) -> tuple[uuid.UUID, ...]:
        """The log directories of other replicas, as far as this partition knows them; none if it knows none."""
        return tuple(map(self.directory_of, replicas)) if self.directories else ()


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic's name and id."""

    name: str
    topic_id: uuid.UUID


NOTHING: Final = frozenset[PartitionKey]()


class ClusterImage:
    """What the records applied so far add up to.

    Attributes:
        end_offset: One past the last record applied.
        brokers: By id.
        topics: By topic id; `topic_ids` by name.
        partitions: By topic id and index.
        features: Level by name; 0 for those that were removed.
        configs: Options set, by resource type and name; a change replaces those of a resource.
        next_producer_id: The first producer id that no broker has been given.
        acls: Access control entries by id.
        quotas: By entity: quotas by key.
        scram: SCRAM credentials by user and mechanism; None for removed ones.
        tokens: Delegation tokens by id.
        directory_sizes: How many replicas are in each log directory, by its id.
        settings_offset: One past the last record that changed an option, an entry, a quota or a credential.
    """

    def __init__(self) -> None:
        self.end_offset = 0
        self.brokers: dict[int, BrokerImage] = {}
        self.topics: dict[uuid.UUID, TopicImage] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        self.partitions: dict[PartitionKey, PartitionImage] = {}
        self._partitions_by_topic: dict[uuid.UUID, dict[int, PartitionKey]] = {}  # by index
        self.configs: dict[tuple[int, str], Mapping[str, str]] = {}
        self.features: dict[str, int] = {}
        self.next_producer_id = 0
        self.acls: dict[uuid.UUID, AclFields] = {}
        self.quotas: dict[QuotaEntity, dict[str, float]] = {}
        self.scram: dict[tuple[str, int], UserScramCredentialRecord | None] = {}
        self.tokens: dict[str, DelegationTokenRecord] = {}
        self.directory_sizes: Counter[uuid.UUID] = Counter()
        self.settings_offset = 0

    def apply(self, offset: int, record: Struct) -> frozenset[PartitionKey]:
        """Apply one record; return the partitions that it changed.

        Raises:
            CorruptDataError: The record is out of order, or names what does not exist. The image is unchanged.
        """
        if offset != self.end_offset:
            raise CorruptDataError(f"metadata record at offset {offset}, expected {self.end_offset}")
        try:
            changed = _APPLY[type(record)](self, offset, record)
        except KeyError as error:
            raise CorruptDataError(f"metadata record {record!r} names {error}, which does not exist") from error
        self.end_offset = offset + 1
        if type(record) in _SETTINGS:
            self.settings_offset = self.end_offset
        return changed

    def restore(self, record: Struct) -> None:
        """Apply a record of a snapshot, which has no offset of its own.

        Raises:
            CorruptDataError: The record names what does not exist, or is of no kind that a snapshot has.
        """
        offset = record.broker_epoch if isinstance(record, RegisterBrokerRecord) else self.end_offset
        try:
            _APPLY[type(record)](self, offset, record)
        except KeyError as error:
            raise CorruptDataError(f"snapshot record {record!r} names {error}, which does not exist") from error

    def copy(self) -> ClusterImage:
        """Return an image that stays as it is, for another thread: what the parts hold are values, or dicts of them."""
        copied = ClusterImage()
        for name, part in vars(self).items():
            if isinstance(part, dict):
                part = type(part)(
                    {key: value.copy() if isinstance(value, dict) else value for key, value in part.items()}
                )
            setattr(copied, name, part)
        return copied

    def become(self, other: ClusterImage) -> None:
        """Take over what another image says. What others have read from this one stays as it was."""
        self.__dict__.update(other.__dict__)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker is registered and may lead partitions."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def is_online(self, partition: PartitionImage, broker_id: int) -> bool:
        """Whether the log directory of a broker's replica can be used, as far as is known."""
        directory = partition.directory_of(broker_id)
        broker = self.brokers.get(broker_id)
        if broker is None or directory in (MIGRATING, UNASSIGNED):
            return True
        return directory in broker.log_dirs or (not broker.log_dirs and directory != LOST)

    def may_lead(self, partition: PartitionImage, *, unfenced: int | None = None) -> Callable[[int], bool]:
        """Return what says whether a broker may lead a partition: it is active, and its replica can be used.

        Args:
            partition: As it is, or will be.
            unfenced: A broker that will be active, too.
        """
        return lambda broker_id: (
            (broker_id == unfenced or self.is_active(broker_id)) and self.is_online(partition, broker_id)
        )

    def partition(self, topic_id: uuid.UUID | None, index: int) -> PartitionImage | None:
        """The partition that a message names, None if there is none."""
        return None if topic_id is None else self.partitions.get((topic_id, index))

    def partitions_of(self, broker_id: int) -> Iterator[PartitionImage]:
        """The partitions of which a broker has a replica, oldest first."""
        return (partition for partition in list(self.partitions.values()) if broker_id in partition.replicas)

    def partitions_of_topic(self, topic_id: uuid.UUID) -> list[PartitionImage]:
        """A topic's partitions by index."""
        return [self.partitions[key] for _, key in sorted(self._partitions_by_topic.get(topic_id, {}).items())]

    # -- one function a record -----------------------------------------------------------------------------------------

    def _feature_level(self, _: int, record: FeatureLevelRecord) -> frozenset[PartitionKey]:
        self.features[record.name] = record.feature_level
        return NOTHING

    def _register_broker(self, offset: int, record: RegisterBrokerRecord) -> frozenset[PartitionKey]:
        if record.incarnation_id is None:
            raise CorruptDataError(f"broker {record.broker_id} registers without an incarnation id")
        endpoints = tuple((point.name, point.host, point.port, point.security_protocol) for point in record.end_points)
        self.brokers[record.broker_id] = BrokerImage(
            record.broker_id,
            offset,
            record.incarnation_id,
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            endpoints,
            {each.name: (each.min_supported_version, each.max_supported_version) for each in record.features},
            tuple(record.log_dirs),
        )
        return NOTHING

    def _unregister_broker(self, _: int, record: UnregisterBrokerRecord) -> frozenset[PartitionKey]:
        del self.brokers[record.broker_id]
        return NOTHING

    def _change_registration(self, _: int, record: BrokerRegistrationChangeRecord) -> frozenset[PartitionKey]:
        broker = self.brokers[record.broker_id]
        if record.fenced:
            broker = replace(broker, is_fenced=record.fenced > 0)
        if record.in_controlled_shutdown:
            broker = replace(broker, in_controlled_shutdown=True)
        if record.log_dirs:
            broker = replace(broker, log_dirs=tuple(record.log_dirs))
        self.brokers[record.broker_id] = broker
        return NOTHING

    def _topic(self, _: int, record: TopicRecord) -> frozenset[PartitionKey]:
        if record.topic_id is None:
            raise CorruptDataError(f"topic {record.name!r} has no id")
        self.topics[record.topic_id] = TopicImage(record.name, record.topic_id)
        self.topic_ids[record.name] = record.topic_id
        return NOTHING

    def _remove_topic(self, _: int, record: RemoveTopicRecord) -> frozenset[PartitionKey]:
        topic = self.topics.pop(_known(record.topic_id))
        if self.topic_ids.get(topic.name) == topic.topic_id:
            del self.topic_ids[topic.name]
        removed = frozenset(self._partitions_by_topic.pop(topic.topic_id, {}).values())
        for key in removed:
            self.directory_sizes.subtract(self.partitions.pop(key).directories)
        return removed

    def _partition(self, _: int, record: PartitionRecord) -> frozenset[PartitionKey]:
        partition = PartitionImage(
            self.topics[_known(record.topic_id)].topic_id,
            record.partition_id,
            tuple(record.replicas),
            tuple(record.isr),
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            RecoveryState(record.leader_recovery_state),
            tuple(record.adding_replicas),
            tuple(record.removing_replicas),
            _directories(record.directories),
        )
        self.directory_sizes.update(partition.directories)
        self.partitions[partition.key] = partition
        self._partitions_by_topic.setdefault(partition.topic_id, {})[partition.index] = partition.key
        return frozenset((partition.key,))

    def _change_partition(self, _: int, record: PartitionChangeRecord) -> frozenset[PartitionKey]:
        before = self.partitions[(_known(record.topic_id), record.partition_id)]
        has_leader = record.leader != LEADER_UNCHANGED
        recovery = record.leader_recovery_state
        replicas = before.replicas if record.replicas is None else tuple(record.replicas)
        directories = before.directories if record.replicas is None else before.directories_for(replicas)
        if record.directories is not None:
            directories = _directories(record.directories)
        if directories is not before.directories:
            self.directory_sizes.subtract(before.directories)
            self.directory_sizes.update(directories)
        self.partitions[before.key] = replace(
            before,
            replicas=replicas,
            isr=before.isr if record.isr is None else tuple(record.isr),
            leader=record.leader if has_leader else before.leader,
            leader_epoch=before.leader_epoch + has_leader,
            partition_epoch=before.partition_epoch + 1,
            recovery_state=before.recovery_state if recovery < 0 else RecoveryState(recovery),
            adding=before.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            removing=before.removing if record.removing_replicas is None else tuple(record.removing_replicas),
            directories=directories,
        )
        return frozenset((before.key,))

    def _config(self, _: int, record: ConfigRecord) -> frozenset[PartitionKey]:
        resource = (record.resource_type, record.resource_name)
        options = {name: value for name, value in self.configs.get(resource, {}).items() if name != record.name}
        if record.value is not None:
            options[record.name] = record.value
        if options:
            self.configs[resource] = options
        else:
            self.configs.pop(resource, None)
        return NOTHING

    def _access_control_entry(self, _: int, record: AccessControlEntryRecord) -> frozenset[PartitionKey]:
        if record.id is None:
            raise CorruptDataError("an access control entry has no id")
        self.acls[record.id] = (
            record.resource_type,
            record.resource_name,
            record.pattern_type,
            record.principal,
            record.host,
            record.operation,
            record.permission_type,
        )
        return NOTHING

    def _remove_access_control_entry(self, _: int, record: RemoveAccessControlEntryRecord) -> frozenset[PartitionKey]:
        if record.id is None:
            raise CorruptDataError("an access control entry without an id is removed")
        del self.acls[record.id]
        return NOTHING

    def _client_quota(self, _: int, record: ClientQuotaRecord) -> frozenset[PartitionKey]:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self.quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.quotas[entity]
        return NOTHING

    def _user_scram_credential(self, _: int, record: UserScramCredentialRecord) -> frozenset[PartitionKey]:
        self.scram[(record.name, record.mechanism)] = record
        return NOTHING

    def _remove_user_scram_credential(self, _: int, record: RemoveUserScramCredentialRecord) -> frozenset[PartitionKey]:
        self.scram[(record.name, record.mechanism)] = None
        return NOTHING

    def _delegation_token(self, _: int, record: DelegationTokenRecord) -> frozenset[PartitionKey]:
        self.tokens[record.token_id] = record
        return NOTHING

    def _remove_delegation_token(self, _: int, record: RemoveDelegationTokenRecord) -> frozenset[PartitionKey]:
        del self.tokens[record.token_id]
        return NOTHING

    def _producer_ids(self, _: int, record: ProducerIdsRecord) -> frozenset[PartitionKey]:
        self.next_producer_id = record.next_producer_id
        return NOTHING

    def _no_op(self, _: int, record: NoOpRecord) -> frozenset[PartitionKey]:
        return NOTHING


def _directories(ids: Iterable[uuid.UUID | None]) -> tuple[uuid.UUID, ...]:
    return tuple(directory or MIGRATING for directory in ids)


def _known(topic_id: uuid.UUID | None) -> uuid.UUID:
    if topic_id is None:
        raise CorruptDataError("metadata record without a topic id")
    return topic_id


_APPLY: Final[dict[type[Struct], Callable[[ClusterImage, int, Any], frozenset[PartitionKey]]]] = {
    FeatureLevelRecord: ClusterImage._feature_level,
    RegisterBrokerRecord: ClusterImage._register_broker,
    UnregisterBrokerRecord: ClusterImage._unregister_broker,
    BrokerRegistrationChangeRecord: ClusterImage._change_registration,
    TopicRecord: ClusterImage._topic,
    RemoveTopicRecord: ClusterImage._remove_topic,
    PartitionRecord: ClusterImage._partition,
    PartitionChangeRecord: ClusterImage._change_partition,
    ConfigRecord: ClusterImage._config,
    ProducerIdsRecord: ClusterImage._producer_ids,
    NoOpRecord: ClusterImage._no_op,
    AccessControlEntryRecord: ClusterImage._access_control_entry,
    RemoveAccessControlEntryRecord: ClusterImage._remove_access_control_entry,
    ClientQuotaRecord: ClusterImage._client_quota,
    UserScramCredentialRecord: ClusterImage._user_scram_credential,
    RemoveUserScramCredentialRecord: ClusterImage._remove_user_scram_credential,
    DelegationTokenRecord: ClusterImage._delegation_token,
    RemoveDelegationTokenRecord: ClusterImage._remove_delegation_token,
}
_SETTINGS: Final[frozenset[type[Struct]]] = frozenset(
    (
        ConfigRecord,
        AccessControlEntryRecord,
        RemoveAccessControlEntryRecord,
        ClientQuotaRecord,
        UserScramCredentialRecord,
        RemoveUserScramCredentialRecord,
    )
)
