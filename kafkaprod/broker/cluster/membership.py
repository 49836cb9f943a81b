"""What the parts of a broker in a cluster use of its `member.ClusterMember`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkaprod.broker.peers.link import OnAnswer
from kafkaprod.protocol.schema import Request


class Membership(Protocol):
    """See `cluster.member.ClusterMember`. All of it belongs to the event loop."""

    def when(self, condition: Callable[[], bool], timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` once the metadata makes a condition true, or the time is over."""

    def ask_broker(self, node_id: int, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send another broker a request."""
