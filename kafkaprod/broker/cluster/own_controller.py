"""The controller of a broker alone, which is a cluster of one: called directly, in the broker's own process.

It is the controller of every cluster, without sockets and links: what clients change are records of a metadata log, and
the image that these add up to is all that the broker knows of its topics, settings and producer ids. The log is
`__cluster_metadata-0` of the broker's data directory. Of one thread: the control thread, once the broker has started.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from kafkaprod.broker.controller.controller import NO_LEVELS, Controller
from kafkaprod.broker.controller.disk_log import (
    DEFAULT_SNAPSHOT_BYTES,
    METADATA_CONFIG,
    METADATA_PARTITION,
    METADATA_TOPIC_ID,
    PartitionOfMetadata,
)
from kafkaprod.broker.controller.events import (
    AdoptTopic,
    ControllerEvent,
    Reply,
    SweepTokens,
)
from kafkaprod.broker.controller.requests import on_request
from kafkaprod.broker.controller.wire import error_of, listeners_of, supported_features
from kafkaprod.broker.listeners import Endpoint
from kafkaprod.broker.metadata.image import ClusterImage
from kafkaprod.broker.metadata.tokens import TokenConfig
from kafkaprod.broker.storage.errors import LogError
from kafkaprod.broker.storage.log.log_dir import LogDir
from kafkaprod.clock import Clock
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kafkaprod.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from kafkaprod.protocol.messages.broker_registration import BrokerRegistrationRequest, Listener
from kafkaprod.protocol.schema import Request, Response

logger = logging.getLogger(__name__)

_FAILURES = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR)
_FOREVER_MS = 1 << 40  # the broker's session: both are one process


class OwnController:
    """See the module docstring.

    Attributes:
        image: What the log adds up to; the broker reads the controller's.
        on_change: Called with the image after each change.
    """

    def __init__(
        self,
        log_dir: LogDir,
        clock: Clock,
        endpoints: Mapping[str, Endpoint],
        protocols: Mapping[str, str],
        levels: Mapping[str, int] = NO_LEVELS,
        tokens: TokenConfig | None = None,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> None:
        """Read the log, or make it, and register the broker.

        Args:
            log_dir: The log directory of the broker; its partitions need not be open yet.
            clock: Gives the times in the log.
            endpoints: Where clients reach the broker, by the listener's name.
            protocols: The protocols of the listeners, by name.
            levels: Levels of features that are set with this start.
            tokens: Options of delegation tokens; None: there are none.
            snapshot_bytes: What the log grows by before the next snapshot, at least.

        Raises:
            CorruptDataError: A record is not known.
            LogError: The disk refused, or the log is damaged.
        """
        self.on_change: Callable[[ClusterImage], object] = lambda _: None
        self._clock = clock
        self._node_id = log_dir.identity.node_id
        self._log = _open_log(log_dir, clock, snapshot_bytes)
        cluster_id = log_dir.identity.cluster_id
        self._controller = Controller(
            cluster_id,
            session_timeout_ms=_FOREVER_MS,
            seed=uuid.uuid4().int,
            now_ms=clock.now_ms(),
            batches=tuple(self._log.batches()),
            snapshot=self._log.snapshot,
            persist=lambda batch, _: self._log.append(batch),
            voter_id=self._node_id,
            levels=levels,
            tokens=tokens,
        )
        self._log.snapshot = None
        self.image = self._controller.context.image
        self._register(cluster_id, listeners_of(endpoints, protocols))
        self.sync()

    @property
    def epoch(self) -> int:
        """The controller's epoch: one more with each start."""
        return self._controller.epoch

    def ask(self, request: Request, *, is_synced: bool = True) -> Response | None:
        """Return the answer to a request that brokers of a cluster send their controller.

        Args:
            request: See `controller.requests`.
            is_synced: The change is on the disk; else `sync` must be called before a client hears of it.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the change could not be synced; no further one is possible.
        """
        answers: list[Response] = []
        on_request(self._controller, request, self._clock.now_ms(), answers.append)
        self._run()
        if is_synced:
            self.sync()
        return answers[0] if answers else None

    def close(self) -> None:
        """Wait for what is being written; before the log directory is closed."""
        self._log.await_snapshot()

    def sync(self) -> None:
        """Bring all changes to the disk.

        Raises:
            LogError: As `ask`.
        """
        self._log.sync()

    def add_topic(self, name: str, topic_id: uuid.UUID, partition_count: int, options: Mapping[str, str]) -> None:
        """Take a topic over that has its id and its data already; `sync` must be called.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused.
        """
        assignment = ((self._node_id,),) * partition_count
        self._put(lambda reply: AdoptTopic(name, topic_id, assignment, dict(options), reply))

    def producer_ids(self, least_id: int = 0) -> tuple[int, int]:
        """Return the first id of a block that was never given out, and how many are in it.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; the block must not be used.
        """
        self._controller.context.least_producer_id = least_id
        epoch = self.image.brokers[self._node_id].epoch
        block = self._written(AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=epoch))
        self.sync()
        return block.producer_id_start, block.producer_id_len

    def sweep_tokens(self) -> None:
        """Remove delegation tokens that are over.

        Raises:
            LogError: KAFKA_STORAGE_ERROR, the disk refused; they stay.
        """
        self._put(SweepTokens)

    def _register(self, cluster_id: str, listeners: list[Listener]) -> None:
        """Register this process, whatever the last one of the directory did: no other has led its partitions."""
        known = self.image.brokers.get(self._node_id)
        self._controller.context.sessions.pop(self._node_id, None)
        registered = self._written(
            BrokerRegistrationRequest(
                broker_id=self._node_id,
                cluster_id=cluster_id,
                incarnation_id=uuid.uuid4(),
                listeners=listeners,
                features=supported_features(),
                previous_broker_epoch=-1 if known is None else known.epoch,
            )
        )
        self._written(
            BrokerHeartbeatRequest(
                broker_id=self._node_id,
                broker_epoch=registered.broker_epoch,
                current_metadata_offset=self.image.end_offset,
            )
        )

    def _written(self, request: Request) -> Any:
        """Return the answer to a request of the broker itself. Raises LogError: it could not be written down."""
        answer: Any = self.ask(request, is_synced=False)
        if answer.error_code in _FAILURES:
            raise LogError(error_of(answer.error_code), "the metadata cannot be written")
        return answer

    def _put(self, make: Callable[[Reply], ControllerEvent]) -> Any:
        """Return the answer to an event. Raises LogError: it could not be written down."""
        answers: list[Any] = []
        self._controller.queue.put(make(answers.append), self._clock.now_ms())
        self._run()
        if isinstance(answers[0], ErrorCode):
            raise LogError(answers[0], "the metadata cannot be written")
        return answers[0]

    def _run(self) -> None:
        """Handle all events that are due."""
        before, is_left = self.image.end_offset, True
        self._controller.context.wall_offset_ms = self._clock.wall_ms() - self._clock.now_ms()
        while is_left:
            try:
                is_left = self._controller.turn(self._clock.now_ms())
            except LogError as error:  # the event is answered
                logger.error("a change of the metadata was refused: %s", str(error))  # not its frames, with the lock
        self._log.maybe_snapshot(self.image, self._controller.log.last_epoch)
        self._controller.log.forget()
        if self.image.end_offset != before:
            self.on_change(self.image)


def _open_log(log_dir: LogDir, clock: Clock, snapshot_bytes: int) -> PartitionOfMetadata:
    log = _open(log_dir, clock, snapshot_bytes)
    if log.is_of_kafka:
        logger.warning("%r has the metadata log of Apache Kafka, which is set aside: options are lost", log_dir.path)
        log_dir.set_aside(METADATA_PARTITION)
        log = _open(log_dir, clock, snapshot_bytes)
    return log


def _open(log_dir: LogDir, clock: Clock, snapshot_bytes: int) -> PartitionOfMetadata:
    log = log_dir.open_first(METADATA_PARTITION, METADATA_TOPIC_ID, METADATA_CONFIG)
    return PartitionOfMetadata(log, clock, log_dir.environment.disk, snapshot_bytes)
