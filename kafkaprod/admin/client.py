"""One request after the other to a cluster, each waited for.

Not on a record's line: the loader asks before and after it, the commands instead of it. Not thread-safe.
"""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any, Final, Self

from kafkaprod.clock import SystemClock
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.wiring import connection_settings
from kafkaprod.errors import ConnectionLostError, KafkaError, RequestTimedOutError
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.in_flight import InFlightRequest
from kafkaprod.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kafkaprod.protocol.schema import Request
from kafkaprod.structs import Node

POLL_MS: Final = 50
MAX_TRIES: Final = 5

_log = logging.getLogger("kafkaprod.admin")


class ClusterClient:
    """Asks brokers. Close it, or use it in a `with` statement.

    Args:
        config: Its connection options are used: addresses, TLS, login, timeouts.
        timeout_ms: How long to wait for a connection, and for each answer; None: request_timeout_ms.
    """

    def __init__(self, config: ProducerConfig, timeout_ms: int | None = None) -> None:
        self._clock = SystemClock()
        self._timeout_ms = config.request_timeout_ms if timeout_ms is None else timeout_ms
        self._pool = NodePool(connection_settings(config), self._clock)
        self._pool.set_bootstrap(config.bootstrap_servers)
        self._has_told = False
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
        """Metadata of some topics, or of all (None).

        Args:
            topics: Their names.
            operations: Ask what this user may do with them, too.
            creates: Let the broker make those that are missing, if it does such things.
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
            KafkaError: As NodePool.send.
        """
        for attempt in range(MAX_TRIES):
            try:
                return self._ask_once(request, node_id, version)
            except ConnectionLostError:
                if attempt == MAX_TRIES - 1:
                    raise
        raise AssertionError("not reached")

    def wait(self, wait_ms: int) -> None:
        """Let some time pass, in which connections are looked after."""
        deadline_ms = self._clock.now_ms() + wait_ms
        while (now_ms := self._clock.now_ms()) < deadline_ms:
            self._pool.poll(deadline_ms - now_ms)

    def api_versions(self, api_key: int) -> tuple[int, int] | None:
        """Versions of an API that a broker which was asked something announced; None: none."""
        for node_id in self._pool.node_ids():
            versions = self._pool.versions(node_id)
            if versions is not None:
                return versions.ranges.get(api_key)
        return None

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
                return answer.response
            if self._pool.take_failures():
                if self._pool.is_bootstrap_hopeless:
                    raise self._pool.bootstrap_error()
                self._tell_of_waiting()
        raise self._why_not(request, node_id)

    def _tell_of_waiting(self) -> None:
        """Once: somebody at a terminal should not have to guess what takes so long."""
        if not self._has_told and self._pool.bootstrap_failures():
            self._has_told = True
            _log.warning("%s; trying again for %g s", self._pool.bootstrap_error(), self._timeout_ms / 1000)

    def _why_not(self, request: Request, node_id: int | None) -> KafkaError:
        if self._pool.bootstrap_failures():
            return self._pool.bootstrap_error()
        who = "any broker" if node_id is None else f"node {node_id}"
        return RequestTimedOutError(f"no answer to {type(request).__name__} from {who} within {self._timeout_ms} ms")
