"""Requests of a hostile client about what the control thread keeps: as many elements as a request may have."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator

from kafkaprod.broker.config import MAX_PARTITIONS_OF_REQUEST, Limits
from kafkaprod.broker.coordinator.offsets import MAX_METADATA_BYTES
from kafkaprod.broker.handlers.config_resources import GROUP
from kafkaprod.broker.settings import acls
from kafkaprod.protocol.frames import encode_request
from kafkaprod.protocol.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from kafkaprod.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from kafkaprod.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafkaprod.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kafkaprod.protocol.messages.fetch import FetchRequest, FetchTopic
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from kafkaprod.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkaprod.protocol.schema import Request

MANY = 24_000
"""Elements of a request, a little below the broker's limit."""


def frame_of(request: Request, version: int) -> bytes:
    """Encode a request as it goes over the wire."""
    return b"".join(map(bytes, encode_request(request, version, 1, "hostile")))


def many_acls(prefix: str) -> bytes:
    """Entries for as many names as a request may change; they are for somebody else."""
    creations = [
        AclCreation(
            resource_type=acls.TOPIC,
            resource_name=f"{prefix}{number}",
            resource_pattern_type=acls.PREFIXED,
            principal="User:nobody",
            host="*",
            operation=acls.READ,
            permission_type=acls.ALLOW,
        )
        for number in range(acls.MAX_CHANGES_OF_REQUEST)
    ]
    return frame_of(CreateAclsRequest(creations=creations), 2)


def deleted_acls() -> Iterator[bytes]:
    """Many entries, then as many filters as a request may have: some find one entry each, the others none."""
    filters = [
        DeleteAclsFilter(
            resource_type_filter=acls.TOPIC,
            resource_name_filter=f"none-{number}",
            pattern_type_filter=acls.PREFIXED,
            operation=acls.ANY,
            permission_type=acls.ANY,
        )
        for number in range(acls.MAX_CHANGES_OF_REQUEST // 2, acls.MAX_CHANGES_OF_REQUEST // 2 + MANY)
    ]
    while True:
        yield many_acls("none-")
        yield frame_of(DeleteAclsRequest(filters=filters), 2)


def looked_up_acls() -> Iterator[bytes]:
    """Many entries, and requests of many names, each of which has to be looked up in them."""
    yield from (many_acls(prefix) for prefix in ("none-", "no-", "n-"))
    names = [MetadataRequestTopic(name=f"other-{number}") for number in range(MANY)]
    wanted = [FetchTopic(topic=f"other-{number}", partitions=[]) for number in range(MANY)]
    while True:
        yield frame_of(MetadataRequest(topics=names, allow_auto_topic_creation=False), 9)
        yield frame_of(FetchRequest(max_wait_ms=0, topics=wanted), 11)


def many_quotas() -> bytes:
    entries = [
        EntryData(
            entity=[EntityData(entity_type="user", entity_name=f"user-{number}")],
            ops=[OpData(key="producer_byte_rate", value=time.monotonic_ns() % 1_000_000 + 1.0)],
        )
        for number in range(MANY // 3)
    ]
    return frame_of(AlterClientQuotasRequest(entries=entries), 1)


def many_credentials() -> bytes:
    upsertions = [
        ScramCredentialUpsertion(
            name=f"user-{number}", mechanism=1, iterations=4096, salt=b"salt", salted_password=os.urandom(32)
        )
        for number in range(MANY)
    ]
    return frame_of(AlterUserScramCredentialsRequest(upsertions=upsertions), 0)


def many_options() -> Iterator[bytes]:
    """Options of as many groups as a request may have: altered, then described."""
    described = [DescribeConfigsResource(resource_type=GROUP, resource_name=f"group-{each}") for each in range(MANY)]
    for timeout_ms in itertools.count(50_000):
        option = AlterableConfig(name="consumer.session.timeout.ms", value=str(timeout_ms))
        altered = [
            AlterConfigsResource(resource_type=GROUP, resource_name=f"group-{number}", configs=[option])
            for number in range(MANY // 2)
        ]
        yield frame_of(DescribeConfigsRequest(resources=described, include_synonyms=True), 4)
        yield frame_of(IncrementalAlterConfigsRequest(resources=altered), 1)


def large_offsets() -> bytes:
    """As many offsets as fit into a request, with as much metadata as one may have."""
    count = Limits().max_other_request_bytes // (MAX_METADATA_BYTES + 100)
    offset = OffsetCommitRequestPartition(partition_index=0, committed_metadata="m" * MAX_METADATA_BYTES)
    topic = OffsetCommitRequestTopic(name="orders", partitions=[offset] * count)
    return frame_of(OffsetCommitRequest(group_id="g", topics=[topic]), 8)


def validated_topics() -> bytes:
    """As many topics as a request may make, to be checked only; the answer shows the options of each."""
    count = MAX_PARTITIONS_OF_REQUEST
    topics = [CreatableTopic(name=f"topic-{each}", num_partitions=1, replication_factor=1) for each in range(count)]
    return frame_of(CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True), 7)
