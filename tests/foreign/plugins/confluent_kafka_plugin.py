"""Takes the place of trivup, which starts Apache Kafka for confluent-kafka's own tests: our broker instead."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from kafkaprod.broker.embedding.embedded import EmbeddedBroker


class KafkaCluster:
    """What trivup's class of this name is to their fixtures, with one broker of ours behind it."""

    def __init__(self, *, broker_conf: list[str], sasl_mechanism: str = "", sasl_users: str = "", **_: Any) -> None:
        users = dict(pair.split("=", 1) for pair in sasl_users.split(",") if pair)
        options = dict(line.split("=", 1) for line in broker_conf)
        self._login: dict[str, str] = {}
        if users:
            user, password = next(iter(users.items()))
            self._login = {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": sasl_mechanism,
                "sasl.username": user,
                "sasl.password": password,
            }
        # What is about share groups is unknown to our broker, and refused.
        known = {name: value for name, value in options.items() if "share." not in name and "min.isr" not in name}
        self._broker = EmbeddedBroker(
            num_partitions=4,  # trivup's
            sasl_users=users or None,
            options={"group.min.session.timeout.ms": 1000, **known},
        )
        self._broker.start()

    def wait_operational(self) -> None:
        """Do nothing: it runs."""

    def client_conf(self) -> dict[str, str]:
        """Return how clients reach the broker."""
        return {"bootstrap.servers": self._broker.bootstrap_servers, **self._login}

    def stop(self, **_: Any) -> None:
        """Stop the broker, and remove its data."""
        self._broker.close()


def _patch() -> None:
    """Give their fixtures our class in place of trivup's."""
    for name in ("trivup", "trivup.clusters", "trivup.clusters.KafkaCluster"):
        sys.modules[name] = ModuleType(name)
    sys.modules["trivup.clusters.KafkaCluster"].KafkaCluster = KafkaCluster  # type: ignore[attr-defined]


_patch()
