"""The states of all transactional ids, kept on disk as the internal topic `__transaction_state`.

A state is appended (and synced, if the flush policy syncs before answers) before it takes effect. At start the log is
read from its start; the last state of an id counts. New data directories have one partition; of a directory that a
Kafka broker wrote all are used, with Kafka's rule for which id is where. The control thread owns it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from kafkaprod.broker.coordinator.internal_log import CoordinatorLog, InternalLog, LoggedRecord
from kafkaprod.broker.coordinator.transaction import (
    LAST_EPOCH,
    TV2,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
)
from kafkaprod.broker.coordinator.transaction_records import decode_transaction, encode_key, encode_transaction
from kafkaprod.storage.internal_records import NOT_TRANSACTIONAL, KeyValue

TRANSACTIONS_TOPIC = "__transaction_state"

_DECIDED = {
    TransactionState.PREPARE_COMMIT: True,
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.PREPARE_ABORT: False,
    TransactionState.COMPLETE_ABORT: False,
}
_STATE_BYTES = 256  # about what one state takes in the log


class TransactionLog:
    """See the module docstring.

    Attributes:
        states: By transactional id; read it freely, change it through `write` and `remove` only.
        coordinator_epoch: Goes into the markers.
    """

    def __init__(
        self, logs: Sequence[CoordinatorLog], make_log: Callable[[], CoordinatorLog], find_level: Callable[[], int]
    ) -> None:
        """Read the logs.

        Args:
            logs: The partitions in order; empty if there are none yet.
            make_log: Makes the only one, at the first write.
            find_level: Returns the level of the feature transaction.version; it decides the format of records.

        Raises:
            LogError: CORRUPT_MESSAGE, a log is damaged.
            CorruptDataError: A record is.
        """
        self.states: dict[str, Transaction] = {}
        self.coordinator_epoch = max((log.latest_epoch for log in logs), default=0)
        self.coordinator_epoch = max(self.coordinator_epoch, 0)
        self._find_level = find_level
        self._logs = [InternalLog(log, make_log) for log in logs] or [InternalLog(None, make_log)]
        for transactional_id, state in self._replay():
            if state is not None:
                self.states[transactional_id] = state
            else:
                self.states.pop(transactional_id, None)

    @property
    def level(self) -> int:
        """The level of the feature transaction.version now."""
        return self._find_level()

    def write(self, after: Transaction) -> None:
        """Make a state durable, then visible.

        Raises:
            LogError: The log takes no appends; the states are unchanged.
        """
        record = encode_transaction(after, self.level)
        self._logs[self._partition_of(after.transactional_id)].append([record], after.last_update_ms)
        self.states[after.transactional_id] = after

    def remove(self, transactional_ids: Iterable[str], now_ms: int) -> None:
        """Forget ids. `now_ms` by the wall clock.

        Raises:
            LogError: The log takes no appends; some may be forgotten.
        """
        by_partition: dict[int, list[str]] = defaultdict(list)
        for transactional_id in transactional_ids:
            by_partition[self._partition_of(transactional_id)].append(transactional_id)
        for partition, ids in by_partition.items():
            self._logs[partition].append([(encode_key(transactional_id), None) for transactional_id in ids], now_ms)
            for transactional_id in ids:
                del self.states[transactional_id]

    def find_outcomes(self, producers: Collection[ProducerIdAndEpoch]) -> dict[ProducerIdAndEpoch, bool]:
        """Whether the transactions of these producers were committed, as far as the log still knows it.

        Only TV2 has an epoch for each transaction, so only its outcomes are certain.

        Raises:
            LogError, CorruptDataError: As when the log was read first.
        """
        found: dict[ProducerIdAndEpoch, bool] = {}
        for _, state in self._replay() if producers else ():
            if state is None or state.client_version < TV2 or state.state not in _DECIDED:
                continue
            is_rotated = state.epoch == 0
            producer = (
                ProducerIdAndEpoch(state.previous_producer_id, LAST_EPOCH)
                if is_rotated
                else ProducerIdAndEpoch(state.producer_id, state.epoch - 1)
            )
            if producer in producers:
                found[producer] = _DECIDED[state.state]
        return found

    def maybe_compact(self, now_ms: int) -> bool:
        """Rewrite the logs that are mostly out of date; return whether there was one.

        Raises:
            LogError: A log takes no appends; it is as it was, or longer.
        """
        is_done = False
        for partition, log in enumerate(self._logs):
            states = [state for key, state in self.states.items() if self._partition_of(key) == partition]
            if log.is_outgrown(_STATE_BYTES * len(states)):
                log.rewrite([(NOT_TRANSACTIONAL, map(self._encode, states))], now_ms)
                is_done = True
        return is_done

    def _encode(self, state: Transaction) -> KeyValue:
        return encode_transaction(state, self.level)

    def _replay(self) -> Iterator[tuple[str, Transaction | None]]:
        for log in self._logs:
            for entry in log.replay():
                decoded = decode_transaction(entry.key, entry.value) if isinstance(entry, LoggedRecord) else None
                if decoded is not None:
                    yield decoded

    def _partition_of(self, transactional_id: str) -> int:
        return abs(_java_hash(transactional_id)) % len(self._logs)


def _java_hash(text: str) -> int:
    """Java's String.hashCode, with 0 for the one value that has no absolute one."""
    total = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        total = (31 * total + (high << 8 | low)) & 0xFFFFFFFF
    signed = total - (1 << 32) if total & 0x80000000 else total
    return 0 if signed == -(1 << 31) else signed
