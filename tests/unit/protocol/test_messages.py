"""Every message, every version, both directions."""

from __future__ import annotations

import pytest

from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages import REQUESTS, RESPONSES, client_versions, version_ranges
from kafkaprod.protocol.messages.api_versions import ApiVersionsRequest
from kafkaprod.protocol.messages.init_producer_id import InitProducerIdRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest
from kafkaprod.protocol.primitives import Writer
from kafkaprod.protocol.schema import Message
from tests.support.net.protocol_samples import ALL_VERSIONS, IDS, MESSAGE_CLASSES, samples


@pytest.mark.parametrize(("message_class", "version"), ALL_VERSIONS, ids=IDS)
def test_a_message_survives_encoding_and_decoding(message_class: type[Message], version: int) -> None:
    for message in samples(message_class, version):
        encoded = message.encode(version)

        assert message_class.decode(encoded, version) == message
        writer = Writer()
        message.write_to(writer, version)
        assert b"".join(writer.parts()) == encoded


def test_every_api_has_a_request_and_a_response_of_the_same_versions() -> None:
    assert set(REQUESTS) == set(RESPONSES) == set(ApiKey)
    for api, request_class in REQUESTS.items():
        response_class = RESPONSES[api]
        assert (request_class.api, response_class.api) == (api, api)
        assert request_class.versions == response_class.versions
        assert request_class.flexible_from == response_class.flexible_from
        assert request_class.__name__.removesuffix("Request") == response_class.__name__.removesuffix("Response")


@pytest.mark.parametrize("message_class", MESSAGE_CLASSES, ids=lambda message_class: message_class.__name__)
def test_instances_do_not_share_their_defaults(message_class: type[Message]) -> None:
    first, second = message_class(), message_class()
    for item in message_class.fields:
        value = getattr(first, item.name)
        if isinstance(value, list):
            assert value is not getattr(second, item.name)


def test_unstable_versions_are_not_offered() -> None:
    assert InitProducerIdRequest.versions == (0, 6)
    assert client_versions(ApiKey.INIT_PRODUCER_ID) == (0, 5)


def test_a_broker_announces_what_it_handles_up_to_the_limits_of_its_handlers() -> None:
    ranges = version_ranges([ApiKey.METADATA, ApiKey.PRODUCE], {ApiKey.METADATA: 12})

    assert ranges == {ApiKey.PRODUCE: (3, 13), ApiKey.METADATA: (0, 12)}


def test_api_versions_of_a_new_client_can_be_sent_to_an_old_broker() -> None:
    asked = ApiVersionsRequest(client_software_name="kafkaprod", cluster_id="c", node_id=1)

    assert asked.encode(0) == b""


def test_metadata_asks_for_no_topics_unless_told_otherwise() -> None:
    assert MetadataRequest().encode(4) == bytes.fromhex("00000000 01")
    assert MetadataRequest(topics=None).encode(4) == bytes.fromhex("ffffffff 01")
