"""Levels of features in a cluster: changed at one broker, the same at all, and kept by the controller."""

from __future__ import annotations

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from tests.support.net.raw_client import RawClient

FEATURE = "transaction.version"
SAFE_DOWNGRADE = 2


def level_of(address: str) -> tuple[int, int]:
    """The level of the feature at a broker, and the epoch that it is known by."""
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    with RawClient(address) as client:
        answer = client.call(request, ApiVersionsResponse, 4)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels.get(FEATURE, 0), answer.finalized_features_epoch


def update(address: str, level: int, kind: int) -> int:
    wanted = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
    with RawClient(address) as client:
        return client.call(UpdateFeaturesRequest(feature_updates=[wanted]), UpdateFeaturesResponse, 2).error_code


def test_a_level_that_one_broker_changes_is_that_of_all() -> None:
    with EmbeddedCluster(brokers=2) as cluster:
        addresses = [broker.address for broker in cluster.brokers]
        before = [level_of(address) for address in addresses]
        assert [level for level, _ in before] == [2, 2]
        assert update(addresses[1], 1, SAFE_DOWNGRADE) == 0
        assert level_of(addresses[1])[0] == 1, "the broker that answers knows of it"
        cluster.controller.kill()
        cluster.controller.start()
        cluster.wait_until_applied()
        after = [level_of(address) for address in addresses]
        assert [level for level, _ in after] == [1, 1]
        assert min(epoch for _, epoch in after) > max(epoch for _, epoch in before)


def test_a_feature_with_the_longest_name_ends_no_process() -> None:
    """The controller's answer quotes it, and an error message is no longer than a name may be."""
    wanted = FeatureUpdateKey(feature="n" * 32_767, max_version_level=1)
    with EmbeddedCluster(brokers=1) as cluster, RawClient(cluster.brokers[0].address) as client:
        answer = client.call(UpdateFeaturesRequest(feature_updates=[wanted]), UpdateFeaturesResponse, 2)
        assert answer.error_code
        assert len(answer.error_message or "") < 2_000
        assert cluster.controller.is_running
