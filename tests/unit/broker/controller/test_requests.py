"""Requests of brokers: each part gets its own answer, in the order of the request."""

from typing import Any

from kafkaprod.broker.controller.controller import Controller
from kafkaprod.broker.controller.events import Asked
from kafkaprod.broker.controller.requests import on_request
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kafkaprod.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kafkaprod.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kafkaprod.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkaprod.protocol.schema import Request
from tests.support.cluster.controller import Rig

TOPIC = 2


def controller() -> Controller:
    return Controller("c", session_timeout_ms=100, seed=1, now_ms=0)


def ask(asked: Controller, request: Request) -> Any:
    responses: list[Any] = []
    on_request(asked, request, 0, responses.append)
    while asked.turn(0):
        pass
    (response,) = responses
    return response


def test_parts_of_a_request_are_answered_by_name() -> None:
    """Without brokers no topic can be made, and each refusal carries its topic's name."""
    asked = controller()
    wanted = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("a", "b")]
    created = ask(asked, CreateTopicsRequest(topics=wanted))
    assert [(each.name, each.error_code) for each in created.topics] == [
        ("a", ErrorCode.INVALID_REPLICATION_FACTOR),
        ("b", ErrorCode.INVALID_REPLICATION_FACTOR),
    ]
    deleted = ask(asked, DeleteTopicsRequest(topics=[DeleteTopicState(name="a"), DeleteTopicState(name="b")]))
    assert [(each.name, each.error_code) for each in deleted.responses] == [
        ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("b", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    grown = ask(asked, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=2)]))
    assert [(each.name, each.error_code) for each in grown.results] == [("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]


def test_a_request_without_parts_is_answered() -> None:
    assert ask(controller(), CreateTopicsRequest(topics=[])).topics == []


def test_a_refused_option_is_an_error_of_its_resource_only() -> None:
    asked = controller()
    resources = [
        AlterConfigsResource(
            resource_type=TOPIC,
            resource_name=name,
            configs=[
                AlterableConfig(name=option, config_operation=0, value="1")
                for option in ("retention.ms", "segment.bytes")
            ],
        )
        for name in ("a", "b")
    ]
    responses: list[Any] = []
    on_request(asked, IncrementalAlterConfigsRequest(resources=resources), 0, responses.append)
    asked.turn(0)
    event = asked.queue.take(0)
    assert isinstance(event, Asked)
    event.reply(event.refuse(ErrorCode.NOT_CONTROLLER))
    (response,) = responses
    answers = [(each.resource_type, each.resource_name, each.error_code) for each in response.responses]
    assert answers == [(TOPIC, "a", 0), (TOPIC, "b", ErrorCode.NOT_CONTROLLER)]
    assert asked.context.image.configs == {(TOPIC, "a"): {"retention.ms": "1", "segment.bytes": "1"}}


def test_a_broker_whose_heartbeat_waits_behind_many_events_stays_alive() -> None:
    """A request for 10,000 topics is as many events, which take longer than a session."""
    rig = Rig()
    asked, (broker_id, epoch) = rig.controller, next(iter(rig.epochs.items()))
    topics = [CreatableTopic(name=f"t{number}", num_partitions=1, replication_factor=1) for number in range(20)]
    on_request(asked, CreateTopicsRequest(topics=topics), 0, lambda _: None)
    beat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=epoch)
    on_request(asked, beat, 90, lambda _: None)
    on_request(asked, BrokerHeartbeatRequest(broker_id=2, broker_epoch=rig.epochs[2] + 1), 90, lambda _: None)
    for now_ms in range(95, 110):  # the heartbeats' own events come later
        asked.turn(now_ms)
    assert len(asked.queue) > 2
    fenced = {broker.broker_id: broker.is_fenced for broker in asked.context.image.brokers.values()}
    assert fenced == {1: False, 2: True, 3: True}
