"""Apache Kafka's command line tools on the metadata log of an embedded broker, which is a cluster of one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafkaprod.broker import EmbeddedBroker
from kafkaprod.broker.controller.disk_log import DiskMetadataLog
from kafkaprod.broker.controller.snapshot_file import write_snapshot
from kafkaprod.broker.metadata.log import MetadataBatch, MetadataSnapshot
from kafkaprod.broker.metadata.records import RECORD_TYPES
from kafkaprod.broker.storage.log.group_commit import never
from kafkaprod.clock import SystemClock
from kafkaprod.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from kafkaprod.storage.disk import Disk
from tests.kafka.runtime import read_metadata, run_java
from tests.support.net.protocol_samples import build, distinct_values
from tests.support.net.raw_client import RawClient

DUMP_LOG = "org.apache.kafka.tools.DumpLogSegments"
SEGMENT = Path("__cluster_metadata-0") / "00000000000000000000.log"
TIMEOUT_S = 120.0


def change_everything(bootstrap: str) -> None:
    """Make, widen and delete topics, and set what can be set."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic("orders", 2, 1, config={"retention.ms": "5000"}), NewTopic("gone", 1, 1)]
    for made in admin.create_topics(wanted).values():
        made.result(TIMEOUT_S)
    admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(TIMEOUT_S)
    admin.delete_topics(["gone"])["gone"].result(TIMEOUT_S)
    topic, literal = ResourceType.TOPIC, ResourcePatternType.LITERAL
    entry = AclBinding(topic, "secret", literal, "User:ann", "*", AclOperation.READ, AclPermissionType.DENY)
    admin.create_acls([entry])[entry].result(TIMEOUT_S)
    keys = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    upsertion = UserScramCredentialUpsertion("bob", keys, b"secret", b"salt")
    admin.alter_user_scram_credentials([upsertion])["bob"].result(TIMEOUT_S)
    change_quotas(bootstrap)


def change_quotas(bootstrap: str) -> None:
    """Set quotas of a user with a client id, of a default and of an address, and remove one."""
    client = RawClient(bootstrap)
    for parts, key, value, remove in (
        ((("user", "ann"), ("client-id", "c1")), "producer_byte_rate", 1000.0, False),
        ((("user", None),), "consumer_byte_rate", 2000.0, False),
        ((("ip", "10.0.0.1"),), "connection_creation_rate", 7.0, False),
        ((("user", None),), "consumer_byte_rate", 0.0, True),
    ):
        entity = [EntityData(entity_type=kind, entity_name=name) for kind, name in parts]
        entry = EntryData(entity=entity, ops=[OpData(key=key, value=value, remove=remove)])
        answer = client.call(AlterClientQuotasRequest(entries=[entry]), AlterClientQuotasResponse, 1)
        assert [result.error_code for result in answer.entries] == [0]
    client.close()


def test_tools_read_the_metadata_of_a_broker_alone(kafka_tools: str, tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for _ in range(2):  # the second start changes nothing but the registration
        with EmbeddedBroker(data_dir=data_dir) as broker:
            if not (tmp_path / "done").exists():
                change_everything(broker.bootstrap_servers)
                (tmp_path / "done").touch()
            # The broker holds the lock of its directory: the shell reads a copy.
            copy = tmp_path / SEGMENT
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(data_dir / SEGMENT, copy)
        changed = r"(?s)(?=.*fenced=false)(?=.*bob:\s+ScramCredentialData\(salt=73616c74, [^\n]*iterations=4096\))"
        image = read_metadata(kafka_tools, copy, ["tree", "image"], changed)
        registrations = re.findall(r"BrokerRegistration\(id=(\d), .*fenced=(\w+)", image)
        assert registrations == [("0", "false")]
        assert re.search(r"StandardAcl\[resourceType=TOPIC, resourceName=secret, .*principal=User:ann, .*DENY\]", image)
        assert re.search(r"orders:", image)
        assert "gone" not in image
    arguments = ["--cluster-metadata-decoder", "--files", str(copy)]
    dumped = run_java(kafka_tools, DUMP_LOG, arguments, timeout_s=TIMEOUT_S)
    assert dumped.count('"type":"PARTITION_RECORD"') == 4
    assert dumped.count('"type":"REGISTER_BROKER_RECORD"') == 2
    assert dumped.count('"type":"CLIENT_QUOTA_RECORD"') == 4
    assert re.search(r'"key":"producer_byte_rate","value":1000.0', dumped)
    assert_all_is_read(dumped)


def assert_all_is_read(dumped: str) -> None:
    """The decoder skips what it cannot read, and says so."""
    assert "isvalid: false" not in dumped
    assert re.findall(r"(?m)^.*(?:Error at|skipping|Failed to deserialize).*$", dumped) == []


def test_every_type_of_record_is_read_with_every_field(kafka_tools: str, tmp_path: Path) -> None:
    """All that any request can write, and more: each field set, arrays of two, and whatever may be null."""
    records = [
        build(record, version, distinct_values(), element_count, nulls=nulls)
        for record, (_, version) in RECORD_TYPES.items()
        for element_count, nulls in ((2, False), (0, False), (1, True))
    ]
    log = DiskMetadataLog(str(tmp_path / "data"), "c" * 22, never(), Disk(), SystemClock())
    log.append(MetadataBatch(0, 1, tuple(records)))
    log.close()
    snapshot = write_snapshot(Disk(), str(tmp_path), MetadataSnapshot(42, 7, tuple(records)), 0)
    files = f"{tmp_path / 'data' / SEGMENT},{snapshot.path}"
    dumped = run_java(kafka_tools, DUMP_LOG, ["--cluster-metadata-decoder", "--files", files], timeout_s=TIMEOUT_S)
    assert_all_is_read(dumped)
    assert len(re.findall(r"payload: \{", dumped)) == 2 * len(records)
    assert "Snapshot end offset: 42, epoch: 7" in dumped
    assert re.search(r"SnapshotHeader.*(?s:.)*SnapshotFooter", dumped)
