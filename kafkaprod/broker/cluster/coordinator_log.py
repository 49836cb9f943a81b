"""The log of a coordinator in a cluster: appends in one leader epoch, and what waits for its replicas.

A coordinator changes its state at once and does not wait. Its answers wait (`CoordinatorGate`): each goes out once the
replicas have every record written before the answer, also the records that it reports. If another broker leads by then,
the answer is that error. The control thread owns the log; waiting happens in the event loop's purgatory.
Source: Kafka, CoordinatorRuntime (deferred events) and GroupMetadataManager.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.calls.request import Ready
from kafkaprod.broker.cluster.broker import Broker
from kafkaprod.broker.replication.partition import PartitionReplica
from kafkaprod.broker.storage.log.log_appends import AppendResult
from kafkaprod.broker.storage.log.partition_log import PartitionLog
from kafkaprod.broker.storage.log.segments import ReadResult
from kafkaprod.broker.storage.producers.producer_state import VerificationToken
from kafkaprod.errors import IllegalStateError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.structs import TopicPartition

COMMIT_TIMEOUT_MS = 5_000  # offsets.commit.timeout.ms

_FOREVER_MS = 1 << 40


class ReplicatedCoordinatorLog:
    """See the module docstring.

    Attributes:
        partition: Which one it is.
        latest_epoch: The leader epoch in which this broker coordinates.
        appended_offset: One past the last record that this coordinator has read or written.
    """

    def __init__(self, broker: Broker, partition: TopicPartition, log: PartitionLog, replica: PartitionReplica) -> None:
        """Wrap the log of a partition that this broker has begun to lead.

        Args:
            broker: Whose event loop and purgatory wait for the replicas.
            partition: The partition of the internal topic.
            log: Its log.
            replica: Its replica on this broker.
        """
        self.partition = partition
        self.latest_epoch = replica.leader_epoch
        self.appended_offset = log.log_end_offset
        self._broker = broker
        self._log = log
        self._replica = replica

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    @property
    def is_current(self) -> bool:
        """Whether this broker still leads in the epoch in which the coordinator was loaded. Thread-safe."""
        return self._replica.is_leader and self._replica.leader_epoch == self.latest_epoch

    def read(self, offset: int, max_bytes: int, upper_bound: int | None = None) -> ReadResult:
        return self._log.read(offset, max_bytes, upper_bound)

    def append_internal(
        self, records: bytearray | memoryview, leader_epoch: int, token: VerificationToken | None = None
    ) -> AppendResult:
        """Append in the epoch in which the coordinator was loaded.

        Raises:
            RequestRefusedError: NOT_COORDINATOR, another broker leads now; or COORDINATOR_NOT_AVAILABLE, too few
                replicas are in sync.
            LogError: As `PartitionLog.append_internal`, also RecordsRefusedError.
        """
        if not self.is_current:
            raise _moved()
        if self._replica.append_error(-1) != ErrorCode.NONE:
            raise RequestRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "Too few replicas are in sync.")
        try:
            result = self._log.append_internal(records, self.latest_epoch, token)
        except IllegalStateError as error:
            raise _moved() from error
        self.appended_offset = result.last_offset + 1
        self._broker.post(self._note_append)
        return result

    def commit(self, offset: int) -> None:
        """Sync as the flush policy demands; replicas are waited for when the answer is given."""
        self._log.commit(offset)

    def delete_records(self, offset: int) -> int:
        """See `PartitionLog`; waits until the replicas have what replaces those records.

        Raises:
            RequestRefusedError: NOT_COORDINATOR, another broker leads now; COORDINATOR_NOT_AVAILABLE, the replicas did
                not take it in time.
        """
        has_moved = threading.Event()
        deadline = time.monotonic() + COMMIT_TIMEOUT_MS / 1000
        self._log.watermark.listeners.append(lambda _: has_moved.set())
        try:
            while self._log.high_watermark < self.appended_offset:
                if not self.is_current:
                    raise _moved()
                if time.monotonic() >= deadline:
                    raise RequestRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "The replicas are too slow.")
                has_moved.wait(0.05)
                has_moved.clear()
        finally:
            self._log.watermark.listeners.pop()
        return self._log.delete_records(offset)

    def outcome(self, end_offset: int) -> ErrorCode | None:
        """Return NONE once the replicas have all below an offset, NOT_COORDINATOR if another leads, else None."""
        if not self.is_current:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE if self._log.high_watermark >= end_offset else None

    def when_replicated(self, call: Callable[[], None]) -> None:
        """Make a call on the control thread once the replicas have what was appended until now.

        It is not made if another broker leads before. From the control thread.
        """

        def settled(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._broker.run_control(call)

        self._watch(_FOREVER_MS, settled)

    def hold(self, ready: Ready, refusal: Callable[[ErrorCode], Ready], receiver: Callable[[Ready], None]) -> None:
        """Pass an answer on once the replicas have what was appended until now.

        Args:
            ready: The answer.
            refusal: Makes the answer of an error: NOT_COORDINATOR, another broker leads; COORDINATOR_NOT_AVAILABLE, the
                replicas did not take it in time.
            receiver: Takes the answer, from any thread.
        """
        if self.outcome(self.appended_offset) is ErrorCode.NONE:
            receiver(ready)
            return
        self._watch(COMMIT_TIMEOUT_MS, lambda error: receiver(ready if error is ErrorCode.NONE else refusal(error)))

    def _watch(self, timeout_ms: int, then: Callable[[ErrorCode], object]) -> None:
        """Call `then` in the event loop with what came of the appends until now."""
        end_offset = self.appended_offset
        deadline_ms = self._broker.clock.now_ms() + timeout_ms

        def try_complete(is_expired: bool) -> bool:
            outcome = self.outcome(end_offset)
            if outcome is None and is_expired:
                outcome = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if outcome is not None:
                then(outcome)
            return outcome is not None

        def watch() -> None:
            self._broker.purgatory.watch([self.partition], deadline_ms, try_complete)

        self._broker.post(watch)

    def _note_append(self) -> None:
        self._replica.advance_high_watermark()
        self._broker.purgatory.notify(self.partition)


def _moved() -> RequestRefusedError:
    return RequestRefusedError(ErrorCode.NOT_COORDINATOR, "Another broker is the coordinator now.")
