"""What clients set on one broker of a cluster is seen on all of them, and outlives any of them and the controller."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from kafkaprod import Producer
from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.handlers.config_resources import BROKER, GROUP
from kafkaprod.errors import KafkaError
from kafkaprod.protocol.messages import alter_client_quotas
from kafkaprod.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from kafkaprod.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from tests.support.net.raw_client import RawClient

WAIT_S = 30.0
ANY_TEXT: Any = None
EVERY_ACL = AclBindingFilter(
    ResourceType.ANY, ANY_TEXT, ResourcePatternType.ANY, ANY_TEXT, ANY_TEXT, AclOperation.ANY, AclPermissionType.ANY
)
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    users = {"admin": "admin-secret"}
    options = {"super.users": "User:admin"}
    with EmbeddedCluster(brokers=2, topics={"orders": 1}, sasl_users=users, options=options) as running:
        yield running


def client(cluster: EmbeddedCluster, broker_id: int) -> AdminClient:
    """An administrator who knows one broker only; others answer where the request is for them."""
    login = {**LOGIN, "sasl.username": "admin", "sasl.password": "admin-secret"}
    return AdminClient({"bootstrap.servers": cluster.broker(broker_id).address, **login})


def on_each_broker(cluster: EmbeddedCluster, look: Callable[[AdminClient], object]) -> list[object]:
    """What a request finds when one broker after the other runs alone."""
    found = []
    for broker, other in (cluster.brokers, reversed(cluster.brokers)):
        other.kill()
        alone = client(cluster, broker.id)
        found.append(look(alone))
        other.start()
        cluster.wait_until_in_sync()
    return found


def test_access_control_entries(cluster: EmbeddedCluster) -> None:
    entry = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.WRITE,
        AclPermissionType.ALLOW,
    )
    admin = client(cluster, 1)
    admin.create_acls([entry])[entry].result(WAIT_S)
    cluster.controller.restart()
    found = on_each_broker(cluster, lambda alone: alone.describe_acls(EVERY_ACL).result(WAIT_S))
    assert found == [[entry], [entry]]
    other = client(cluster, 2)
    assert other.delete_acls([EVERY_ACL])[EVERY_ACL].result(WAIT_S) == [entry]
    cluster.wait_until_applied()
    assert on_each_broker(cluster, lambda alone: alone.describe_acls(EVERY_ACL).result(WAIT_S)) == [[], []]


def test_credentials(cluster: EmbeddedCluster) -> None:
    keys = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("ann", keys, b"ann-secret", b"salt")
    admin = client(cluster, 1)
    admin.alter_user_scram_credentials([change])["ann"].result(WAIT_S)
    cluster.wait_until_applied()

    def can_send(broker_id: int) -> bool:
        login: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "SCRAM-SHA-256"}
        with Producer(
            bootstrap_servers=cluster.broker(broker_id).address,
            sasl_plain_username="ann",
            sasl_plain_password="ann-secret",
            **login,
        ) as producer:
            try:
                producer.send("orders", b"x").result(WAIT_S)
            except KafkaError:
                return False
            return True

    assert [can_send(broker_id) for broker_id in (1, 2)] == [True, True]
    cluster.roll()
    assert can_send(2)


def test_quotas_and_options() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        entity = [alter_client_quotas.EntityData(entity_type="user", entity_name="ann")]
        change = alter_client_quotas.OpData(key="producer_byte_rate", value=10.0)
        quotas = alter_client_quotas.AlterClientQuotasRequest(
            entries=[alter_client_quotas.EntryData(entity=entity, ops=[change])]
        )
        resources = [
            AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[AlterableConfig(name=option, value=value)]
            )
            for kind, name, option, value in (
                (BROKER, "", "log.retention.ms", "5000"),
                (GROUP, "billing", "consumer.session.timeout.ms", "45001"),
            )
        ]
        with RawClient(cluster.broker(1).address) as raw:
            answer = raw.call(quotas, alter_client_quotas.AlterClientQuotasResponse, 1)
            assert [entry.error_code for entry in answer.entries] == [0]
            request = IncrementalAlterConfigsRequest(resources=resources)
            changed = raw.call(request, IncrementalAlterConfigsResponse, 1)
            assert [(each.error_code, each.error_message) for each in changed.responses] == [(0, None)] * 2
        cluster.controller.restart()
        cluster.broker(1).kill()
        cluster.broker(2).restart()
        with RawClient(cluster.broker(2).address) as raw:
            found = raw.call(DescribeClientQuotasRequest(strict=False), DescribeClientQuotasResponse, 1)
            assert [(entry.entity[0].entity_name, entry.values[0].value) for entry in found.entries or []] == [
                ("ann", 10.0)
            ]
            for kind, name, option, value in (
                (BROKER, "2", "log.retention.ms", "5000"),
                (GROUP, "billing", "consumer.session.timeout.ms", "45001"),
            ):
                wanted = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=[option])
                shown = raw.call(DescribeConfigsRequest(resources=[wanted]), DescribeConfigsResponse, 4)
                assert [config.value for config in shown.results[0].configs] == [value]
