"""Duplicate and sequence checks, open transactions and the last stable offset of one partition.

Two steps, so that a refused or failed append changes nothing: `check` compares a batch with the state, `add` notes a
batch that is in the log. `replay` notes a batch found in the log during recovery or replication, unchecked.
Pure state: no I/O, no clock; the partition's lock guards it.
Source: Kafka storage, ProducerStateManager, ProducerAppendInfo; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kafkaprod.broker.storage.errors import RecordsRefusedError
from kafkaprod.broker.storage.format.control_batch import EndTransactionMarker
from kafkaprod.broker.storage.index.transaction_index import AbortedTransaction
from kafkaprod.broker.storage.producers.producer_entry import (
    NO_TRANSACTION,
    BatchMetadata,
    ProducerEntry,
    encode_snapshot,
    parse_snapshot,
)
from kafkaprod.protocol.error_codes import ErrorCode
from kafkaprod.storage.batch_header import (
    INT16_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
)
from kafkaprod.structs import INT32_MAX


@dataclass(slots=True, eq=False)
class VerificationToken:
    """Names one verification of a producer in this partition; it becomes worthless when a marker overtakes it.

    Without it a batch that was verified, and then overtaken by the marker that aborts its transaction, would open a
    transaction that nothing ends.

    Attributes:
        epoch: The epoch of the producer.
        lowest_sequence: The lowest sequence of the batches that wait for the verification; it must be appended first.
        created_ms: Wall time; for expiry.
    """

    epoch: int
    lowest_sequence: int
    created_ms: int


class TransactionGuard(NamedTuple):
    """What the transaction coordinator answered about a transactional batch before the append."""

    is_verified: bool = True
    """The partition is part of the transaction; needed for its first batch here."""
    starts_at_sequence_zero: bool = False
    """The producer uses transactions V2 (KIP-890): with no state here, its first sequence must be 0."""
    token: VerificationToken | None = None
    """The token of the verification; None: the caller vouches for the batch."""


UNGUARDED = TransactionGuard()


class CompletedTransaction(NamedTuple):
    """A transaction that a marker at `last_offset` ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


