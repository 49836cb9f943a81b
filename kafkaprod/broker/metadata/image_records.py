"""The image of a cluster as the records that make it again: what a snapshot holds, in the order of Kafka's images.

    features, brokers, topics each with its partitions, options, quotas, producer ids, ACLs, credentials, tokens

Pure: no I/O. Source: Kafka's MetadataImage.write.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain

from kafkaprod.broker.metadata.features import METADATA_VERSION
from kafkaprod.broker.metadata.image import BrokerImage, ClusterImage, PartitionImage
from kafkaprod.broker.metadata.records import (
    AccessControlEntryRecord,
    BrokerEndpoint,
    BrokerFeature,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
)
from kafkaprod.protocol.schema import Struct

_NO_BROKER = -1


def records_of(image: ClusterImage) -> list[Struct]:
    """Return the records of an image; `image_of` is the way back."""
    return list(
        chain(
            _features(image),
            map(_broker, image.brokers.values()),
            _topics(image),
            _options(image),
            _quotas(image),
            _producer_ids(image),
            _acls(image),
            _credentials(image),
            image.tokens.values(),
        )
    )


def image_of(records: Iterable[Struct], end_offset: int) -> ClusterImage:
    """Return the image that records of a snapshot add up to.

    Args:
        records: What `records_of` has returned.
        end_offset: One past the last record of the log that the snapshot holds.

    Raises:
        CorruptDataError: A record names what does not exist.
    """
    image = ClusterImage()
    for record in records:
        image.restore(record)
    image.end_offset = image.settings_offset = end_offset
    return image


def _features(image: ClusterImage) -> Iterator[Struct]:
    for name in sorted(image.features, key=lambda each: (each != METADATA_VERSION, each)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])


def _broker(broker: BrokerImage) -> Struct:
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[
            BrokerEndpoint(name=name, host=host, port=port, security_protocol=protocol)
            for name, host, port, protocol in broker.endpoints
        ],
        features=[
            BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in broker.features.items()
        ],
        rack=broker.rack,
        fenced=broker.is_fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.log_dirs),
    )


def _topics(image: ClusterImage) -> Iterator[Struct]:
    partitions: dict[object, list[PartitionImage]] = {}
    for partition in image.partitions.values():
        partitions.setdefault(partition.topic_id, []).append(partition)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        yield from map(_partition, partitions.get(topic.topic_id, ()))


def _partition(partition: PartitionImage) -> Struct:
    return PartitionRecord(
        partition_id=partition.index,
        topic_id=partition.topic_id,
        replicas=list(partition.replicas),
        isr=list(partition.isr),
        removing_replicas=list(partition.removing),
        adding_replicas=list(partition.adding),
        leader=partition.leader,
        leader_recovery_state=partition.recovery_state,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=list(partition.directories),
    )


def _options(image: ClusterImage) -> Iterator[Struct]:
    for (kind, name), options in image.configs.items():
        for option, value in options.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=option, value=value)


def _quotas(image: ClusterImage) -> Iterator[Struct]:
    for entity, quotas in image.quotas.items():
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, value in quotas.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=value)


def _producer_ids(image: ClusterImage) -> Iterator[Struct]:
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=_NO_BROKER, broker_epoch=_NO_BROKER, next_producer_id=image.next_producer_id)


def _acls(image: ClusterImage) -> Iterator[Struct]:
    for entry_id, (kind, name, pattern, principal, host, operation, permission) in image.acls.items():
        yield AccessControlEntryRecord(
            id=entry_id,
            resource_type=kind,
            resource_name=name,
            pattern_type=pattern,
            principal=principal,
            host=host,
            operation=operation,
            permission_type=permission,
        )


def _credentials(image: ClusterImage) -> Iterator[Struct]:
    """Those that were removed, too: they hide what the configuration of a broker gives the user."""
    for (name, mechanism), record in image.scram.items():
        yield RemoveUserScramCredentialRecord(name=name, mechanism=mechanism) if record is None else record
