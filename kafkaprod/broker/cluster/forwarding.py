"""Requests that the controller answers: brokers check them, send them on, and wait for the metadata.

A broker alone asks the controller inside it, which answers at once. Called on the control thread; links and metadata of
a cluster belong to the event loop, so calls change threads here. As in Kafka the request keeps its own format; the
client's rights were checked before.
"""

from __future__ import annotations

from collections.abc import Callable

from kafkaprod.broker.calls.request import Deferred, Outcome
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.cluster.topics import INTERNAL_TOPICS
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kafkaprod.protocol.schema import Request, Response

FORWARDED_VERSIONS = {
    ApiKey.CREATE_TOPICS: 7,
    ApiKey.DELETE_TOPICS: 6,
    ApiKey.CREATE_PARTITIONS: 3,
    ApiKey.ELECT_LEADERS: 2,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: 1,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: 1,
    ApiKey.DESCRIBE_QUORUM: 2,
    ApiKey.CHANGE_SETTINGS: 0,
}

_TIMEOUT_MS = 10_000
_METADATA_MS = 1_000
_INTERNAL_CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 1024 * 1024)}


def forward(
    broker: Broker,
    request: Request,
    finish: Callable[[Response | None], Response],
    is_visible: Callable[[Response | None], bool] = lambda _: True,
) -> Outcome:
    """Send a request to the controller; return the outcome, which comes later in a cluster.

    Args:
        broker: That a client has asked.
        request: What the controller gets.
        finish: Makes the client's answer of the controller's, None if there is none; on the control thread.
        is_visible: Whether this broker's metadata shows the change; the answer waits for it a while.
    """
    if broker.controller is not None:
        return finish(broker.controller.ask(request))
    deferred = Deferred()

    def complete(response: Response | None) -> None:
        broker.run_control(lambda: deferred.complete(finish(response)), _nothing)

    def answered(response: Response | None) -> None:
        assert broker.member is not None
        broker.member.when(lambda: is_visible(response), _METADATA_MS, lambda: complete(response))

    send_to_controller(broker, request, answered)
    return deferred


def send_to_controller(broker: Broker, request: Request, on_answer: Callable[[Response | None], None]) -> None:
    """Send a request to the controller, from any thread; `on_answer` is called in the event loop."""

    def send() -> None:
        assert broker.member is not None
        broker.member.ask_controller(request, FORWARDED_VERSIONS[request.api], on_answer, _TIMEOUT_MS)

    broker.run_control(_nothing, send)


def create_in_background(broker: Broker, name: str) -> None:
    """Have the controller make a topic that a client has named; clients ask again until it is there."""
    assert broker.config.cluster is not None
    is_internal = name in INTERNAL_TOPICS
    configs = _INTERNAL_CONFIGS if is_internal else {}
    wanted = CreatableTopic(
        name=name,
        num_partitions=1 if is_internal else broker.config.num_partitions,
        replication_factor=default_factor(broker),
        configs=[CreatableTopicConfig(name=option, value=value) for option, value in configs.items()],
    )
    send_to_controller(broker, CreateTopicsRequest(topics=[wanted]), lambda _: None)


def default_factor(broker: Broker) -> int:
    """Return the replicas of topics that do not say how many."""
    cluster = broker.config.cluster
    return 1 if cluster is None else cluster.replication_factor


def are_visible(broker: Broker, response: Response | None) -> bool:
    """Whether this broker knows the topics that the controller has made."""
    if not isinstance(response, CreateTopicsResponse):
        return True
    return all(topic.error_code or broker.topics.get(topic.name) is not None for topic in response.topics)


def _nothing() -> None:
    """Takes the place of a call that is not needed."""
