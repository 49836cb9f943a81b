"""Every API and version that a broker announces is called, alone and in a cluster with topics that a broker lacks."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kafkaprod.broker.embedding.cluster import EmbeddedCluster
from kafkaprod.broker.embedding.embedded import EmbeddedBroker
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages import RESPONSES
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.support.broker.sensible_requests import requests_of, unexpected_errors
from tests.support.net.raw_client import RawClient

TOPICS = ("single", "copied")
LAST = (ApiKey.DELETE_RECORDS, ApiKey.DELETE_GROUPS, ApiKey.DELETE_TOPICS)
"""What takes away what others ask about."""
GONE = {ApiKey.PRODUCE: 3}
"""The first version that is taken where earlier ones are announced and close the connection."""


@pytest.fixture(params=["alone", "cluster"])
def addresses(request: pytest.FixtureRequest, capfd: pytest.CaptureFixture[str]) -> Iterator[list[str]]:
    """The brokers; what they print is in `capfd`."""
    with ExitStack() as stack:
        if request.param == "alone":
            broker = EmbeddedBroker(topics=dict.fromkeys(TOPICS, 2), client_metrics=True)
            yield [stack.enter_context(broker).bootstrap_servers]
            return
        cluster = stack.enter_context(EmbeddedCluster(brokers=3))
        for topic, replicas in (("single", [[1], [2]]), ("copied", [[1, 2, 3], [2, 3, 1]])):
            cluster.create_topic(topic, assignment=replicas)
        cluster.wait_until_in_sync()
        yield [each.address for each in cluster.brokers]


def announced(address: str) -> list[tuple[ApiKey, int]]:
    """All that a broker announces, in the order in which it is tried here."""
    client = RawClient(address)
    request = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = client.call(request, ApiVersionsResponse, 4)
    client.close()
    found = [
        (ApiKey(key.api_key), version)
        for key in answer.api_keys
        for version in range(max(key.min_version, GONE.get(ApiKey(key.api_key), 0)), key.max_version + 1)
    ]
    return sorted(found, key=lambda case: LAST.index(case[0]) if case[0] in LAST else -1)


def ids_of(address: str) -> dict[str, uuid.UUID | None]:
    client = RawClient(address)
    wanted = [MetadataRequestTopic(name=topic) for topic in TOPICS]
    answer = client.call(MetadataRequest(topics=wanted), MetadataResponse, 12)
    client.close()
    return {topic.name or "": topic.topic_id for topic in answer.topics}


def call_all(address: str, ids: dict[str, uuid.UUID | None]) -> list[str]:
    """Call everything about each topic; return what went wrong."""
    wrong = []
    for api, version in announced(address):
        for topic in (*TOPICS, "nothing"):
            for request in requests_of(api, version, topic, ids.get(topic, uuid.UUID(int=77))):
                client = RawClient(address)
                case = f"{api.name} {version} of {topic}"
                try:
                    answer = client.call(request, RESPONSES[api], version)
                    wrong += [f"{case}: {place}" for place in unexpected_errors(answer)]
                except (OSError, ValueError) as error:
                    wrong.append(f"{case}: {error!r}")
                client.close()
    return wrong


def test_no_call_fails_unexpectedly(addresses: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    ids = ids_of(addresses[0])
    assert len(announced(addresses[0])) > 200
    for address in addresses:
        assert call_all(address, ids) == []
    assert "Traceback" not in capfd.readouterr().err
