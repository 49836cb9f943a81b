"""What handlers use of a broker's part in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kafkaprod.broker.calls.request import Ready
from kafkaprod.broker.cluster_config import ClusterConfig
from kafkaprod.broker.peers.link import OnAnswer
from kafkaprod.broker.replication.replica_manager import ReplicaManager
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.replicate_metadata import ReplicateMetadataRequest, ReplicateMetadataResponse
from kafkaprod.protocol.schema import Request


class AnswerGate(Protocol):
    """A coordinator's log as answers see it: they wait for its replicas."""

    def hold(self, ready: Ready, refusal: Callable[[ErrorCode], Ready], receiver: Callable[[Ready], None]) -> None:
        """Pass an answer on once the replicas have what was appended until now; see `ReplicatedCoordinatorLog`."""


class Membership(Protocol):
    """See `cluster.member.ClusterMember`. All of it belongs to the event loop."""

    @property
    def config(self) -> ClusterConfig:
        """Of the cluster."""

    @property
    def manager(self) -> ReplicaManager:
        """The broker's replicas."""

    def refusal(self, api: ApiKey, body: Request) -> ErrorCode:
        """Return why this broker does not answer a request, NONE if it does. Thread-safe."""

    def log_of(self, api: ApiKey, body: Request) -> AnswerGate | None:
        """Return the log that the answer to a request waits for, None if there is none. Thread-safe."""

    def receive_slice(self, request: ReplicateMetadataRequest) -> ReplicateMetadataResponse:
        """Take metadata over."""

    def when(self, condition: Callable[[], bool], timeout_ms: int, then: Callable[[], None]) -> None:
        """Call `then` once the metadata makes a condition true, or the time is over."""

    def ask_controller(self, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send the controller a request."""

    def ask_broker(self, node_id: int, request: Request, version: int, on_answer: OnAnswer, timeout_ms: int) -> None:
        """Send another broker a request."""
