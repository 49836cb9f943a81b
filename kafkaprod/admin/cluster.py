"""Questions to a cluster on a connection of their own: can it be reached, and which brokers and topics it has.

They fail as soon as every bootstrap server has failed once, so that a wrong address, port or protocol shows at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kafkaprod.admin.client import ClusterClient
from kafkaprod.admin.topics import TopicInfo, topic_info
from kafkaprod.clock import LONGEST_S, monotonic_s, seconds_of
from kafkaprod.config import ProducerConfig
from kafkaprod.errors import AuthenticationError, BootstrapError, KafkaError
from kafkaprod.protocol.error_codes import error_for
from kafkaprod.structs import Node

CHECK_TIMEOUT_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """A cluster as one of its brokers describes it.

    Attributes:
        cluster_id: Its id; None if the broker has none.
        controller_id: The broker that is the controller, -1 if unknown.
        brokers: By node id.
        topics: By name; those that were requested and have no error.
        errors: By name, why a topic has no description.
    """

    cluster_id: str | None
    controller_id: int
    brokers: Mapping[int, Node]
    topics: Mapping[str, TopicInfo]
    errors: Mapping[str, KafkaError]


def check_cluster(config: ProducerConfig, timeout: float = CHECK_TIMEOUT_S) -> None:
    """Connect, log in, and connect to one of the brokers at the address that the cluster names.

    Args:
        config: Its connection options are used.
        timeout: Seconds for all of it.

    Raises:
        BootstrapError: No bootstrap server can be used, or no broker at the address that the cluster names.
        AuthenticationError, RequestTimedOutError: As `describe_cluster`.
    """
    timeout_ms = _timeout_ms(timeout)
    deadline_s = monotonic_s() + timeout_ms / 1000
    with ClusterClient(config, timeout_ms, is_one_try=True) as client:
        client.metadata([])
        left_ms = int((deadline_s - monotonic_s()) * 1000)
        failed = client.unreachable(max(left_ms, 1), is_one_enough=True)
    if failed:
        first = next(iter(failed.values()))
        if isinstance(first, AuthenticationError):
            raise first
        texts = "; ".join(str(error) for error in failed.values())
        raise BootstrapError(f"the cluster answers, but none of its brokers can be reached: {texts}") from first


def _timeout_ms(timeout: float) -> int:
    seconds = seconds_of(timeout)
    return int(LONGEST_S * 1000) if seconds is None else max(int(seconds * 1000), 1)


def describe_cluster(config: ProducerConfig, topics: list[str] | None, timeout: float = CHECK_TIMEOUT_S) -> ClusterInfo:
    """Connect, log in, and return what the cluster is.

    Args:
        config: Its connection options are used.
        topics: Names of the topics to describe; None: all that this user may see.
        timeout: Seconds for all of it.

    Raises:
        BootstrapError: No bootstrap server can be used; names each with the stage reached and the cause.
        AuthenticationError: The login or a certificate was refused.
        RequestTimedOutError: The answer did not come in time.
    """
    with ClusterClient(config, _timeout_ms(timeout), is_one_try=True) as client:
        answer = client.metadata(topics)
    return ClusterInfo(
        answer.cluster_id,
        answer.controller_id,
        {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in answer.brokers},
        {str(topic.name): topic_info(topic) for topic in answer.topics if topic.error_code == 0},
        {
            str(topic.name): error_for(topic.error_code, topic=str(topic.name))
            for topic in answer.topics
            if topic.error_code
        },
    )
