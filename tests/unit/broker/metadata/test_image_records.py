"""An image and its records are the same: what a snapshot holds is all that there is."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.image_records import image_of, records_of
from kafkaprod.broker.metadata.records import (
    RECORD_TYPES,
    UNASSIGNED,
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    EntityData,
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
    decode,
    encode,
)
from kafkaprod.errors import CorruptDataError
from kafkaprod.protocol.schema import Struct

ONE, TWO, THREE = (uuid.UUID(int=number) for number in (1, 2, 3))


def changes() -> list[Struct]:
    """Every kind of record, some undone by later ones."""
    points = [BrokerEndpoint(name="PLAINTEXT", host="h", port=9092, security_protocol=0)]
    levels = [BrokerFeature(name="group.version", min_supported_version=0, max_supported_version=1)]
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="c")]
    return [
        FeatureLevelRecord(name="transaction.version", feature_level=2),
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=0),
        RegisterBrokerRecord(broker_id=1, broker_epoch=3, incarnation_id=ONE, end_points=points, features=levels),
        RegisterBrokerRecord(broker_id=2, broker_epoch=4, incarnation_id=TWO, rack="r", log_dirs=[ONE, TWO]),
        RegisterBrokerRecord(broker_id=3, broker_epoch=5, incarnation_id=THREE),
        UnregisterBrokerRecord(broker_id=3, broker_epoch=5),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=3, fenced=-1),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=4, in_controlled_shutdown=1),
        TopicRecord(name="gone", topic_id=ONE),
        PartitionRecord(partition_id=0, topic_id=ONE, replicas=[1], isr=[1], leader=1),
        RemoveTopicRecord(topic_id=ONE),
        TopicRecord(name="gone", topic_id=TWO),
        TopicRecord(name="kept", topic_id=THREE),
        PartitionRecord(partition_id=1, topic_id=THREE, replicas=[2], isr=[2], leader=2, leader_epoch=4),
        PartitionRecord(
            partition_id=0,
            topic_id=TWO,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=5,
            leader_recovery_state=1,
            adding_replicas=[2],
            removing_replicas=[1],
            directories=[UNASSIGNED, TWO],
        ),
        PartitionRecord(partition_id=0, topic_id=THREE, replicas=[1, 2], isr=[1, 2], leader=1),
        PartitionChangeRecord(partition_id=0, topic_id=THREE, isr=[2], leader=2),
        ConfigRecord(resource_type=2, resource_name="kept", name="retention.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="kept", name="flush.ms", value="5"),
        ConfigRecord(resource_type=2, resource_name="kept", name="flush.ms", value=None),
        ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
        ProducerIdsRecord(broker_id=1, broker_epoch=3, next_producer_id=2_000),
        AccessControlEntryRecord(id=ONE, resource_type=2, resource_name="kept", principal="User:ann", host="*"),
        AccessControlEntryRecord(id=TWO, resource_type=2, resource_name="kept", principal="User:bob", host="*"),
        RemoveAccessControlEntryRecord(id=ONE),
        ClientQuotaRecord(entity=entity, key="producer_byte_rate", value=1.5),
        ClientQuotaRecord(entity=entity, key="consumer_byte_rate", value=2.5),
        ClientQuotaRecord(entity=entity, key="consumer_byte_rate", remove=True),
        UserScramCredentialRecord(
            name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        UserScramCredentialRecord(
            name="bob", mechanism=2, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        RemoveUserScramCredentialRecord(name="bob", mechanism=2),
        DelegationTokenRecord(owner="User:ann", requester="User:ann", renewers=["User:bob"], token_id="a"),
        DelegationTokenRecord(owner="User:ann", requester="User:ann", renewers=[], token_id="b"),
        RemoveDelegationTokenRecord(token_id="b"),
        NoOpRecord(),
    ]


def applied() -> ClusterImage:
    image = ClusterImage()
    for offset, record in enumerate(changes()):
        image.apply(offset, record)
    return image


def content(image: ClusterImage) -> dict[str, Any]:
    return {name: value for name, value in vars(image).items() if name != "settings_offset"}


def test_image_is_made_again_of_its_records() -> None:
    image = applied()
    assert {type(record) for record in changes()} == set(RECORD_TYPES)
    records = [decode(encode(record)) for record in records_of(image)]
    again = image_of(records, image.end_offset)
    assert content(again) == content(image)
    assert again.settings_offset == again.end_offset
    assert all(vars(image).values()), "each part of the image has something in it"
    assert list(again.brokers) == [1, 2]
    assert [again.brokers[number].epoch for number in (1, 2)] == [3, 4]
    assert again.scram["bob", 2] is None


def test_records_come_in_kafkas_order() -> None:
    kinds: list[str] = []
    for record in records_of(applied()):
        if type(record).__name__ not in kinds:
            kinds.append(type(record).__name__)
    assert kinds == [
        "FeatureLevelRecord",
        "RegisterBrokerRecord",
        "TopicRecord",
        "PartitionRecord",
        "ConfigRecord",
        "ClientQuotaRecord",
        "ProducerIdsRecord",
        "AccessControlEntryRecord",
        "UserScramCredentialRecord",
        "RemoveUserScramCredentialRecord",
        "DelegationTokenRecord",
    ]
    first, *_ = records_of(applied())
    assert first == FeatureLevelRecord(name="metadata.version", feature_level=25)


def test_empty_image_has_no_records() -> None:
    assert records_of(ClusterImage()) == []


@pytest.mark.parametrize(
    "record", [PartitionRecord(partition_id=0, topic_id=ONE), TopicRecord(name="t", topic_id=None)]
)
def test_records_of_what_does_not_exist_are_refused(record: Struct) -> None:
    with pytest.raises(CorruptDataError):
        image_of([record], 7)


def test_copy_of_an_image_stays_as_it_is() -> None:
    image = applied()
    copied = image.copy()
    entity = [EntityData(entity_type="user", entity_name=None), EntityData(entity_type="client-id", entity_name="c")]
    for record in (
        ClientQuotaRecord(entity=entity, key="request_percentage", value=3.5),
        ConfigRecord(resource_type=2, resource_name="kept", name="flush.ms", value="9"),
        PartitionChangeRecord(partition_id=0, topic_id=THREE, isr=[1, 2]),
        RemoveTopicRecord(topic_id=TWO),
        UnregisterBrokerRecord(broker_id=2, broker_epoch=4),
        RemoveDelegationTokenRecord(token_id="a"),
    ):
        image.apply(image.end_offset, record)
    assert vars(copied) == vars(applied())


def test_image_takes_over_another_and_leaves_what_was_read_as_it_was() -> None:
    image, other = ClusterImage(), applied()
    before = image.partitions
    image.become(other)
    assert vars(image) == vars(other)
    assert before == {}
