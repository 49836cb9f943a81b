"""Takes the place of aiokafka's own tests/conftest.py, which starts Docker: our broker instead of theirs."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ResourcePattern,
    ResourceType,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafkaprod.broker.embedding.embedded import EmbeddedBroker

KAFKA_VERSION = "4.0.0"
USERS = {name: name for name in ("test", "admin")}  # theirs, besides those that they add


def _certificates() -> Any:
    """Load our tests' certificates by path: their tests are the package `tests` here."""
    path = Path(os.environ["KAFKAPROD_ROOT"]) / "tests" / "support" / "net" / "certificates.py"
    spec = importlib.util.spec_from_file_location("certificates_of_kafkaprod", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class AclManager:
    """What their class of this name does with kafka-acls.sh in the container."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin
        self._entries: list[ACL] = []

    def list_acl(self, principal: str | None = None) -> None:
        """Do nothing: they throw the answer away."""

    def add_acl(
        self,
        *,
        operation: str,
        cluster: bool = False,
        topic: str | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        allow_principal: str | None = None,
        deny_principal: str | None = None,
    ) -> None:
        """Add an entry."""
        if cluster:
            pattern = ResourcePattern(ResourceType.CLUSTER, "kafka-cluster")
        elif topic is not None:
            pattern = ResourcePattern(ResourceType.TOPIC, topic)
        elif group is not None:
            pattern = ResourcePattern(ResourceType.GROUP, group)
        else:
            pattern = ResourcePattern(ResourceType.TRANSACTIONAL_ID, transactional_id)
        entry = ACL(
            principal=f"User:{allow_principal or deny_principal}",
            host="*",
            operation=ACLOperation[operation.upper()],
            permission_type=ACLPermissionType.ALLOW if allow_principal else ACLPermissionType.DENY,
            resource_pattern=pattern,
        )
        self._admin.create_acls([entry])
        self._entries.append(entry)

    def cleanup(self) -> None:
        """Remove what a test added."""
        filters = [
            ACLFilter(entry.principal, entry.host, entry.operation, entry.permission_type, entry.resource_pattern)
            for entry in self._entries
        ]
        if filters:
            self._admin.delete_acls(filters)
        self._entries.clear()


class KafkaConfig:
    """What their class of this name does with kafka-configs.sh in the container."""

    def __init__(self, admin: KafkaAdminClient) -> None:
        self._admin = admin

    def add_scram_user(self, username: str, password: str) -> None:
        """Give a user a password for SCRAM."""
        self._admin.alter_user_scram_credentials(
            [
                UserScramCredentialUpsertion(username, mechanism, password)
                for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
            ]
        )


class Kerberos:
    """Refuses: the broker has no GSSAPI."""

    def kinit(self, _: str) -> None:
        """Fail the test."""
        pytest.fail("the broker offers no GSSAPI")

    def kdestroy(self) -> None:
        """Do nothing."""


@pytest.fixture(scope="session")
def ssl_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the files that their tests expect, and the broker's."""
    directory = Path(tmp_path_factory.mktemp("tls"))
    authority = _certificates().Authority(directory)
    authority.issue("broker", names=["localhost", "127.0.0.1"])
    client = authority.issue("client", names=[], is_for_clients=True, password=b"abcdefgh")
    client.certfile.rename(directory / "client.crt")
    (directory / "ca.crt").write_bytes(authority.cafile.read_bytes())
    return directory


@pytest.fixture(scope="session")
def broker(ssl_folder: Path) -> Iterator[EmbeddedBroker]:
    """Run a broker with all four protocols."""
    files = [ssl_folder / name for name in ("broker.pem", "broker.key", "ca.crt")]
    with EmbeddedBroker(
        listeners="PLAINTEXT://:0,SSL://:0,SASL_PLAINTEXT://:0,SASL_SSL://:0",
        num_partitions=2,
        sasl_users=USERS,
        tls_files=files,
        options={"group.min.session.timeout.ms": 1000, "super.users": "User:ANONYMOUS"},
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def admin(broker: EmbeddedBroker) -> Iterator[KafkaAdminClient]:
    """A client for what they do in the container."""
    admin = KafkaAdminClient(bootstrap_servers=broker.listeners["PLAINTEXT"])
    yield admin
    admin.close()


@pytest.fixture(scope="class")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop for the tests of a class."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield loop
    if not loop.is_closed():
        loop.call_soon(loop.stop)
        loop.run_forever()
        loop.close()
    gc.collect()
    asyncio.set_event_loop(None)


@pytest.fixture(scope="class")
def setup_test_class_serverless(request: pytest.FixtureRequest, loop: asyncio.AbstractEventLoop) -> None:
    """Give the class a loop."""
    request.cls.loop = loop


@pytest.fixture(scope="class")
def setup_test_class(
    request: pytest.FixtureRequest,
    loop: asyncio.AbstractEventLoop,
    broker: EmbeddedBroker,
    admin: KafkaAdminClient,
    ssl_folder: Path,
) -> None:
    """Give the class a loop, addresses and tools."""
    ports = {protocol: int(address.rpartition(":")[2]) for protocol, address in broker.listeners.items()}
    request.cls.loop = loop
    request.cls.kafka_host, request.cls.kafka_port = "127.0.0.1", ports["PLAINTEXT"]
    request.cls.kafka_ssl_port = ports["SSL"]
    request.cls.kafka_sasl_plain_port = ports["SASL_PLAINTEXT"]
    request.cls.kafka_sasl_ssl_port = ports["SASL_SSL"]
    request.cls.hosts = [broker.listeners["PLAINTEXT"]]
    request.cls.ssl_folder = ssl_folder
    request.cls.acl_manager = AclManager(admin)
    request.cls.kafka_config = KafkaConfig(admin)
    request.cls.kerberos_utils = Kerberos()
    request.cls.kafka_version = KAFKA_VERSION
