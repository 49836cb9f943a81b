"""A channel to each registered broker: pushes the metadata log in slices, each once and in order.

One slice is in flight at a time. After a loss or a timeout the same slice is sent again, and to a broker that does not
know of its registration yet, whose answer travels another way. A broker that does not hold what comes before the slice
gets the log from its start; if that is not offset 0, a snapshot comes before it, in parts. A channel ends with the
registration that it belongs to.
Pure state: time is an argument. Source: the roles of Kafka's ControllerChannelManager and RequestSendThread.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkaprod.broker.metadata.follower import MetadataSlice, SliceAnswer, SnapshotPart
from kafkaprod.broker.metadata.log import NO_EPOCH, MetadataBatch, MetadataLog, MetadataSnapshot
from kafkaprod.protocol.error_codes import ErrorCode

MAX_SLICE_RECORDS: Final = 10_000
KEEP_ALIVE_MS: Final = 2_000
"""Between slices without records. Nothing depends on them: what was lost is sent again, and brokers beat."""
RETRY_MS: Final = 100
TIMEOUT_MS: Final = 2000


class BrokerChannel:
    """See the module docstring.

    Attributes:
        broker_id: Whom it leads to.
        broker_epoch: The registration it belongs to.
        next_offset: The first record that the broker has not confirmed.
        is_ended: The broker refused it for good: it follows a newer controller.
    """

    def __init__(self, broker_id: int, broker_epoch: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.next_offset = 0
        self.is_ended = False
        self._snapshot: MetadataSnapshot | None = None  # until the broker has confirmed all of it
        self._next_record = 0  # of it
        self._in_flight: MetadataSlice | None = None
        self._send_at_ms = 0
        self._lost_at_ms = 0

    def next_slice(
        self,
        log: MetadataLog,
        controller_epoch: int,
        commit_offset: int,
        now_ms: int,
        take_snapshot: Callable[[], MetadataSnapshot],
    ) -> MetadataSlice | None:
        """Return what to send now, None if nothing is due; then it is in flight.

        Args:
            log: The log.
            controller_epoch: The epoch of this controller.
            commit_offset: How much of the log is committed.
            now_ms: The time.
            take_snapshot: Makes a snapshot, at the end of the log or at its start.
        """
        if self.is_ended:
            return None
        if self._in_flight is not None:
            if now_ms < self._lost_at_ms:
                return None
            self.on_lost(now_ms)
        if now_ms < self._send_at_ms:
            return None
        if self.next_offset < log.start_offset:
            self._snapshot = self._snapshot or take_snapshot()
            self._in_flight = self._part_of(self._snapshot, controller_epoch, commit_offset)
            self._lost_at_ms, self._send_at_ms = now_ms + TIMEOUT_MS, now_ms
            return self._in_flight
        batches = tuple(log.read(self.next_offset, MAX_SLICE_RECORDS))
        self._in_flight = MetadataSlice(
            controller_epoch,
            self.broker_epoch,
            self.next_offset,
            log.epoch_before(self.next_offset),
            commit_offset,
            batches,
        )
        self._lost_at_ms = now_ms + TIMEOUT_MS
        # Set on sending, not on the answer: records appended meanwhile must go out at once, and `wake` reports those.
        is_all = not batches or batches[-1].end_offset == log.end_offset
        self._send_at_ms = now_ms + KEEP_ALIVE_MS if is_all else now_ms
        return self._in_flight

    def _part_of(self, snapshot: MetadataSnapshot, controller_epoch: int, commit_offset: int) -> MetadataSlice:
        end_offset, epoch, records = snapshot
        first = self._next_record
        batch = MetadataBatch(first, epoch, records[first : first + MAX_SLICE_RECORDS])
        part = SnapshotPart(end_offset, epoch, first, len(records))
        return MetadataSlice(controller_epoch, self.broker_epoch, 0, NO_EPOCH, commit_offset, (batch,), part)

    def wake(self, now_ms: int) -> None:
        """Send as soon as nothing is in flight: the log has grown."""
        self._send_at_ms = min(self._send_at_ms, now_ms)

    def on_answer(self, sent: MetadataSlice, answer: SliceAnswer, now_ms: int) -> None:
        """Take a broker's answer to a slice; one to an older slice is ignored."""
        if sent is not self._in_flight:
            return
        self._in_flight = None
        if answer.error == ErrorCode.NONE and sent.part is not None:
            self._next_record = sent.batches[0].end_offset
            if self._next_record == sent.part.total:
                self.next_offset = sent.part.end_offset
                self._snapshot, self._next_record = None, 0
        elif answer.error == ErrorCode.NONE:
            self.next_offset = answer.end_offset
        elif answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            self.next_offset = self._next_record = 0  # the broker passes over what it holds already
            self._snapshot = None
            self._send_at_ms = now_ms
        elif answer.error == ErrorCode.STALE_CONTROLLER_EPOCH:
            self.is_ended = True
        else:  # STALE_BROKER_EPOCH: the broker has another epoch, maybe only until it learns of this one
            self._send_at_ms = now_ms + RETRY_MS

    def on_lost(self, now_ms: int) -> None:
        """The slice or its answer was lost: send the same again soon."""
        if self._in_flight is not None:
            self._in_flight = None
            self._send_at_ms = now_ms + RETRY_MS

    def next_deadline_ms(self) -> int:
        """Return when `next_slice` has something to say next."""
        return self._send_at_ms if self._in_flight is None else self._lost_at_ms