@dataclass(slots=True)
class ProducerState:
    """All producers of one partition."""

    producers: dict[int, ProducerEntry] = field(default_factory=dict)
    _open: dict[int, int] = field(default_factory=dict)
    """Producer id of each open transaction by its first offset."""
    _tokens: dict[int, VerificationToken] = field(default_factory=dict)
    """By producer id, of verifications that were begun; see `VerificationToken`."""
    _unreplicated: dict[int, int] = field(default_factory=dict)
    """Marker offset of each ended transaction whose marker is not below the high watermark, by its first offset."""

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The batch in the log that `header` repeats, or None."""
        entry = self.producers.get(header.producer_id)
        return entry.find_duplicate(header) if entry else None

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """The producer has written to this partition in its current transaction."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.epoch == producer_epoch and entry.has_transaction

    def verification_token(self, header: BatchHeader, now_ms: int) -> VerificationToken | None:
        """The token to verify a transactional batch with; None if the batch needs no verification.

        It needs none if the transaction has records here already, if it is a duplicate, or if its epoch is stale.

        Args:
            header: The header of the batch.
            now_ms: Wall time.
        """
        entry = self.producers.get(header.producer_id)
        if entry is not None:
            is_stale = header.producer_epoch < entry.epoch
            is_ongoing = self.has_open_transaction(header.producer_id, header.producer_epoch)
            if is_stale or is_ongoing or entry.find_duplicate(header) is not None:
                return None
        return self._token(header.producer_id, header.producer_epoch, header.base_sequence, now_ms)

    def internal_token(self, producer_id: int, producer_epoch: int, now_ms: int) -> VerificationToken:
        """The token to verify a coordinator's batch with, which has no sequence."""
        return self._token(producer_id, producer_epoch, NO_SEQUENCE, now_ms)

    def _token(self, producer_id: int, producer_epoch: int, sequence: int, now_ms: int) -> VerificationToken:
        token = self._tokens.get(producer_id)
        if token is None or token.epoch < producer_epoch:
            token = self._tokens[producer_id] = VerificationToken(producer_epoch, sequence, now_ms)
        token.lowest_sequence = min(token.lowest_sequence, sequence)
        return token

    def check(self, header: BatchHeader, guard: TransactionGuard = UNGUARDED) -> None:
        """Check a client's data batch with a producer id.

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH (stale epoch), OUT_OF_ORDER_SEQUENCE_NUMBER (sequence gap),
                INVALID_TXN_STATE (not legal in the transaction's state).
        """
        entry = self.producers.get(header.producer_id) or ProducerEntry(header.producer_id)
        _check_epoch(entry, header.producer_epoch)
        if header.is_transactional and not self.has_open_transaction(header.producer_id, header.producer_epoch):
            self._check_verified(header, guard)
        _check_sequence(entry, header, guard)
        if entry.has_transaction and not header.is_transactional:
            raise RecordsRefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"batch of producer {header.producer_id} outside of its open transaction",
            )

    def check_internal(self, header: BatchHeader, token: VerificationToken | None) -> None:
        """Check a coordinator's batch with a producer id, which has no sequence.

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH (stale epoch), INVALID_TXN_STATE (a marker has overtaken the
                verification that `token` names; None: there was none).
        """
        _check_epoch(self.producers.get(header.producer_id) or ProducerEntry(header.producer_id), header.producer_epoch)
        if token is not None and not self.has_open_transaction(header.producer_id, header.producer_epoch):
            self._check_token(header.producer_id, token)

    def check_marker(self, header: BatchHeader, marker: EndTransactionMarker, transaction_version: int) -> None:
        """Check a transaction marker.

        Under transactions V2 each transaction has its own epoch, so the marker's must be above the known one; the same
        epoch with no open transaction is the retry of a marker that was written (KAFKA-19999) and passes.

        Raises:
            RecordsRefusedError: INVALID_PRODUCER_EPOCH (stale epoch), TRANSACTION_COORDINATOR_FENCED (the coordinator
                has been replaced).
        """
        entry = self.producers.get(header.producer_id) or ProducerEntry(header.producer_id)
        _check_epoch(entry, header.producer_epoch)
        is_repeated = header.producer_epoch == entry.epoch and not entry.has_transaction
        is_last_epoch = entry.epoch == INT16_MAX  # nothing is above it (KAFKA-20090)
        if transaction_version >= 2 and header.producer_epoch <= entry.epoch and not (is_repeated or is_last_epoch):
            raise RecordsRefusedError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker of producer {header.producer_id} has epoch {header.producer_epoch}, not above {entry.epoch}",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise RecordsRefusedError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {marker.coordinator_epoch} is older than {entry.coordinator_epoch}",
            )

    def add(self, header: BatchHeader, base_offset: int) -> None:
        """Note a data batch that is in the log at `base_offset`."""
        if header.producer_id == NO_PRODUCER_ID:
            return
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        entry.add_batch(header, base_offset, base_offset + header.last_offset_delta)
        if header.is_transactional:
            self._tokens.pop(header.producer_id, None)
            if not entry.has_transaction:
                entry.transaction_first_offset = base_offset
                self._open[base_offset] = header.producer_id

    def add_marker(
        self, header: BatchHeader, marker: EndTransactionMarker, offset: int, transaction_version: int = 0
    ) -> CompletedTransaction | None:
        """Note a marker that is in the log at `offset`; return the transaction it ended, None if it had no data."""
        token = self._tokens.get(header.producer_id)
        is_of_next = token is not None and transaction_version >= 2 and token.epoch == header.producer_epoch
        if token is not None and not is_of_next:
            del self._tokens[header.producer_id]
        entry = self.producers.get(header.producer_id)
        if entry is None:
            entry = self.producers[header.producer_id] = ProducerEntry(header.producer_id)
        first_offset = entry.transaction_first_offset
        entry.advance_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        entry.transaction_first_offset = NO_TRANSACTION
        if first_offset == NO_TRANSACTION:
            return None
        self._open.pop(first_offset, None)
        self._unreplicated[first_offset] = offset
        return CompletedTransaction(header.producer_id, first_offset, offset, not marker.is_commit)

    def aborted(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The index entry of a transaction that was just aborted, with the last stable offset it leaves behind."""
        stable = min(self._open, default=completed.last_offset + 1)
        return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)

    def replay(self, header: BatchHeader, marker: EndTransactionMarker | None) -> AbortedTransaction | None:
        """Note a batch of the log, unchecked; return the index entry if it aborted a transaction with data."""
        if header.producer_id == NO_PRODUCER_ID:
            return None
        if not header.is_control:
            self.add(header, header.base_offset)
        elif marker is not None:
            completed = self.add_marker(header, marker, header.last_offset)
            if completed is not None and completed.is_aborted:
                return self.aborted(completed)
        return None

    def first_unstable_offset(self) -> int | None:
        """Start of the earliest transaction that is undecided, or decided but not yet replicated; None without one."""
        return min((*self._open, *self._unreplicated), default=None)

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget the ended transactions whose marker is below the high watermark."""
        for first_offset in [first for first, marker in self._unreplicated.items() if marker < high_watermark]:
            del self._unreplicated[first_offset]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the producers without open transaction that wrote nothing for `expiration_ms` (wall time)."""
        for entry in list(self.producers.values()):
            if not entry.has_transaction and now_ms - entry.last_timestamp >= expiration_ms:
                del self.producers[entry.producer_id]
        for producer_id, token in list(self._tokens.items()):
            if now_ms - token.created_ms >= expiration_ms:
                del self._tokens[producer_id]

    def snapshot(self) -> bytes:
        """The bytes of a .snapshot file."""
        return encode_snapshot(self.producers.values())

    def _check_verified(self, header: BatchHeader, guard: TransactionGuard) -> None:
        producer_id, token = header.producer_id, guard.token
        if not guard.is_verified:
            raise RecordsRefusedError(
                ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} began a transaction here that was not verified"
            )
        if token is None:
            return
        self._check_token(producer_id, token)
        if header.base_sequence > token.lowest_sequence:
            _refuse_sequence(header, f"{token.lowest_sequence}, which is verified with it")

    def _check_token(self, producer_id: int, token: VerificationToken) -> None:
        if self._tokens.get(producer_id) is not token:
            raise RecordsRefusedError(
                ErrorCode.INVALID_TXN_STATE, f"the transaction of producer {producer_id} ended while it was verified"
            )


def load_snapshot(content: bytes) -> ProducerState:
    """The state a .snapshot file holds.

    Raises:
        CorruptDataError: The file does not check.
    """
    return _from_entries(parse_snapshot(content))


def _from_entries(entries: Iterable[ProducerEntry]) -> ProducerState:
    state = ProducerState({entry.producer_id: entry for entry in entries})
    for entry in state.producers.values():
        if entry.has_transaction:
            state._open[entry.transaction_first_offset] = entry.producer_id
    return state


def _check_epoch(entry: ProducerEntry, epoch: int) -> None:
    if epoch < entry.epoch:
        raise RecordsRefusedError(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"epoch {epoch} of producer {entry.producer_id} is below {entry.epoch}",
        )


def _check_sequence(entry: ProducerEntry, header: BatchHeader, guard: TransactionGuard) -> None:
    first = header.base_sequence
    starts_at_zero = guard.starts_at_sequence_zero and header.is_transactional
    if entry.epoch == NO_PRODUCER_EPOCH:
        # No state: it may have been lost to retention, so any sequence is right, unless the coordinator knows better.
        if first != 0 and starts_at_zero:
            _refuse_sequence(header, "0 for a producer without state")
        return
    if header.producer_epoch != entry.epoch:
        if first != 0:
            _refuse_sequence(header, f"0 for the new epoch {header.producer_epoch}")
        return
    if starts_at_zero and not entry.batches and first != 0:
        _refuse_sequence(header, "0 for a producer without batches")
    last = entry.last_sequence
    if first != last + 1 and not (first == 0 and last == INT32_MAX):
        _refuse_sequence(header, str(0 if last == INT32_MAX else last + 1))


def _refuse_sequence(header: BatchHeader, expected: str) -> None:
    raise RecordsRefusedError(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        f"sequence {header.base_sequence} of producer {header.producer_id} in epoch {header.producer_epoch}, "
        f"expected {expected}",
    )
