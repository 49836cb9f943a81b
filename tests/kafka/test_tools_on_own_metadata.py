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
from tests.kafka.runtime import read_metadata, run_java

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
    assert "isvalid: false" not in dumped
