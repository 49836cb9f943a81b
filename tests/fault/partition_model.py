"""A partition's log as Kafka keeps it, as far as a producer can tell: order, sequences, the window of five batches."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkaprod._core.records.batch_reader import RecordBatchReader

WINDOW = 5
SEQUENCE_MASK = 0x7FFFFFFF
OUT_OF_ORDER, INVALID_EPOCH, UNKNOWN_PRODUCER = 45, 47, 59


class LoggedRecord(NamedTuple):
    """What the record checker wants to know."""

    offset: int
    key: bytes | None
    value: bytes | None


@dataclass
class ProducerState:
    """What a partition remembers of one producer id; (first, last sequence, base offset) of its last batches."""

    epoch: int
    last_sequence: int
    window: deque[tuple[int, int, int]] = field(default_factory=lambda: deque(maxlen=WINDOW))


@dataclass
class PartitionModel:
    """One partition.

    Attributes:
        refuses_unknown: Answer a producer that is not remembered with this code unless it starts at 0, as Kafka before
            2.5 did; 0: take any sequence from it, as Kafka does since.
    """

    leader: int
    leader_epoch: int = 0
    log: list[LoggedRecord] = field(default_factory=list)
    producers: dict[int, ProducerState] = field(default_factory=dict)
    refuses_unknown: int = 0

    def append(self, batch: RecordBatchReader) -> tuple[int, int]:
        """Append a batch, or find it written already; return (error code, base offset)."""
        if batch.base_sequence < 0:
            return 0, self._write(batch)
        first = batch.base_sequence
        last = (first + batch.record_count - 1) & SEQUENCE_MASK
        state = self.producers.get(batch.producer_id)
        if state is None:
            if self.refuses_unknown and first != 0:
                return self.refuses_unknown, -1
            state = self.producers[batch.producer_id] = ProducerState(batch.producer_epoch, last)
        else:
            if batch.producer_epoch < state.epoch:
                return INVALID_EPOCH, -1
            if batch.producer_epoch > state.epoch:
                if first != 0:
                    return OUT_OF_ORDER, -1
                state.epoch = batch.producer_epoch
                state.window.clear()
            else:
                for known_first, known_last, offset in state.window:
                    if (known_first, known_last) == (first, last):
                        return 0, offset
                if first != (state.last_sequence + 1) & SEQUENCE_MASK:
                    return OUT_OF_ORDER, -1
        offset = self._write(batch)
        state.last_sequence = last
        state.window.append((first, last, offset))
        return 0, offset

    def _write(self, batch: RecordBatchReader) -> int:
        offset = len(self.log)
        for index, record in enumerate(batch.records()):
            self.log.append(LoggedRecord(offset + index, record.key, record.value))
        return offset
