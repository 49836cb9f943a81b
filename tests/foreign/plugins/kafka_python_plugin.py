"""Starts the embedded broker where kafka-python's own tests would start Apache Kafka."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from kafka import KafkaAdminClient

from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from tests.support.net.certificates import Authority

USER, PASSWORD = "kafka-python", "a password of the tests"


class BrokerFixture:
    """What their `KafkaFixture` is to their tests, with our broker behind it."""

    def __init__(self, transport: str, sasl_mechanism: str | None, partitions: int) -> None:
        self.transport = transport.upper()
        self.sasl_mechanism = sasl_mechanism
        self.partitions = partitions
        self.replicas = 1
        self.host = "localhost"
        self.zookeeper = None
        self.external = False
        self.broker_user, self.broker_password = USER, PASSWORD
        self.ssl_enabled = self.transport.endswith("SSL")
        self.sasl_enabled = self.transport.startswith("SASL_")
        self.child = SimpleNamespace(dump_logs=lambda: None)
        self._directory = tempfile.TemporaryDirectory(prefix="foreign-tls-")
        self.ssl_dir = self._directory.name
        self._broker = self._make()
        self._broker.start()
        self.port = int(self._broker.bootstrap_servers.rpartition(":")[2])

    def _make(self) -> EmbeddedBroker:
        tls_files = None
        if self.ssl_enabled:
            directory = Path(self.ssl_dir)
            authority = Authority(directory)
            pem = authority.issue("broker", names=["localhost", "127.0.0.1"])
            (directory / "ca-cert").write_bytes(authority.cafile.read_bytes())
            tls_files = (pem.certfile, pem.keyfile)
        return EmbeddedBroker(
            num_partitions=self.partitions,
            tls_files=tls_files,
            sasl_users={USER: PASSWORD} if self.sasl_enabled else None,
            options={"group.min.session.timeout.ms": 1000},
        )

    def start(self) -> None:
        """Do nothing: it runs."""

    def close(self) -> None:
        """Stop the broker."""
        self._broker.close()
        self._directory.cleanup()

    def dump_logs(self) -> None:
        """Do nothing: the broker's log is on stderr."""

    def bootstrap_server(self) -> str:
        """Return the address."""
        return f"{self.host}:{self.port}"

    def get_topic_names(self) -> list[str]:
        """List the topics."""
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            names: list[str] = admin.list_topics()
            return names

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        known: dict[str, Any] = {"bootstrap_servers": self.bootstrap_server(), "security_protocol": self.transport}
        if self.sasl_enabled:
            known["sasl_mechanism"] = self.sasl_mechanism
            known["sasl_plain_username"], known["sasl_plain_password"] = USER, PASSWORD
        if self.ssl_enabled:
            known["ssl_cafile"], known["ssl_check_hostname"] = f"{self.ssl_dir}/ca-cert", False
        return {**known, **defaults, **params}


def make(
    _: int, *, transport: str = "PLAINTEXT", sasl_mechanism: str | None = None, partitions: int = 4, **__: Any
) -> BrokerFixture:
    """Replace `KafkaFixture.instance`."""
    return BrokerFixture(transport, sasl_mechanism, partitions)


def _patch() -> None:
    """Replace their way to a broker by ours, before their conftest is imported."""
    service = ModuleType("test.service")  # starts Java processes; the source distribution leaves it out
    service.ExternalService = service.SpawnedService = object  # type: ignore[attr-defined]
    sys.modules["test.service"] = service
    from test.integration import fixtures  # theirs

    fixtures.KafkaFixture.instance = staticmethod(make)


_patch()
