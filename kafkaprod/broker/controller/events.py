"""What the controller takes: requests, timers, wishes of its host; and what handlers decide. Values.

`reply` takes the answer to each exactly once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.schema import Request, Response

Reply = Callable[[Any], None]


def no_reply(_: Any) -> None:
    """Take an answer that no one waits for."""


class Asked(NamedTuple):
    """A request, which is an event as it is; `reply` takes its response.

    Attributes:
        refuse: Makes the response if the request cannot be handled.
        requester: Who has sent it, if it came in an envelope.
    """

    body: Request
    reply: Callable[[Response], None]
    refuse: Callable[[ErrorCode], Response]
    requester: str = ""


class SessionExpired(NamedTuple):
    """No heartbeat came in time."""

    broker_id: int
    broker_epoch: int
    reply: Reply = no_reply


class RemoveBroker(NamedTuple):
    """A broker without replicas is removed from the cluster."""

    broker_id: int
    reply: Reply = no_reply


class BrokerGone(NamedTuple):
    """A broker's process has ended."""

    broker_id: int
    incarnation_id: uuid.UUID
    reply: Reply = no_reply


class AdoptTopic(NamedTuple):
    """A topic has its id and its logs already, and the replicas of each partition."""

    name: str
    topic_id: uuid.UUID
    assignment: tuple[tuple[int, ...], ...]
    configs: Mapping[str, str]
    reply: Reply = no_reply


class MoveLeader(NamedTuple):
    """Make a member of the ISR leader."""

    key: PartitionKey
    to: int
    reply: Reply = no_reply


class SweepTokens(NamedTuple):
    """The timer that removes tokens that are over."""

    reply: Reply = no_reply


class LookForLeaders(NamedTuple):
    """The timer that gives leaderless partitions a leader where unclean elections are allowed."""

    reply: Reply = no_reply


ControllerEvent = (
    Asked | SessionExpired | RemoveBroker | BrokerGone | AdoptTopic | MoveLeader | SweepTokens | LookForLeaders
)


class Decision(NamedTuple):
    """What a handler decides: records to append as one batch, and the answer once they are committed."""

    records: list[Any]
    answer: Any
