"""A cluster's history in words."""

from __future__ import annotations

import uuid

from kafkaprod.broker.controller.history import sentences
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.log import MetadataBatch
from kafkaprod.broker.metadata.records import (
    RECORD_TYPES,
    AccessControlEntryRecord,
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
)
from kafkaprod.protocol.schema import Struct

TOPIC = uuid.UUID(int=7)
STORY: list[tuple[Struct, str]] = [
    (FeatureLevelRecord(name="metadata.version", feature_level=25), "metadata.version = 25"),
    (RegisterBrokerRecord(broker_id=1, incarnation_id=uuid.UUID(int=1)), "broker 1 registers"),
    (RegisterBrokerRecord(broker_id=2, incarnation_id=uuid.UUID(int=2)), "broker 2 registers"),
    (BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=-1), "broker 1 is unfenced"),
    (TopicRecord(name="orders", topic_id=TOPIC), f"topic orders is created, id {TOPIC}"),
    (
        PartitionRecord(topic_id=TOPIC, replicas=[1, 2], isr=[1, 2], leader=1, leader_epoch=0, partition_epoch=0),
        "orders-0 is created: leader 1, ISR 1,2, replicas 1,2",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms", value="5"),
        "topic orders: retention.ms = 5",
    ),
    (
        ConfigRecord(resource_type=2, resource_name="orders", name="retention.ms"),
        "topic orders: retention.ms is deleted",
    ),
    (PartitionChangeRecord(topic_id=TOPIC, leader=2, isr=[2]), "orders-0: leader 1 -> 2, ISR 2"),
    (PartitionChangeRecord(topic_id=TOPIC, leader=2), "orders-0: leader 2 again"),
    (PartitionChangeRecord(topic_id=TOPIC, leader=-1), "orders-0: leader 2 -> none"),
    (ProducerIdsRecord(broker_id=1, broker_epoch=1, next_producer_id=1000), "broker 1 gets producer ids below 1000"),
    (
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=1, fenced=1, in_controlled_shutdown=1),
        "broker 1 is fenced and shuts down in order",
    ),
    (RemoveTopicRecord(topic_id=TOPIC), "topic orders is deleted"),
    (UnregisterBrokerRecord(broker_id=2, broker_epoch=2), "broker 2 is removed"),
    (NoOpRecord(), "NoOp"),
    (
        AccessControlEntryRecord(id=TOPIC, resource_name="orders", principal="User:ann"),
        "access control entry for User:ann on orders is added",
    ),
    (RemoveAccessControlEntryRecord(id=TOPIC), "access control entry for User:ann on orders is removed"),
    (
        ClientQuotaRecord(entity=[EntityData(entity_type="user")], key="producer_byte_rate", value=10.5),
        "quota of user (default): producer_byte_rate = 10.5",
    ),
    (
        ClientQuotaRecord(entity=[EntityData(entity_type="ip", entity_name="::1")], key="x", remove=True),
        "quota of ip ::1: x is removed",
    ),
    (UserScramCredentialRecord(name="ann", mechanism=1, salt=b"secret"), "SCRAM credential of ann is set"),
    (RemoveUserScramCredentialRecord(name="ann", mechanism=1), "SCRAM credential of ann is removed"),
    (DelegationTokenRecord(owner="User:ann", token_id="t1"), "delegation token t1 of User:ann is made"),
    (DelegationTokenRecord(owner="User:ann", token_id="t1"), "delegation token t1 of User:ann has another end"),
    (RemoveDelegationTokenRecord(token_id="t1"), "delegation token t1 is removed"),
]


def test_each_record_has_a_sentence_with_what_was_before() -> None:
    image = ClusterImage()
    for offset, (record, expected) in enumerate(STORY):
        assert list(sentences(MetadataBatch(offset, 1, (record,)), image)) == [expected]
        image.apply(offset, record)
    assert {type(record) for record, _ in STORY} == set(RECORD_TYPES)


def test_partitions_have_the_name_of_a_topic_of_their_own_batch() -> None:
    batch = MetadataBatch(0, 1, (TopicRecord(name="new", topic_id=TOPIC), PartitionRecord(topic_id=TOPIC, leader=1)))
    assert list(sentences(batch, ClusterImage()))[1].startswith("new-0 is created")
