"""Subscriptions to the metrics of clients (KIP-714) at an embedded broker."""

from __future__ import annotations

from kafkaprod.admin.client import ClusterClient
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.broker.handlers.config_resources import CLIENT_METRICS
from kafkaprod.config import ProducerConfig
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)


def subscribe(broker: EmbeddedBroker, name: str = "all", **options: str) -> None:
    """Make a subscription as `kafka-client-metrics.sh --alter` does."""
    configs = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in options.items()]
    resource = AlterConfigsResource(resource_type=CLIENT_METRICS, resource_name=name, configs=configs)
    config = ProducerConfig.from_options(bootstrap_servers=broker.bootstrap_servers)
    with ClusterClient(config) as client:
        (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert (answer.error_code, answer.error_message) == (0, None)
