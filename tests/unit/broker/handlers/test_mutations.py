"""The quota of changes of topics: what costs a token, who is refused, and who only waits."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkaprod.broker.settings.quotas import Change
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from tests.support.broker.broker_without_sockets import BrokerWithoutSockets

NONE, EXCEEDED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED


@pytest.fixture
def box(tmp_path: Path) -> BrokerWithoutSockets:
    box = BrokerWithoutSockets(tmp_path)
    box.broker.quotas.alter([({"user": None}, [Change("controller_mutation_rate", 2.0)])])
    return box


def create(box: BrokerWithoutSockets, topics: dict[str, int], version: int = 7) -> tuple[dict[str, int], int]:
    wanted = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name, count in topics.items()]
    answer = box.ask(CreateTopicsRequest(topics=wanted), CreateTopicsResponse, version)
    return {topic.name: topic.error_code for topic in answer.topics}, answer.throttle_time_ms


def test_tokens_may_be_overdrawn_once_and_the_rest_is_refused(box: BrokerWithoutSockets) -> None:
    assert create(box, {"a": 22, "b": 8, "c": 1}) == ({"a": NONE, "b": NONE, "c": EXCEEDED}, 4_000)
    assert box.broker.topics.get("c") is None
    box.clock.advance(3_999)
    assert create(box, {"c": 1}) == ({"c": EXCEEDED}, 1)
    box.clock.advance(1)
    assert create(box, {"c": 1}) == ({"c": NONE}, 0)
    box.user = "ann"
    assert create(box, {"d": 1}) == ({"d": NONE}, 0)


def test_versions_without_the_error_make_the_change_and_wait(box: BrokerWithoutSockets) -> None:
    assert create(box, {"a": 30}, version=5) == ({"a": NONE}, 4_000)
    assert create(box, {"b": 2}, version=5) == ({"b": NONE}, 5_000)


def test_partitions_that_are_added_and_deleted_cost_tokens_too(box: BrokerWithoutSockets) -> None:
    create(box, {"a": 20})
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=24)])
    assert box.ask(grown, CreatePartitionsResponse, 3).results[0].error_code == NONE
    refused = box.ask(grown, CreatePartitionsResponse, 3)
    assert (refused.results[0].error_code, refused.throttle_time_ms) == (EXCEEDED, 1_000)
    assert refused.results[0].error_message == "The throttling quota has been exceeded."
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
    answer = box.ask(deletion, DeleteTopicsResponse, 6)
    assert (answer.responses[0].name, answer.responses[0].error_code) == ("a", EXCEEDED)
    box.clock.advance(1_000)
    assert box.ask(deletion, DeleteTopicsResponse, 6).responses[0].error_code == NONE
    assert create(box, {"b": 1}) == ({"b": EXCEEDED}, 12_000)
    by_name = DeleteTopicsRequest(topic_names=["missing"])
    assert box.ask(by_name, DeleteTopicsResponse, 4).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
