"""A client that sends one request after the other and waits for each answer.

Records do not pass through it: the loader uses it before and after a load, the commands use it alone. Not thread-safe.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Final, Self

from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import connection_settings
from kafkaprod.errors import ConnectionLostError, InvalidRecordError, KafkaError, RequestTimedOutError
from kafkaprod.net.node import ADVERTISED_HINT
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.negotiation import BrokerVersions
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import Node

POLL_MS: Final = 50
MAX_TRIES: Final = 5

logger = logging.getLogger("kafkaprod.admin")


class ClusterClient:
    """Sends requests to brokers. Close it, or use it in a `with` statement.

    Args:
        config: Its connection options are used: addresses, TLS, login, timeouts.
        connect_timeout_ms: How long to wait for the first answer of the cluster; None: max_block_ms, but at most
            request_timeout_ms, which bounds the wait for each later answer.
        is_one_try: Raise as soon as every bootstrap server has failed once, or a connection with a request on its way.
    """

    def __init__(
        self, config: ProducerConfig, connect_timeout_ms: int | None = None, *, is_one_try: bool = False
    ) -> None:
        self._clock = SystemClock()
        self._answer_ms = config.request_timeout_ms
        self._timeout_ms = min(self._answer_ms, config.max_block_ms)  # until the first answer
        if connect_timeout_ms is not None:
            self._timeout_ms = connect_timeout_ms
        self._pool = NodePool(connection_settings(config), self._clock)
        self._pool.set_bootstrap(config.bootstrap_servers)
        self._has_warned = False
        self._is_one_try = is_one_try
        self.controller_id = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._pool.close()

    def metadata(
        self, topics: list[str] | None, *, operations: bool = False, creates: bool = False
    ) -> MetadataResponse:
        """Return the metadata of some topics, or of all (None).

        Args:
            topics: Their names.
            operations: Include what this user may do with them.
            creates: Let the broker create missing ones, if it is configured to.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=creates, include_topic_authorized_operations=operations
        )
        response: MetadataResponse = self.ask(request)
        nodes = {b.node_id: Node(b.node_id, b.host, b.port, b.rack) for b in response.brokers}
        self._pool.update_nodes(nodes, response.cluster_id)
        self.controller_id = response.controller_id
        return response

    def ask(self, request: Request, node_id: int | None = None, version: int | None = None) -> Any:
        """Send a request to a node (None: any) and return the response; a lost connection is tried again.

        Raises:
            BootstrapError, AuthenticationError: No broker can be reached.
            RequestTimedOutError: No answer in time.
            InvalidRecordError: The protocol cannot hold a text of the request.
            KafkaError: As NodePool.send.
        """
        for attempt in range(MAX_TRIES):
            try:
                return self._ask_once(request, node_id, version)
            except ConnectionLostError:
                if attempt == MAX_TRIES - 1 or self._is_one_try:
                    raise
            except KafkaError:
                raise
            except ValueError as error:  # a text that the protocol cannot hold
                raise InvalidRecordError(f"{type(request).__name__} cannot be sent: {error}") from None
        raise AssertionError("not reached")

    def wait(self, wait_ms: int) -> None:
        """Wait, and serve the connections meanwhile."""
        deadline_ms = self._clock.now_ms() + wait_ms
        while (now_ms := self._clock.now_ms()) < deadline_ms:
            self._pool.poll(deadline_ms - now_ms)

    def api_versions(self, api_key: int) -> tuple[int, int] | None:
        """Return the versions of an API that a broker announced; None: no broker was connected, or it lacks the API."""
        for node_id in self._pool.node_ids():
            versions = self._pool.versions(node_id)
            if versions is not None:
                return versions.ranges.get(api_key)
        return None

    def broker_versions(self) -> dict[int, BrokerVersions]:
        """Return what each connected broker announced, by node id."""
        found = {node_id: self._pool.versions(node_id) for node_id in self._pool.node_ids() if node_id >= 0}
        return {node_id: versions for node_id, versions in found.items() if versions is not None}

    def knows(self, node_id: int, host: str | None = None, port: int | None = None) -> bool:
        """Whether the metadata has named a node, at this address if one is given."""
        state = self._pool.members.states.get(node_id)
        return state is not None and (host is None or (state.node.host, state.node.port) == (host, port))

    def connect(self, node_id: int) -> None:
        """Connect to a node of the metadata. Raises as `ask`."""
        self.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False), node_id)

    def unreachable(self, timeout_ms: int, *, is_one_enough: bool = False) -> dict[int, KafkaError]:
        """Connect to all brokers of the metadata at once; return why some cannot be reached.

        Args:
            timeout_ms: How long that may take.
            is_one_enough: Return nothing as soon as one is connected.
        """
        deadline_ms = self._clock.now_ms() + timeout_ms
        members = self._pool.members
        waiting = {node_id for node_id in self._pool.node_ids() if node_id >= 0}
        failed: dict[int, KafkaError] = {}
        while waiting and (now_ms := self._clock.now_ms()) < deadline_ms:
            for node_id in sorted(waiting):
                failure = members.last_failure(node_id)
                if self._pool.is_ready(node_id, now_ms):
                    if is_one_enough:
                        return {}
                    waiting.discard(node_id)
                elif failure is not None:
                    failed[node_id] = failure.error
                    waiting.discard(node_id)
            if waiting:
                self._pool.poll(POLL_MS)
        for node_id in waiting:
            failed[node_id] = RequestTimedOutError(
                f"{members.name_of(node_id)}: no answer within {timeout_ms} ms ({ADVERTISED_HINT})", node=node_id
            )
        return failed

    def _ask_once(self, request: Request, node_id: int | None, version: int | None) -> Any:
        deadline_ms = self._clock.now_ms() + self._timeout_ms
        is_sent = False
        answers: list[InFlightRequest] = []
        while (now_ms := self._clock.now_ms()) < deadline_ms:
            if not is_sent:
                chosen = self._pool.least_loaded_node(now_ms) if node_id is None else node_id
                if chosen is not None and self._pool.is_ready(chosen, now_ms):
                    self._pool.send(
                        chosen,
                        request,
                        on_done=lambda done, _: answers.append(done),
                        now_ms=now_ms,
                        timeout_ms=self._timeout_ms,
                        version=version,
                    )
                    is_sent = True
            for ended in self._pool.poll(deadline_ms - now_ms if is_sent else POLL_MS):
                ended.on_done(ended, now_ms)
            for answer in answers:
                if answer.error is not None:
                    raise answer.error
                self._timeout_ms = self._answer_ms
                return answer.response
            if self._pool.take_failures():
                members = self._pool.members
                if members.is_bootstrap_hopeless or (self._is_one_try and members.has_every_bootstrap_failed):
                    raise members.bootstrap_error()
                if not self._is_one_try:
                    self._warn_of_waiting()
        raise self._why_not(request, node_id)

    def _warn_of_waiting(self) -> None:
        """Log once why the first contact takes so long: a command would seem to hang."""
        if not self._has_warned and self._pool.members.bootstrap_failures():
            self._has_warned = True
            logger.warning("%s; retrying for %g s", self._pool.members.bootstrap_error(), self._timeout_ms / 1000)

    def _why_not(self, request: Request, node_id: int | None) -> KafkaError:
        reason = self._pool.members.why_not_connected()
        if reason is not None:
            return reason
        who = "any broker" if node_id is None else self._pool.members.name_of(node_id)
        return RequestTimedOutError(f"no answer to {type(request).__name__} from {who} within {self._timeout_ms} ms")
