"""Which broker of a cluster coordinates groups: the leader of `__consumer_offsets`, partition 0.

A new leader reads the log, then answers; meanwhile clients get 14. A broker that leads no more forgets what it knew,
and answers 16. A commit is answered when the high watermark covers it (KAFKA-20634). Classic groups live in memory:
their members join again at the new coordinator; committed offsets and groups of the consumer protocol are in the log.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable
from enum import Enum

from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.coordinator.offset_log import OFFSETS_TOPIC
from kafkaprod.broker.metadata.image import PartitionKey
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.broker.server.refusal import RequestRefusedError
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import ReadResult
from kafkaprod.errors import IllegalStateError, KafkaError
from kafkaprod.protocol.api_keys import ApiKey
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

COMMIT_TIMEOUT_MS = 5_000  # offsets.commit.timeout.ms

GROUP_APIS = frozenset(
    {
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.DELETE_GROUPS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.OFFSET_DELETE,
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
    }
)


class Role(Enum):
    """Whether a broker coordinates groups."""

    OTHER = "another broker does"
    LOADING = "it reads the log"
    COORDINATOR = "it does"


_REFUSALS = {
    Role.OTHER: ErrorCode.NOT_COORDINATOR,
    Role.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Role.COORDINATOR: ErrorCode.NONE,
}


class ReplicatedCoordinatorLog:
    """The log of a coordinator in a cluster: appends in one leader epoch, and waits for the replicas.

    The control thread owns it.
    """

    def __init__(self, broker: Broker, partition: TopicPartition, log: PartitionLog, replica: PartitionReplica) -> None:
        self._broker = broker
        self._partition = partition
        self._log = log
        self._replica = replica
        self.latest_epoch = replica.leader_epoch
        self._has_moved = threading.Event()
        log.watermark.listeners.append(lambda _: self._has_moved.set())

    @property
    def log_start_offset(self) -> int:
        """See `PartitionLog`."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """See `PartitionLog`."""
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        """See `PartitionLog`."""
        return self._log.size_bytes

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None) -> ReadResult:
        """See `PartitionLog`."""
        return self._log.read(offset, max_bytes, upper_bound)

    def append_internal(self, records: bytearray | memoryview, leader_epoch: int) -> AppendResult:
        """Append in the epoch in which the coordinator was loaded.

        Raises:
            RequestRefusedError: 16, another broker leads now; or 19, too few replicas are in sync.
            LogError: As `PartitionLog.append_internal`.
        """
        self._check_leads()
        if self._replica.append_error(-1) != ErrorCode.NONE:
            raise RequestRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Too few replicas are in sync.")
        try:
            result = self._log.append_internal(records, self.latest_epoch)
        except IllegalStateError as error:
            raise _moved() from error
        self._broker.post(self._note_append)
        return result

    def commit(self, offset: int) -> None:
        """Wait until the high watermark covers what was appended.

        Raises:
            RequestRefusedError: 16, another broker leads now; 15, the replicas did not take it in time.
            PartitionFencedError: As `PartitionLog.commit`.
        """
        self._log.commit(offset)
        deadline = time.monotonic() + COMMIT_TIMEOUT_MS / 1000
        while True:
            self._has_moved.clear()
            if self._log.high_watermark >= offset:
                return
            self._check_leads()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise RequestRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The replicas did not take it in time.")
            self._has_moved.wait(min(left_s, 0.05))

    def delete_records(self, offset: int) -> int:
        """See `PartitionLog`."""
        return self._log.delete_records(offset)

    def _check_leads(self) -> None:
        if not self._replica.is_leader or self._replica.leader_epoch != self.latest_epoch:
            raise _moved()

    def _note_append(self) -> None:
        self._replica.advance_high_watermark()
        self._broker.purgatory.notify(self._partition)


class Coordination:
    """See the module docstring. The event loop owns it, except `refusal`, which any thread may call."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._epoch = -1
        self._role = Role.OTHER

    def refusal(self, api: ApiKey) -> ErrorCode:
        """Return why this broker does not answer a request of a group, NONE if it does."""
        return _REFUSALS[self._role] if api in GROUP_APIS else ErrorCode.NONE

    def on_metadata(self, changed: Iterable[PartitionKey]) -> None:
        """Take groups over, or let go of them, when the leader of their log has changed."""
        image = self._broker.image
        topic_id = None if image is None else image.topic_ids.get(OFFSETS_TOPIC)
        if topic_id is None or (topic_id, 0) not in changed:
            return
        partition = self._broker.topics.partition(OFFSETS_TOPIC, 0)
        replica = None if partition is None else partition.replica
        if partition is None or replica is None or not replica.is_leader:
            if self._role is not Role.OTHER:
                self._role, self._epoch = Role.OTHER, -1
                self._broker.run_control(lambda: self._broker.open_groups(None), _nothing)
        elif replica.leader_epoch != self._epoch:
            self._role, self._epoch = Role.LOADING, replica.leader_epoch
            log = ReplicatedCoordinatorLog(self._broker, TopicPartition(OFFSETS_TOPIC, 0), partition.log, replica)
            self._broker.run_control(lambda: self._load(log), lambda: self._loaded(log.latest_epoch))

    def _load(self, log: ReplicatedCoordinatorLog) -> None:
        try:
            self._broker.open_groups(log)
        except KafkaError:
            logger.exception("the groups cannot be read from %s", OFFSETS_TOPIC)
            self._broker.open_groups(None)

    def _loaded(self, epoch: int) -> None:
        if self._epoch == epoch and self._role is Role.LOADING:
            self._role = Role.COORDINATOR


def _moved() -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.NOT_COORDINATOR, "Another broker coordinates groups now.")


def _nothing() -> None:
    """Takes the place of a call that is not needed."""
