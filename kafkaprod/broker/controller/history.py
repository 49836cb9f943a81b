"""The history of a cluster for people: a line for each record of the metadata log, with names and what was before."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
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
from kafkaprod.protocol.schema import Struct

_RESOURCES = {2: "topic", 4: "broker", 16: "client metrics", 32: "group"}


def sentences(batch: MetadataBatch, image: ClusterImage) -> Iterator[str]:
    """Describe each record of a batch that is about to be applied to `image`."""
    new = {record.topic_id: record.name for record in batch.records if isinstance(record, TopicRecord)}

    def name_of(topic_id: uuid.UUID | None) -> str:
        known = None if topic_id is None else image.topics.get(topic_id)
        return known.name if known is not None else new.get(topic_id, str(topic_id))

    for record in batch.records:
        yield _sentence(record, image, name_of)


def _sentence(record: Struct, image: ClusterImage, name_of: Callable[[uuid.UUID | None], str]) -> str:
    match record:
        case RegisterBrokerRecord():
            return f"broker {record.broker_id} registers" + ("" if record.fenced else ", unfenced")
        case UnregisterBrokerRecord():
            return f"broker {record.broker_id} is removed"
        case BrokerRegistrationChangeRecord():
            return f"broker {record.broker_id} {_registration(record)}"
        case TopicRecord():
            return f"topic {record.name} is created, id {record.topic_id}"
        case RemoveTopicRecord():
            return f"topic {name_of(record.topic_id)} is deleted"
        case PartitionRecord():
            place = f"{name_of(record.topic_id)}-{record.partition_id}"
            return f"{place} is created: leader {_broker(record.leader)}, ISR {_list(record.isr)}, replicas " + _list(
                record.replicas
            )
        case PartitionChangeRecord():
            return f"{name_of(record.topic_id)}-{record.partition_id}: {_change(record, image)}"
        case ConfigRecord():
            kind = _RESOURCES.get(record.resource_type, f"resource {record.resource_type}")
            change = "is deleted" if record.value is None else f"= {record.value}"
            return f"{kind} {record.resource_name}: {record.name} {change}"
        case ProducerIdsRecord():
            return f"broker {record.broker_id} gets producer ids below {record.next_producer_id}"
        case FeatureLevelRecord():
            return f"{record.name} = {record.feature_level}"
    return _setting(record, image)


def _setting(record: Struct, image: ClusterImage) -> str:
    match record:
        case AccessControlEntryRecord():
            return f"access control entry for {record.principal} on {record.resource_name} is added"
        case RemoveAccessControlEntryRecord() if record.id is not None and record.id in image.acls:
            _, name, _, principal, *_ = image.acls[record.id]
            return f"access control entry for {principal} on {name} is removed"
        case ClientQuotaRecord():
            entity = ", ".join(f"{part.entity_type} {part.entity_name or '(default)'}" for part in record.entity)
            return f"quota of {entity}: {record.key} " + ("is removed" if record.remove else f"= {record.value:g}")
        case UserScramCredentialRecord():
            return f"SCRAM credential of {record.name} is set"
        case RemoveUserScramCredentialRecord():
            return f"SCRAM credential of {record.name} is removed"
        case DelegationTokenRecord():
            change = "has another end" if record.token_id in image.tokens else "is made"
            return f"delegation token {record.token_id} of {record.owner} {change}"
        case RemoveDelegationTokenRecord():
            return f"delegation token {record.token_id} is removed"
    return type(record).__name__.removesuffix("Record")


def _registration(record: BrokerRegistrationChangeRecord) -> str:
    changes = {-1: ["is unfenced"], 1: ["is fenced"]}.get(record.fenced, [])
    if record.in_controlled_shutdown:
        changes.append("shuts down in order")
    if record.log_dirs:
        changes.append(f"has only these log directories: {', '.join(map(str, record.log_dirs))}")
    return " and ".join(changes) or "changes"


def _change(record: PartitionChangeRecord, image: ClusterImage) -> str:
    """Describe a partition change, with the old value if it is known."""
    before = None if record.topic_id is None else image.partitions.get((record.topic_id, record.partition_id))
    changes = []
    if record.leader != LEADER_UNCHANGED:
        old = "" if before is None or before.leader == record.leader else f"{_broker(before.leader)} -> "
        again = " again" if before is not None and before.leader == record.leader else ""
        changes.append(f"leader {old}{_broker(record.leader)}{again}")
    for label, new in (
        ("ISR", record.isr),
        ("replicas", record.replicas),
        ("adding", record.adding_replicas),
        ("removing", record.removing_replicas),
    ):
        if new is not None:
            changes.append(f"{label} {_list(new)}")
    if record.directories is not None:
        changes.append(f"log directories {', '.join(map(str, record.directories))}")
    return ", ".join(changes) or "changes"


def _broker(number: int) -> str:
    return "none" if number == NO_LEADER else str(number)


def _list(numbers: list[int]) -> str:
    return ",".join(map(str, numbers)) or "none"
