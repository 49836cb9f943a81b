"""Gives each node the batches that are ready for it, as far as its path carries them. Sender thread only."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kafkaprod._core.queues.placement import Placement
from kafkaprod._core.requests.drain import Drain
from kafkaprod._core.requests.node_path import NodePath
from kafkaprod._core.requests.produce_request import ProduceRequest
from kafkaprod.clock import monotonic_ns
from kafkaprod.config import ProducerConfig
from kafkaprod.engine.answers import LAST_VERSION_BY_NAME, Answers
from kafkaprod.engine.identity import MAX_WAIT_MS, Identity
from kafkaprod.engine.node_states import NodeStates
from kafkaprod.engine.paths import Paths
from kafkaprod.engine.upkeep import Upkeep
from kafkaprod.errors import UnsupportedVersionError
from kafkaprod.metadata import Metadata
from kafkaprod.metrics import ProducerMetrics
from kafkaprod.net.pool import NodePool
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.in_flight import OnDone

if TYPE_CHECKING:
    from kafkaprod.spool.spooling import Spool

LOAD_UPDATE_MS: Final = 10  # how often the sticky partitioners get the queue lengths


logger = logging.getLogger("kafkaprod.engine.sending")


class Sending:
    """The part of a turn that sends.

    Args:
        config, drain, placement, pool, metadata, metrics, identity, upkeep, answers, paths, states, spool: The parts of
            the engine.

    Attributes:
        unsent: A request that was drained, and not given to the pool yet.
    """

    def __init__(
        self,
        config: ProducerConfig,
        drain: Drain,
        placement: Placement,
        pool: NodePool,
        metadata: Metadata,
        metrics: ProducerMetrics,
        identity: Identity,
        upkeep: Upkeep,
        answers: Answers,
        paths: Paths,
        states: NodeStates,
        spool: Spool | None = None,
    ) -> None:
        self._config = config
        self._drain = drain
        self._placement = placement
        self._pool = pool
        self._metadata = metadata
        self._metrics = metrics
        self._identity = identity
        self._upkeep = upkeep
        self._answers = answers
        self._paths = paths
        self._states = states
        self._spool = spool
        self._next_load_update_ms = 0
        self._blocked: set[int] = set()  # nodes that cannot be sent to, or not yet
        self.unsent: ProduceRequest | None = None

    def send_ready(self, now_us: int) -> float:
        """Send to every node that is ready and has batches due; return in how many ms to check again."""
        now_ms = now_us // 1000
        if now_ms >= self._states.next_ms:
            self._states.look(now_ms)
        store_ms = MAX_WAIT_MS if self._spool is None else self._spool.store(now_us, self._pool)
        ready, unknown = self._drain.ready(now_us)
        for topic in unknown:
            self._metadata.request_update()
            self._upkeep.fail_removed_partitions(topic)
        if now_ms >= self._next_load_update_ms:
            self._placement.update_loads()
            self._next_load_update_ms = now_ms + LOAD_UPDATE_MS
        wait_ms = min(max(self._drain.next_check_us - now_us, 0) / 1000, store_ms)
        if unknown:
            # Now, or in how long it can be sent: one that waits for a connection must not keep the loop awake.
            wait_ms = min(wait_ms, self._upkeep.refresh_metadata(now_ms))
        if self._drain.wants_epoch or self._drain.has_new_members:
            wait_ms = 0
        may_send = self._spool is None or self._spool.may_send
        if may_send and self._identity.may_drain() and self.unsent is None:
            for node_id in ready:
                wait_ms = min(wait_ms, self._send_to(node_id, now_ms))
        self._end_turn(ready, now_us)
        return min(wait_ms, self._states.next_ms - now_ms)  # a silent broker does not end the poll

    def _end_turn(self, ready: list[int], now_us: int) -> None:
        """Let records without a key avoid the nodes that cannot be sent to."""
        for node_id in self._blocked.difference(ready):
            if self._can_send(node_id, self._paths.to(node_id), now_us // 1000):
                self._blocked.discard(node_id)
        self._drain.end_turn(now_us, self._blocked)

    def _can_send(self, node_id: int, path: NodePath | None, now_ms: int) -> bool:
        return self._pool.is_ready(node_id, now_ms) and (path is None or path.may_send())

    def _send_to(self, node_id: int, now_ms: int) -> float:
        """Send what a node has, as far as its path allows; return in how many ms to check it again."""
        path = self._paths.to(node_id)
        endings = self._answers.endings
        is_alone = endings.sends_alone(node_id, now_ms)
        room_bytes = 0
        can_send = self._can_send(node_id, path, now_ms)
        if path is not None:
            most_bytes = path.most_batch_bytes()
            if is_alone:
                limit_bytes = endings.most_batch_bytes(node_id)
                most_bytes = min(most_bytes or limit_bytes, limit_bytes)
            self._drain.limit_path(node_id, most_bytes, is_alone or path.answered_ms >= 0)
        if not can_send:
            self._states.on_blocked(node_id, now_ms)
            if path is not None:
                path.on_waiting()
        self._blocked.add(node_id)
        while can_send:
            if path is not None:
                distance_ms = path.wait_ms(now_ms)
                if distance_ms and self._drain.may_wait(node_id, now_ms):
                    return distance_ms
                room_bytes = 1 if is_alone else path.room_bytes()
            started_ns = monotonic_ns()
            request = self.unsent = self._drain.drain(node_id, now_ms, room_bytes)
            if request is None:
                self._blocked.discard(node_id)
                return MAX_WAIT_MS
            seal_us = (monotonic_ns() - started_ns) // 1000
            if self._spool is not None and not self._may_send(request, now_ms):
                return self._config.retry_backoff_ms
            self._send(request, self._answers.expect(request), now_ms, seal_us)
            self.unsent = None
            can_send = self._can_send(node_id, path, now_ms)
            if path is not None and not can_send and self._drain.has_queued(node_id):
                path.on_waiting()
        return self._pool.ready_delay_ms(node_id, now_ms) or MAX_WAIT_MS

    def _may_send(self, request: ProduceRequest, now_ms: int) -> bool:
        """Have the spool note the producer ids of a request; if that fails its batches go back into their queues."""
        assert self._spool is not None
        try:
            self._spool.allow(request)
        except OSError as error:
            logger.warning(
                "a request to node %d is not sent, as the spool cannot be written: %s", request.node_id, error
            )
            self._answers.take_back(request, now_ms)
            self.unsent = None
            return False
        return True

    def _send(self, request: ProduceRequest, on_done: OnDone, now_ms: int, seal_us: int) -> None:
        node_id = request.node_id
        lowest, highest = self._identity.produce_versions
        if not request.all_topic_ids_known:
            highest = min(highest, LAST_VERSION_BY_NAME)
        version = self._pool.api_version(node_id, ApiKey.PRODUCE, lowest, highest)
        if version is None:
            what = f"{self._pool.members.name_of(node_id)} supports no Produce version of {lowest}..{highest}"
            self._answers.refuse(request, UnsupportedVersionError(what), now_ms)
            return
        body = request.body(
            version, self._config.acks, self._config.request_timeout_ms, self._identity.transactional_id
        )
        sums = request.sums(now_ms)
        self._metrics.on_request(node_id, sums, body.nbytes, now_ms, seal_us)
        self._pool.send_body(
            node_id,
            ApiKey.PRODUCE,
            version,
            [body],
            body.nbytes,
            on_done=on_done,
            now_ms=now_ms,
            timeout_ms=self._config.request_timeout_ms,
            expects_response=self._config.acks != 0,
            max_response_bytes=request.max_response_bytes,
        )
        self._answers.endings.on_sent(request, body.nbytes)
        self._paths.on_sent(request, body.nbytes, sums.size_bytes, now_ms)
