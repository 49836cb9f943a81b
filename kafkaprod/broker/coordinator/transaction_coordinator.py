"""All transactional ids of the broker: finds the one a request names, writes what changes, has markers written.

    request -> transition (`transaction`) -> log -> answer    decided: markers -> Complete* in the log

An answer to EndTxn goes out when the decision is durable; the markers follow on the same thread, before the next
request. The control thread owns it; it calls `on_time` at `next_deadline_ms`. Times are wall clock ms, but those of
deadlines are monotonic. Source: Kafka, TransactionCoordinator, TransactionStateManager,
TransactionMarkerChannelManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kafkaprod.broker.calls.limits import MAX_ID_CHARS
from kafkaprod.broker.calls.refusal import RequestRefusedError
from kafkaprod.broker.coordinator import transaction as rules
from kafkaprod.broker.coordinator.markers import FINAL_ERRORS, Marker, MarkerSink
from kafkaprod.broker.coordinator.transaction import (
    AT_REST,
    PREPARED,
    TV2,
    ProducerIdAndEpoch,
    Transaction,
    TransactionState,
    Transition,
)
from kafkaprod.broker.coordinator.transaction_log import TransactionLog
from kafkaprod.errors import ConfigError, KafkaError
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_header import NO_PRODUCER_EPOCH
from kafkaprod.structs import TopicPartition

logger = logging.getLogger(__name__)

RunOnControl = Callable[[Callable[[], None]], None]
"""Have the control thread make a call, after the present one and before later requests."""


@dataclass(frozen=True, slots=True)
class TransactionConfig:
    """Options of the transaction coordinator.

    Attributes:
        version: Level that the feature transaction.version gets at the start of a broker alone, 0 to 2; None leaves it.
        max_timeout_ms: transaction.max.timeout.ms.
        timeout_check_ms: transaction.abort.timed.out.transaction.cleanup.interval.ms.
        id_expiration_ms: transactional.id.expiration.ms; ids not used for this time are forgotten.
        expiration_check_ms: transaction.remove.expired.transaction.cleanup.interval.ms.
    """

    version: int | None = None
    max_timeout_ms: int = 900_000
    timeout_check_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    expiration_check_ms: int = 3_600_000

    def __post_init__(self) -> None:
        if self.version is not None and not 0 <= self.version <= TV2:
            raise ConfigError(f"transaction_version={self.version} is not in 0..{TV2}")
        for name in ("max_timeout_ms", "timeout_check_ms", "id_expiration_ms", "expiration_check_ms"):
            if getattr(self, name) < 1:
                raise ConfigError(f"transactions: {name}={getattr(self, name)} must be at least 1")


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition, as the partition's log knows it."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch


class TransactionCoordinator:
    """See the module docstring.

    Args:
        config: The configuration of all ids.
        log: Their states.
        new_producer_id: Gives out a fresh one; raises OSError if it cannot.
        markers: Writes markers.
        run_later: See `RunOnControl`.
    """

    def __init__(
        self,
        config: TransactionConfig,
        log: TransactionLog,
        new_producer_id: Callable[[], int],
        markers: MarkerSink,
        run_later: RunOnControl,
    ) -> None:
        self._config = config
        self._log = log
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._run_later = run_later
        self._completing: set[str] = set()  # ids whose markers are on their way
        self._next_check_ms: int | None = None  # monotonic; set while there may be something to do

    @property
    def states(self) -> Mapping[str, Transaction]:
        """All ids."""
        return self._log.states

    @property
    def level(self) -> int:
        """The level of the feature transaction.version."""
        return self._log.level

    # -- start ---------------------------------------------------------------------------------------------------------

    def recover(self, find_open: Callable[[], Iterable[OpenTransaction]], now_ms: int) -> None:
        """Finish what a crash interrupted: markers of decided transactions, and transactions no id knows of.

        The latter exist after a power cut under a flush policy that does not sync before answers: the partition's
        records survived and the id's state did not, or the id's last state did and its markers did not.

        Args:
            find_open: Finds those of all partitions; called when decided ones are completed.
            now_ms: Wall time.
        """
        for transaction in list(self.states.values()):
            if transaction.state in PREPARED:
                self._complete(transaction.transactional_id, now_ms)
            elif transaction.state is TransactionState.ONGOING:
                self._wake()
        held = {state.identity for state in self.states.values() if state.state not in AT_REST}
        orphans = [open_one for open_one in find_open() if open_one.producer not in held]
        outcomes = self._log.find_outcomes({orphan.producer for orphan in orphans})
        for partition, producer in orphans:
            is_commit = outcomes.get(producer, False)
            logger.warning(
                "%r had a transaction open in %r that belongs to no transactional id: ended it", producer, partition
            )
            self._markers.send(Marker(*producer, is_commit, self._log.coordinator_epoch, 0), [partition], _ignore)

    # -- requests ------------------------------------------------------------------------------------------------------

    def init_producer(
        self, transactional_id: str, given: ProducerIdAndEpoch | None, timeout_ms: int, now_ms: int
    ) -> Transition:
        """InitProducerId; see `transaction.init`. An unknown id is made."""
        if not 0 < len(transactional_id) <= MAX_ID_CHARS:
            return Transition(ErrorCode.INVALID_REQUEST)
        if not 0 < timeout_ms <= self._config.max_timeout_ms:
            return Transition(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        try:
            now = self.states.get(transactional_id)
            if now is None:
                now = Transaction(transactional_id, self._new_producer_id(), NO_PRODUCER_EPOCH, timeout_ms, now_ms)
            transition = rules.init(now, given, timeout_ms, now_ms, self.level, self._new_producer_id)
        except OSError:
            return Transition(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if transition.error is ErrorCode.CONCURRENT_TRANSACTIONS and transition.after is not None:
            self._write_fence(now, transition.after, now_ms)
            return transition
        return self._write(transition)

    def add_partitions(
        self,
        transactional_id: str,
        given: ProducerIdAndEpoch,
        partitions: Collection[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> ErrorCode:
        """AddPartitionsToTxn, AddOffsetsToTxn, and what a TV2 produce implies; see `transaction.add`."""
        now, error = self._find(transactional_id)
        if now is None:
            return error
        if client_version >= TV2 and self.level == 0:
            return ErrorCode.UNSUPPORTED_VERSION  # the log's format at level 0 cannot hold it
        error = self._write(rules.add(now, given, partitions, client_version, now_ms)).error
        if error is ErrorCode.NONE:
            self._wake()
        return error

    def verify(
        self, transactional_id: str, given: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Check that partitions are part of a transaction; see `transaction.verify`."""
        now, error = self._find(transactional_id)
        return dict.fromkeys(partitions, error) if now is None else rules.verify(now, given, partitions)

    def end(
        self, transactional_id: str, given: ProducerIdAndEpoch, *, is_commit: bool, client_version: int, now_ms: int
    ) -> Transition:
        """EndTxn; see `transaction.end`. The decision is durable, and the markers follow, when this returns."""
        now, error = self._find(transactional_id)
        if now is None:
            return Transition(error)
        if client_version >= TV2 and self.level == 0:
            return Transition(ErrorCode.UNSUPPORTED_VERSION)
        try:
            transition = rules.end(now, given, is_commit, client_version, now_ms, self._new_producer_id)
        except OSError:
            return Transition(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        written = self._write(transition)
        if written.after is not None:
            self._complete_later(transactional_id, now_ms)
        return written

    # -- time ----------------------------------------------------------------------------------------------------------

    def next_deadline_ms(self, monotonic_ms: int) -> int | None:
        """When `on_time` must be called next, by the monotonic clock; None while nothing is open."""
        if self._next_check_ms is None:
            return None
        if self._next_check_ms < 0:
            self._next_check_ms = monotonic_ms + self._config.timeout_check_ms
        return self._next_check_ms

    def on_time(self, monotonic_ms: int, now_ms: int) -> None:
        """Abort transactions that are open for too long, and try again to complete decided ones."""
        if self._next_check_ms is None or not 0 <= self._next_check_ms <= monotonic_ms:
            return
        self._next_check_ms = None
        for transaction in list(self.states.values()):
            if transaction.state in PREPARED:
                self._complete_later(transaction.transactional_id, now_ms)
            elif rules.is_overdue(transaction, now_ms):
                logger.info("transaction of %r timed out: aborting it", transaction.transactional_id)
                try:
                    fenced = rules.fence(transaction, now_ms, self.level, self._new_producer_id)
                except OSError:
                    self._wake()
                else:
                    self._write_fence(transaction, fenced, now_ms)
            elif transaction.state is TransactionState.ONGOING:
                self._wake()

    def expire_ids(self, now_ms: int) -> None:
        """Forget ids that were not used for long, and what the log has outgrown.

        Raises:
            LogError: The log takes no appends.
        """
        expiration_ms = self._config.id_expiration_ms
        expired = [key for key, state in self.states.items() if rules.is_expired(state, now_ms, expiration_ms)]
        self._log.remove(expired, now_ms)
        self._log.maybe_compact(now_ms)

    # -- inside --------------------------------------------------------------------------------------------------------

    def _find(self, transactional_id: str) -> tuple[Transaction | None, ErrorCode]:
        if not transactional_id:
            return None, ErrorCode.INVALID_REQUEST
        return self.states.get(transactional_id), ErrorCode.INVALID_PRODUCER_ID_MAPPING

    def _write(self, transition: Transition) -> Transition:
        """Make a transition durable; a failed write refuses it."""
        if transition.error is not ErrorCode.NONE or transition.after is None:
            return Transition(transition.error, None, transition.answer)
        transactional_id = transition.after.transactional_id
        try:
            self._log.write(transition.after)
        except RequestRefusedError as error:  # another broker is the coordinator by now, or replicas are missing
            logger.info("the state of transactional id %r is not written: %s", transactional_id, error)
            has_moved = error.code == ErrorCode.NOT_COORDINATOR
            return Transition(ErrorCode.NOT_COORDINATOR if has_moved else ErrorCode.COORDINATOR_NOT_AVAILABLE)
        except KafkaError as error:
            logger.error("the state of transactional id %r cannot be written: %s", transactional_id, error)
            return Transition(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return transition

    def _write_fence(self, now: Transaction, fenced: Transaction, now_ms: int) -> None:
        if self._write(Transition(after=fenced)).error is ErrorCode.NONE:
            self._complete_later(fenced.transactional_id, now_ms)
        else:
            self._log.states[now.transactional_id] = rules.fence_unwritten(now, self.level)
            self._wake()

    def _complete_later(self, transactional_id: str, now_ms: int) -> None:
        """Write the markers once the decision is safe: in a cluster, on all in-sync replicas of the log."""
        self._run_later(lambda: self._complete(transactional_id, now_ms))

    def _complete(self, transactional_id: str, now_ms: int) -> None:
        """Write the markers of a decided transaction; what a disk refuses is tried again by `on_time`."""
        now = self.states[transactional_id]
        if now.state not in PREPARED or transactional_id in self._completing:
            return
        self._completing.add(transactional_id)
        is_commit = now.state is TransactionState.PREPARE_COMMIT
        marker = Marker(now.producer_id, now.epoch, is_commit, self._log.coordinator_epoch, now.client_version)
        self._markers.send(marker, sorted(now.partitions), lambda errors: self._completed(now, errors, now_ms))

    def _completed(self, now: Transaction, errors: Mapping[TopicPartition, int], now_ms: int) -> None:
        self._completing.discard(now.transactional_id)
        is_written = all(error == ErrorCode.NONE or error in FINAL_ERRORS for error in errors.values())
        if not is_written or self._write(Transition(after=rules.complete(now, now_ms))).error is not ErrorCode.NONE:
            self._wake()

    def _wake(self) -> None:
        """Have `on_time` called after the next interval."""
        if self._next_check_ms is None:
            self._next_check_ms = -1


def _ignore(_: Mapping[TopicPartition, int]) -> None:
    """Takes outcomes that change nothing."""
